// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Residuals.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Sizes that vary a little from step to step, such as the rows that a rank
/// receives, share blocks: at most an eighth is wasted.
int64_t ResidualPool::blockBytes(int64_t bytes) {
  constexpr int64_t smallest = 64;
  if (bytes <= smallest || bytes > INT64_MAX / 2)
    return std::max(bytes, smallest);
  int64_t grain = smallest;
  while (grain * 16 < bytes)
    grain *= 2;
  return (bytes + grain - 1) / grain * grain;
}

Result<std::shared_ptr<Storage>> ResidualPool::take(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  auto best = blocks.end();
  for (auto block = blocks.begin(); block != blocks.end(); ++block)
    if (block->size() >= bytes && block->size() / 2 <= bytes &&
        (best == blocks.end() || block->size() < best->size()))
      best = block;
  Storage storage;
  if (best != blocks.end()) {
    storage = std::move(*best);
    blocks.erase(best);
    freeSize -= storage.size();
    if (account->poisons())
      poisonMemory(storage.data(), storage.size());
  } else {
    Result<Storage> made =
        Storage::allocate(account, MemoryKind::Residuals, blockBytes(bytes));
    if (!made.ok()) { // what is kept for later may be in the way
      trim(0);
      made = Storage::allocate(account, MemoryKind::Residuals, bytes);
    }
    if (!made.ok())
      return made.status();
    storage = std::move(*made);
  }
  usedSize += storage.size();
  mostUsed = std::max(mostUsed, usedSize);
  trim(mostUsed - usedSize);
  auto pool = shared_from_this();
  return std::shared_ptr<Storage>(new Storage(std::move(storage)),
                                  [pool](Storage *block) {
                                    pool->giveBack(std::move(*block));
                                    delete block;
                                  });
}

/// Ends the oldest free blocks until `most` bytes are left.
void ResidualPool::trim(int64_t most) {
  size_t ended = 0;
  while (freeSize > most && ended < blocks.size())
    freeSize -= blocks[ended++].size();
  blocks.erase(blocks.begin(), blocks.begin() + ended);
}

void ResidualPool::giveBack(Storage storage) {
  std::lock_guard<std::mutex> lock(mutex);
  usedSize -= storage.size();
  freeSize += storage.size();
  blocks.push_back(std::move(storage));
  trim(mostUsed - usedSize);
}

int64_t ResidualPool::freeBytes() const {
  std::lock_guard<std::mutex> lock(mutex);
  return freeSize;
}

int64_t Residuals::bytes() const {
  int64_t all = 0;
  for (const ResultTensor &tensor : tensors)
    all += tensor.storage ? tensor.storage->size() : 0;
  return all;
}
