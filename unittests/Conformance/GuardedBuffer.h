// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_UNITTESTS_CONFORMANCE_GUARDEDBUFFER_H
#define MOIRA_UNITTESTS_CONFORMANCE_GUARDEDBUFFER_H

#include "base/Memory.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace moira::conformance {

/// Poisoned memory that ends where an unreadable page begins: touching what
/// lies behind it ends the process.
class GuardedBuffer {
public:
  explicit GuardedBuffer(int64_t bytes) {
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t pages = (bytes + page - 1) / page * page;
    mappedBytes = pages + page;
    mapped = mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED ||
        mprotect(static_cast<char *>(mapped) + pages, page, PROT_NONE) != 0)
      std::abort();
    start = static_cast<char *>(mapped) + (pages - bytes);
    runtime::poisonMemory(start, bytes);
  }
  GuardedBuffer(GuardedBuffer &&other) noexcept
      : mapped(std::exchange(other.mapped, MAP_FAILED)),
        mappedBytes(other.mappedBytes), start(other.start) {}
  GuardedBuffer &operator=(GuardedBuffer &&) = delete;
  ~GuardedBuffer() {
    if (mapped != MAP_FAILED)
      munmap(mapped, mappedBytes);
  }

  /// Aligned to the largest power of two that divides the size.
  void *data() const { return start; }

private:
  void *mapped;
  int64_t mappedBytes;
  char *start;
};

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_GUARDEDBUFFER_H
