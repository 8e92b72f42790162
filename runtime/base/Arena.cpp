// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Arena.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// The first chunk of a worker that never said how much it needs.
static constexpr int64_t smallestChunk = 64 << 10;
/// Chunks double up to here, so that a late large request wastes little.
static constexpr int64_t largestGrowth = int64_t(64) << 20;

static int64_t roundUp(int64_t bytes) {
  return (bytes + Arena::alignment - 1) & -Arena::alignment;
}

Result<void *> Arena::allocate(int64_t bytes) {
  if (bytes < 0)
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("expected a workspace of 0 or more bytes, got ", bytes));
  if (bytes > INT64_MAX / 4)
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected workspace of ", bytes,
                         " bytes, got no memory from the system"));
  int64_t rounded = roundUp(bytes);
  if (rounded == 0 && chunks.empty())
    return Storage::allocate(account, MemoryKind::Workspace, 0)->data();
  if (chunks.empty() ||
      chunks[current].storage.size() - chunks[current].used < rounded)
    MOIRA_RETURN_IF_ERROR(grow(rounded));
  Chunk &chunk = chunks[current];
  void *address = static_cast<char *>(chunk.storage.data()) + chunk.used;
  chunk.used += rounded;
  highest = std::max(highest, mark());
  if (account->poisons() && !source)
    poisonMemory(address, rounded);
  return address;
}

/// Makes `current` an empty chunk with room for `bytes`, a multiple of the
/// alignment.
Status Arena::grow(int64_t bytes) {
  int64_t place = mark();
  size_t next = chunks.empty() ? 0 : current + 1;
  if (next < chunks.size() && chunks[next].storage.size() < bytes)
    chunks.resize(next);
  if (next == chunks.size()) {
    int64_t wanted =
        std::max({bytes, smallestChunk, std::min(capacity(), largestGrowth)});
    Result<Storage> storage =
        Storage::allocate(account, MemoryKind::Workspace, wanted, source);
    // Close to the limit there may be room for the request alone.
    if (!storage.ok() && wanted > bytes)
      storage =
          Storage::allocate(account, MemoryKind::Workspace, bytes, source);
    if (!storage.ok())
      return storage.status();
    chunks.push_back({std::move(*storage), 0, 0});
  }
  current = next;
  chunks[current].base = place;
  chunks[current].used = 0;
  return Status();
}

int64_t Arena::mark() const {
  return chunks.empty() ? 0 : chunks[current].base + chunks[current].used;
}

bool Arena::release(int64_t place) {
  if (place < 0 || place > mark() || place % alignment)
    return false;
  while (current > 0 && place < chunks[current].base)
    --current;
  if (!chunks.empty())
    chunks[current].used = place - chunks[current].base;
  return true;
}

int64_t Arena::capacity() const {
  int64_t bytes = 0;
  for (const Chunk &chunk : chunks)
    bytes += chunk.storage.size();
  return bytes;
}

Status Arena::keepOne(int64_t bytes) {
  current = 0;
  if (chunks.size() == 1 && chunks[0].storage.size() >= bytes) {
    chunks[0].base = chunks[0].used = 0;
    return Status();
  }
  chunks.clear();
  if (bytes == 0)
    return Status();
  Result<Storage> storage =
      Storage::allocate(account, MemoryKind::Workspace, bytes, source);
  if (!storage.ok())
    return storage.status();
  chunks.push_back({std::move(*storage), 0, 0});
  return Status();
}

void Arena::reset() {
  // Where the one chunk cannot be had, the next step starts with none and
  // reports what it misses.
  (void)keepOne(highest);
}

Status Arena::reserve(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 4)
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected a workspace size that fits the address "
                         "space, got ",
                         bytes));
  return keepOne(std::max(highest, roundUp(bytes)));
}
