// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slot tables and layouts as integers.

#include "collective/ExchangeLayout.h"

#include <gtest/gtest.h>

#include <chrono>

using namespace moira;
using namespace moira::runtime;

namespace {
/// A layout with what it refers to.
struct Case {
  int ranks, experts, shards = 1, copies = 1, slots;
  std::vector<int32_t> counts;
  std::vector<int32_t> table = {};
  int schedule = MOIRA_SCHEDULE_EQUAL;
  int64_t chunk = 0, chunks = 1;
  int groupSize = 1;

  Placement placement = {};
  ExchangeLayout layout = {};

  Status set(int rank) {
    moira_exchange exchange{};
    exchange.placement = {experts, shards, copies, slots};
    exchange.schedule = schedule;
    exchange.chunk = chunk;
    exchange.chunks = chunks;
    exchange.counts = counts.data();
    exchange.row_bytes = 1;
    MOIRA_RETURN_IF_ERROR(placement.set(
        exchange.placement, table.empty() ? nullptr : table.data(), ranks));
    return layout.set(exchange, placement, {rank, ranks, groupSize});
  }

  /// FasterMoE's local_ptr: where at home each (owner, expert) begins.
  std::vector<int64_t> localPointers(int rank) {
    EXPECT_TRUE(set(rank).ok());
    std::vector<int64_t> pointers;
    int64_t end = 0;
    for (int q = 0; q < ranks; ++q)
      for (int l = 0; l < slots; ++l) {
        pointers.push_back(layout.home(q, l).begin);
        end = layout.home(q, l).begin + layout.home(q, l).rows;
      }
    pointers.push_back(end);
    return pointers;
  }
  /// And global_ptr: where away each (expert, source) begins.
  std::vector<int64_t> globalPointers(int rank) {
    EXPECT_TRUE(set(rank).ok());
    std::vector<int64_t> pointers;
    for (int l = 0; l < slots; ++l)
      for (int p = 0; p < ranks; ++p)
        pointers.push_back(layout.away(l, p).begin);
    pointers.push_back(layout.awayRows());
    return pointers;
  }
};

using Pointers = std::vector<int64_t>;
} // namespace

TEST(Layout, BuffersOfFasterMoE) {
  Case two{2, 4, 1, 1, 2, {1, 2, 0, 3, 4, 0, 1, 0}};
  EXPECT_EQ(two.localPointers(0), (Pointers{0, 1, 3, 3, 6}));
  EXPECT_EQ(two.globalPointers(0), (Pointers{0, 1, 5, 7, 7}));
  EXPECT_EQ(two.localPointers(1), (Pointers{0, 4, 4, 5, 5}));
  EXPECT_EQ(two.globalPointers(1), (Pointers{0, 0, 1, 4, 4}));
  // Expert 3 shadowed: rank 0 holds it too and keeps its rows.
  Case shadowed = two;
  shadowed.slots = 3;
  shadowed.table = {0, 1, 3, 2, 3, -1};
  EXPECT_EQ(shadowed.globalPointers(1), (Pointers{0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(shadowed.globalPointers(0), (Pointers{0, 1, 5, 7, 7, 10, 10}));
}

TEST(Layout, GroupsFormARing) {
  // FasterMoE, four groups: group 0 meets (to, from) (0,0) (3,1) (2,2) (1,3).
  Case ring{4, 4, 1, 1, 1, std::vector<int32_t>(16, 1)};
  ring.schedule = MOIRA_SCHEDULE_GROUPS;
  ring.chunks = 4;
  const int to[] = {0, 3, 2, 1}, from[] = {0, 1, 2, 3};
  for (int i = 0; i < 4; ++i) {
    ring.chunk = i;
    ASSERT_TRUE(ring.set(0).ok());
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(ring.layout.home(peer, 0).rows, peer == to[i]);
      EXPECT_EQ(ring.layout.away(0, peer).rows, peer == from[i]);
    }
  }
}

TEST(Layout, SmallerLastGroup) {
  Case grid{5, 5, 1, 1, 1, std::vector<int32_t>(25, 3)};
  grid.schedule = MOIRA_SCHEDULE_GROUPS;
  grid.groupSize = 2;
  grid.chunks = 3;
  for (int rank = 0; rank < 5; ++rank) {
    int64_t rows = 0;
    for (grid.chunk = 0; grid.chunk < 3; ++grid.chunk) {
      ASSERT_TRUE(grid.set(rank).ok());
      rows += grid.layout.awayRows();
    }
    EXPECT_EQ(rows, 15);
  }
  grid.chunk = 0;
  grid.chunks = 2;
  EXPECT_EQ(grid.set(0).message,
            "exchange: expected as many chunks as groups of ranks, got 2");
}

TEST(Placement, IdentityAndHolders) {
  Placement placement;
  ASSERT_TRUE(placement.set({4, 1, 1, 3}, nullptr, 2).ok());
  EXPECT_EQ(placement.unit(1, 0), 3);
  EXPECT_EQ(placement.unit(1, 1), -1);
  // Unit 1 twice on rank 2, and on rank 0.
  const int32_t table[] = {0, 1, 2, -1, 1, 1};
  ASSERT_TRUE(placement.set({3, 1, 1, 2}, table, 3).ok());
  EXPECT_EQ(placement.holders(1), 2);
  EXPECT_EQ(placement.holderFor(1, 0), (Place{0, 1}));
  EXPECT_EQ(placement.holderFor(1, 2), (Place{2, 0}));
  EXPECT_EQ(placement.holderFor(1, 1), (Place{2, 0})); // 1 mod 2
  EXPECT_EQ(placement.holderFor(2, 2), (Place{1, 0}));
}

TEST(Placement, FaultsAreNamed) {
  Placement placement;
  auto message = [&](moira_placement constants, std::vector<int32_t> table,
                     int ranks) {
    return placement
        .set(constants, table.empty() ? nullptr : table.data(), ranks)
        .message;
  };
  EXPECT_EQ(message({0, 1, 1, 1}, {}, 1),
            "placement: expected at least 1 expert, got 0");
  EXPECT_EQ(
      message({4, 2, 3, 1}, {}, 8),
      "placement: expected copies that are 0 or divide the shards, got 3");
  EXPECT_EQ(message({4, 1, 1, 1}, {}, 2),
            "slot table: expected every unit somewhere, got none of expert 2 "
            "shard 0");
  EXPECT_EQ(message({2, 1, 1, 2}, {0, 1, 2, -1}, 2),
            "slot table: rank 1 slot 0: expected -1 or a unit below 2, got 2");
  EXPECT_EQ(message({2, 1, 1, 2}, {0, -2, 1, -1}, 2),
            "slot table: rank 0 slot 1: expected -1 or a unit below 2, got -2");
  moira_plan plan{};
  const int32_t table[] = {0, 1};
  plan.slots = 1;
  plan.slot_table = table;
  EXPECT_EQ(placement.set({2, 1, 1, 2}, plan, 2).message,
            "placement: expected a slot table of 2 slots per rank, got 1");
}

TEST(Layout, FaultsAreNamed) {
  Case bad{2, 2, 1, 1, 1, {1, 2, 3, -4}};
  EXPECT_EQ(bad.set(0).message, "exchange: rank 1 expert 1: expected 0 or more "
                                "rows, got -4");
  bad.counts = {1, 1, 1, 1};
  bad.chunk = 1;
  EXPECT_EQ(bad.set(0).message,
            "exchange: expected a chunk below the number of chunks, got 1");
  bad.chunk = 0;
  bad.schedule = 2;
  EXPECT_EQ(bad.set(0).message, "exchange: expected schedule 0 or 1, got 2");
  bad.schedule = 0;
  bad.copies = 0;
  EXPECT_EQ(bad.set(0).message, "exchange: expected at least 1 copy, got 0");
}

/// No row is lost or counted twice, on a grid of the largest size that is
/// planned for.
TEST(Layout, LargeGrid) {
  constexpr int ranks = 512, experts = 1024;
  Case grid{ranks, experts, 1, 1, 2, {}};
  for (int i = 0; i < ranks * experts; ++i)
    grid.counts.push_back(i % 7);
  for (grid.chunks = 1; grid.chunks <= 3; grid.chunks += 2) {
    int64_t sent = 0, received = 0, due = 0;
    for (grid.chunk = 0; grid.chunk < grid.chunks; ++grid.chunk) {
      ASSERT_TRUE(grid.set(17).ok());
      for (int q = 0; q < ranks; ++q) {
        int64_t rows = 0;
        for (int l = 0; l < 2; ++l)
          rows += grid.layout.home(q, l).rows;
        EXPECT_EQ(rows, grid.layout.rowsBetween(17, q));
        sent += rows;
      }
      received += grid.layout.awayRows();
    }
    for (int e = 0; e < experts; ++e)
      due += grid.counts[17 * experts + e];
    EXPECT_EQ(sent, due);
    due = 0;
    for (int p = 0; p < ranks; ++p)
      due += grid.counts[p * experts + 34] + grid.counts[p * experts + 35];
    EXPECT_EQ(received, due);
  }
}
