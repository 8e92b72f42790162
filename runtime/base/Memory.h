// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who holds how many bytes, and storage that is counted.

#ifndef MOIRA_RUNTIME_BASE_MEMORY_H
#define MOIRA_RUNTIME_BASE_MEMORY_H

#include "base/Status.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace moira::runtime {

enum class MemoryKind {
  Parameters,
  Workspace,
  Results,
  Residuals, ///< what forward steps leave for their way back
  Training   ///< gradients, states of optimizers
};

/// Bytes held now, by kind, and the highest total so far.
struct MemoryFigures {
  int64_t parameters = 0;
  int64_t workspace = 0;
  int64_t results = 0;
  int64_t residuals = 0;
  int64_t training = 0;
  int64_t peak = 0;
  int64_t limit = 0; ///< 0: none

  int64_t total() const {
    return parameters + workspace + results + residuals + training;
  }
};

/// Counts bytes against a limit. Any thread may call anything.
class MemoryAccount {
public:
  /// `limit` in bytes; 0 means none. With `poison`, memory is poisoned before
  /// it is handed out.
  explicit MemoryAccount(int64_t limit = 0, bool poison = false)
      : limitBytes(limit), poison(poison) {}

  /// Counts `bytes` >= 0, or returns false and counts nothing when the total
  /// would pass the limit.
  [[nodiscard]] bool reserve(MemoryKind kind, int64_t bytes);
  void release(MemoryKind kind, int64_t bytes);

  int64_t limit() const { return limitBytes; }
  bool poisons() const { return poison; }
  MemoryFigures figures() const;

private:
  const int64_t limitBytes;
  const bool poison;
  std::atomic<int64_t> total{0};
  std::atomic<int64_t> peak{0};
  std::array<std::atomic<int64_t>, 5> held{};
};

/// Fills memory with what is NaN in every floating-point type, and an integer
/// that is no index (the words 0x7fffffff), so that a use of memory that nobody
/// wrote shows.
void poisonMemory(void *data, int64_t bytes);

/// Memory that is not the machine's own, such as a device's.
class BlockSource {
public:
  virtual ~BlockSource();
  /// `bytes` > 0, aligned to 64; null where there are none.
  virtual void *allocate(int64_t bytes) = 0;
  virtual void release(void *memory) = 0;
};

/// A block of counted memory, zero or not, given back by the destructor. Blocks
/// of the machine of at least 2 MiB start on a 2 MiB boundary and ask for huge
/// pages; others are aligned to 64 bytes. Movable; the bytes do not move.
class Storage {
public:
  Storage() = default;
  Storage(Storage &&other) noexcept { swap(other); }
  Storage &operator=(Storage &&other) noexcept {
    Storage(std::move(other)).swap(*this);
    return *this;
  }
  ~Storage();

  /// `bytes` >= 0; a block of 0 bytes has a valid, aligned address too. Fails
  /// with MOIRA_OUT_OF_MEMORY at the account's limit or the machine's.
  /// From `source`, which is never poisoned; null: from the machine.
  static Result<Storage> allocate(std::shared_ptr<MemoryAccount> account,
                                  MemoryKind kind, int64_t bytes,
                                  std::shared_ptr<BlockSource> source = {});

  void *data() const { return address; }
  int64_t size() const { return bytes; }

private:
  void swap(Storage &other) noexcept {
    std::swap(account, other.account);
    std::swap(source, other.source);
    std::swap(kind, other.kind);
    std::swap(address, other.address);
    std::swap(bytes, other.bytes);
  }

  std::shared_ptr<MemoryAccount> account;
  std::shared_ptr<BlockSource> source; ///< null: the machine
  MemoryKind kind = MemoryKind::Workspace;
  void *address = nullptr;
  int64_t bytes = 0;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_MEMORY_H
