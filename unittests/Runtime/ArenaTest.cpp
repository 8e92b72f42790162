// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Arena.h"
#include "Runtime/TestProgram.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace moira;
using namespace moira::runtime;

namespace {
struct ArenaTest : testing::Test {
  std::shared_ptr<MemoryAccount> account = std::make_shared<MemoryAccount>();
  Arena arena{account};

  char *allocate(int64_t bytes) {
    Result<void *> address = arena.allocate(bytes);
    EXPECT_OK(address.status());
    return address.ok() ? static_cast<char *>(*address) : nullptr;
  }
};
} // namespace

TEST_F(ArenaTest, ZeroBytesHaveAnAlignedAddress) {
  for (int round = 0; round < 2; ++round) {
    char *address = allocate(0);
    ASSERT_NE(address, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    allocate(1);
  }
}

TEST_F(ArenaTest, EmptyArenaHoldsNothing) {
  allocate(0);
  EXPECT_EQ(arena.capacity(), 0);
  EXPECT_EQ(account->figures().total(), 0);
}

TEST_F(ArenaTest, EveryAllocationIsAlignedAndApart) {
  char *last = nullptr;
  for (int64_t bytes : {1, 63, 64, 65, 1000}) {
    char *address = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    EXPECT_NE(address, last);
    std::memset(address, 0xff, bytes);
    last = address;
  }
}

TEST_F(ArenaTest, GrowthMovesNothing) {
  std::vector<char *> blocks;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(allocate(10'000));
    std::memset(blocks.back(), i, 10'000);
  }
  EXPECT_GT(arena.chunkCount(), 1);
  for (int i = 0; i < 200; ++i)
    for (int j = 0; j < 10'000; j += 999)
      ASSERT_EQ(blocks[i][j], char(i));
}

TEST_F(ArenaTest, ResetKeepsOneChunkOfTheHighWater) {
  for (int i = 0; i < 100; ++i)
    allocate(10'000);
  int64_t highest = arena.highWater();
  EXPECT_EQ(highest, 100 * 10'048);
  arena.reset();
  EXPECT_EQ(arena.chunkCount(), 1);
  EXPECT_EQ(arena.capacity(), highest);
}

TEST_F(ArenaTest, SteadyStepAllocatesNothing) {
  auto step = [&] {
    for (int i = 0; i < 50; ++i)
      allocate(7'777);
  };
  step();
  arena.reset();
  char *first = allocate(0);
  arena.reset();
  MemoryFigures before = account->figures();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(allocate(0), first);
    step();
    EXPECT_EQ(arena.chunkCount(), 1);
    arena.reset();
  }
  EXPECT_EQ(account->figures().peak, before.peak);
  EXPECT_EQ(account->figures().workspace, before.workspace);
}

TEST_F(ArenaTest, ReleaseGoesBack) {
  allocate(100);
  int64_t mark = arena.mark();
  char *first = allocate(100);
  allocate(1'000'000); // another chunk
  EXPECT_TRUE(arena.release(mark));
  EXPECT_EQ(arena.mark(), mark);
  EXPECT_EQ(allocate(100), first);
}

TEST_F(ArenaTest, LoopsWithMarksNeedNoMoreThanOneIteration) {
  for (int i = 0; i < 1000; ++i) {
    int64_t mark = arena.mark();
    allocate(100'000);
    EXPECT_TRUE(arena.release(mark));
  }
  EXPECT_EQ(arena.highWater(), 100'032);
  EXPECT_LE(arena.capacity(), 200'000);
}

TEST_F(ArenaTest, RejectsForeignMarks) {
  allocate(100);
  EXPECT_FALSE(arena.release(-64));
  EXPECT_FALSE(arena.release(1 << 20));
  EXPECT_FALSE(arena.release(1));
  EXPECT_TRUE(arena.release(0));
}

TEST_F(ArenaTest, RejectsSizesThatNoMachineHas) {
  EXPECT_ERROR(arena.allocate(-1).status(), MOIRA_INVALID_ARGUMENT,
               "expected a workspace of 0 or more bytes, got -1");
  EXPECT_EQ(arena.allocate(INT64_MAX).status().code, MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(arena.allocate(INT64_MAX / 4).status().code, MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(arena.reserve(INT64_MAX).code, MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(account->figures().total(), 0);
}

TEST_F(ArenaTest, ReserveMakesTheChunkBeforehand) {
  EXPECT_OK(arena.reserve(1000));
  EXPECT_EQ(arena.capacity(), 1024);
  allocate(512);
  allocate(512);
  EXPECT_EQ(arena.chunkCount(), 1);
  // Less than what it once used is no reason to shrink.
  EXPECT_OK(arena.reserve(10));
  EXPECT_EQ(arena.capacity(), 1024);
}

TEST(ArenaLimit, IsHonouredAndFreedMemoryCountsAgain) {
  auto account = std::make_shared<MemoryAccount>(1 << 20);
  Arena arena(account);
  EXPECT_OK(arena.allocate(700'000).status());
  EXPECT_ERROR(arena.allocate(700'000).status(), MOIRA_OUT_OF_MEMORY,
               "expected workspace of 700032 bytes to fit the memory limit of "
               "1048576 bytes, got 700032 bytes in use");
  EXPECT_LE(account->figures().peak, 1 << 20);
  EXPECT_TRUE(arena.release(0));
  EXPECT_OK(arena.allocate(700'000).status());
}

TEST(ArenaLimit, TakesTheRequestAloneWhenAChunkDoesNotFit) {
  auto account = std::make_shared<MemoryAccount>(1000);
  Arena arena(account);
  EXPECT_OK(arena.allocate(900).status());
  EXPECT_EQ(arena.capacity(), 960);
}

TEST(ArenaLimit, GivesAllBack) {
  auto account = std::make_shared<MemoryAccount>();
  {
    Arena arena(account);
    for (int i = 0; i < 30; ++i)
      EXPECT_OK(arena.allocate(50'000).status());
    EXPECT_GT(account->figures().workspace, 1'500'000);
  }
  EXPECT_EQ(account->figures().workspace, 0);
}

/// Bytes that were used before are poisoned again.
TEST(ArenaPoison, EveryAllocationIsNaN) {
  auto account = std::make_shared<MemoryAccount>(0, /*poison=*/true);
  Arena arena(account);
  for (int round = 0; round < 2; ++round) {
    Result<void *> address = arena.allocate(100);
    ASSERT_OK(address.status());
    auto *values = static_cast<float *>(*address);
    for (int i = 0; i < 25; ++i) {
      EXPECT_TRUE(std::isnan(values[i]));
      values[i] = 0;
    }
    ASSERT_TRUE(arena.release(0));
  }
}

/// Compares with a plain model: a stack of blocks, each filled with its number.
TEST(ArenaRandom, BlocksKeepTheirBytes) {
  auto account = std::make_shared<MemoryAccount>();
  Arena arena(account);
  struct Block {
    char *data;
    int64_t bytes;
    char fill;
  };
  std::mt19937 random(7);
  std::vector<Block> blocks;
  std::vector<std::pair<int64_t, size_t>> marks;
  for (int i = 0; i < 5000; ++i) {
    switch (random() % 8) {
    case 0:
      marks.emplace_back(arena.mark(), blocks.size());
      break;
    case 1:
      if (marks.empty())
        break;
      ASSERT_TRUE(arena.release(marks.back().first));
      blocks.resize(marks.back().second);
      marks.pop_back();
      break;
    case 2:
      if (i % 50)
        break;
      arena.reset();
      ASSERT_EQ(arena.mark(), 0);
      blocks.clear();
      marks.clear();
      break;
    default: {
      int64_t bytes = random() % (1 << (random() % 17));
      Result<void *> data = arena.allocate(bytes);
      ASSERT_TRUE(data.ok());
      blocks.push_back({static_cast<char *>(*data), bytes, char(i)});
      std::memset(*data, i, bytes);
    }
    }
    if (blocks.empty())
      continue;
    const Block &block = blocks[random() % blocks.size()];
    for (int64_t j = 0; j < block.bytes; ++j)
      ASSERT_EQ(block.data[j], block.fill);
  }
}
