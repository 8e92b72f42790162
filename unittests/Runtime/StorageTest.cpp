// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What blocks of memory ask the kernel for.

#include "Runtime/TestProgram.h"
#include "base/Memory.h"

#include <fstream>
#include <sstream>
#include <string>

using namespace moira;
using namespace moira::runtime;

/// The kernel's flags of the mapping with `address`; empty: it lists none.
static std::string flagsOf(const void *address) {
  auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool isInside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream head(line);
    if (head >> std::hex >> begin >> dash >> end && dash == '-')
      isInside = begin <= wanted && wanted < end;
    else if (isInside && line.rfind("VmFlags:", 0) == 0)
      return line + " ";
  }
  return "";
}

static Storage allocate(int64_t bytes) {
  Result<Storage> storage = Storage::allocate(std::make_shared<MemoryAccount>(),
                                              MemoryKind::Parameters, bytes);
  EXPECT_OK(storage.status());
  return storage.ok() ? std::move(*storage) : Storage();
}

TEST(Storage, LargeBlocksAskForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "the kernel has no huge pages to ask for";
  Storage storage = allocate(int64_t{8} << 20);
  auto *data = static_cast<char *>(storage.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 << 20), 0u);
  for (int64_t at : {int64_t{0}, storage.size() - 1}) {
    std::string flags = flagsOf(data + at);
    EXPECT_NE(flags.find(" hg "), std::string::npos) << at << ": " << flags;
  }
}

TEST(Storage, SmallBlocksAreAlignedToo) {
  for (int64_t bytes : {1, 1000, (2 << 20) - 1}) {
    Storage storage = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage.data()) % 64, 0u) << bytes;
    EXPECT_EQ(storage.size(), bytes);
  }
}
