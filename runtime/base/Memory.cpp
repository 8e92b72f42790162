// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Memory.h"

#include <cstdlib>
#include <sys/mman.h>
#include <sys/sysinfo.h>

using namespace moira;
using namespace moira::runtime;

bool MemoryAccount::reserve(MemoryKind kind, int64_t bytes) {
  int64_t before = total.load(std::memory_order_relaxed);
  int64_t after;
  do {
    if (__builtin_add_overflow(before, bytes, &after) ||
        (limitBytes > 0 && after > limitBytes))
      return false;
  } while (
      !total.compare_exchange_weak(before, after, std::memory_order_relaxed));
  held[static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  int64_t highest = peak.load(std::memory_order_relaxed);
  while (highest < after && !peak.compare_exchange_weak(
                                highest, after, std::memory_order_relaxed)) {
  }
  return true;
}

void MemoryAccount::release(MemoryKind kind, int64_t bytes) {
  held[static_cast<int>(kind)].fetch_sub(bytes, std::memory_order_relaxed);
  total.fetch_sub(bytes, std::memory_order_relaxed);
}

MemoryFigures MemoryAccount::figures() const {
  auto read = [&](MemoryKind kind) {
    return held[static_cast<int>(kind)].load(std::memory_order_relaxed);
  };
  MemoryFigures figures;
  figures.parameters = read(MemoryKind::Parameters);
  figures.workspace = read(MemoryKind::Workspace);
  figures.results = read(MemoryKind::Results);
  figures.residuals = read(MemoryKind::Residuals);
  figures.training = read(MemoryKind::Training);
  figures.peak = peak.load(std::memory_order_relaxed);
  figures.limit = limitBytes;
  return figures;
}

static constexpr int64_t smallAlignment = 64;
static constexpr int64_t hugePage = int64_t(2) << 20;

/// What a block of 0 bytes points to.
alignas(smallAlignment) static unsigned char nothing[smallAlignment];

static const char *kindName(MemoryKind kind) {
  switch (kind) {
  case MemoryKind::Parameters:
    return "parameters";
  case MemoryKind::Workspace:
    return "workspace";
  case MemoryKind::Results:
    return "results";
  case MemoryKind::Residuals:
    return "residuals";
  case MemoryKind::Training:
    return "gradients and states of optimizers";
  }
  return "";
}

/// Memory and swap. A block that is larger can be had where the system promises
/// more than it has, but not be used.
static int64_t machineBytes() {
  struct sysinfo info;
  if (sysinfo(&info) != 0)
    return INT64_MAX / 2;
  return static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit;
}

void moira::runtime::poisonMemory(void *data, int64_t bytes) {
  static constexpr unsigned char word[4] = {0xff, 0xff, 0xff, 0x7f};
  auto *bytesOut = static_cast<unsigned char *>(data);
  for (int64_t i = 0; i < bytes; ++i)
    bytesOut[i] = word[i % 4];
}

Result<Storage> Storage::allocate(std::shared_ptr<MemoryAccount> account,
                                  MemoryKind kind, int64_t bytes,
                                  std::shared_ptr<BlockSource> source) {
  Storage storage;
  if (bytes == 0) {
    storage.address = nothing;
    return storage;
  }
  if (!account->reserve(kind, bytes)) {
    MemoryFigures figures = account->figures();
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected ", kindName(kind), " of ", bytes,
                         " bytes to fit the memory limit of ", figures.limit,
                         " bytes, got ", figures.total(), " bytes in use"));
  }
  int64_t alignment = bytes >= hugePage ? hugePage : smallAlignment;
  void *address = nullptr;
  if (source)
    address = source->allocate(bytes);
  else if (bytes <= machineBytes())
    address =
        std::aligned_alloc(alignment, (bytes + alignment - 1) & -alignment);
  if (!address) {
    account->release(kind, bytes);
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected ", kindName(kind), " of ", bytes,
                         " bytes, got no memory from the ",
                         source ? "device" : "system"));
  }
  // Advice only: without huge pages everything works, more slowly.
  if (bytes >= hugePage && !source)
    madvise(address, bytes & -hugePage, MADV_HUGEPAGE);
  if (account->poisons() && !source)
    poisonMemory(address, bytes);
  storage.source = std::move(source);
  storage.account = std::move(account);
  storage.kind = kind;
  storage.address = address;
  storage.bytes = bytes;
  return storage;
}

BlockSource::~BlockSource() = default;

Storage::~Storage() {
  if (!account)
    return;
  if (source)
    source->release(address);
  else
    std::free(address);
  account->release(kind, bytes);
}
