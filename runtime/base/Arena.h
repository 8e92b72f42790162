// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Workspace of one worker: a stack of bytes that grows without moving.

#ifndef MOIRA_RUNTIME_BASE_ARENA_H
#define MOIRA_RUNTIME_BASE_ARENA_H

#include "base/Memory.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moira::runtime {

/// A bump allocator. Grows in chunks while a step runs; `reset` puts what the
/// step used at most into one chunk, so that an equal step allocates nothing.
/// One thread at a time.
class Arena {
public:
  static constexpr int64_t alignment = 64;

  /// Chunks come from `source`; null: from the machine.
  explicit Arena(std::shared_ptr<MemoryAccount> account,
                 std::shared_ptr<BlockSource> source = {})
      : account(std::move(account)), source(std::move(source)) {}

  /// `bytes` >= 0 of undefined content, aligned to 64 bytes; valid until the
  /// matching `release` or `reset`. Never null; 0 bytes get an address too.
  Result<void *> allocate(int64_t bytes);

  /// The place to go back to. Places grow with every allocation.
  int64_t mark() const;
  /// Ends all allocations since `mark` returned this place. Returns false and
  /// changes nothing where no `mark` can have returned it.
  [[nodiscard]] bool release(int64_t mark);

  /// Ends all allocations and keeps one chunk of the highest use so far.
  void reset();
  /// As `reset`, with a chunk of at least `bytes`.
  Status reserve(int64_t bytes);

  /// Bytes in use at most, over the arena's life.
  int64_t highWater() const { return highest; }
  /// Bytes held.
  int64_t capacity() const;
  int64_t chunkCount() const { return static_cast<int64_t>(chunks.size()); }

private:
  struct Chunk {
    Storage storage;
    int64_t base; ///< place of the chunk's first byte
    int64_t used;
  };

  Status grow(int64_t bytes);
  Status keepOne(int64_t bytes);

  std::shared_ptr<MemoryAccount> account;
  std::shared_ptr<BlockSource> source;
  std::vector<Chunk> chunks;
  size_t current = 0; ///< chunks behind this one are empty
  int64_t highest = 0;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_ARENA_H
