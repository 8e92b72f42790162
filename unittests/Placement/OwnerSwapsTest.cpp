// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/OwnerSwaps.h"

#include "base/Draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

namespace {

/// Experts of a table [ranks, slots], each of them whole.
Placement place(int ranks, int experts, const std::vector<int32_t> &table) {
  Placement placement;
  Status status = placement.set({experts, 1, 1, int32_t(table.size()) / ranks},
                                table.data(), ranks);
  EXPECT_TRUE(status.ok()) << status.message;
  return placement;
}

int64_t most(const std::vector<int64_t> &rows) {
  return *std::max_element(rows.begin(), rows.end());
}

} // namespace

/// Two ranks with two experts and a free slot: 9 and 8 of 20 rows on one.
TEST(OwnerSwaps, TakesRowsFromTheFullestRank) {
  std::vector<int32_t> table = {0, 1, -1, 2, 3, -1}, after;
  Placement before = place(2, 4, table);
  const int32_t counts[] = {5, 4, 1, 1, 4, 4, 0, 1};
  EXPECT_EQ(rowsBesideShadows(before, counts, 0),
            (std::vector<int64_t>{17, 3}));
  std::vector<OwnerSwap> swaps = swapOwners(before, counts, 0, 16, after);
  // 9 for 2 leaves 10 and 10, as 8 for 1 would; the first places win.
  ASSERT_EQ(swaps.size(), 1u);
  EXPECT_EQ(swaps[0].first, (Place{0, 0}));
  EXPECT_EQ(swaps[0].second, (Place{1, 1}));
  EXPECT_EQ(after, (std::vector<int32_t>{3, 1, -1, 2, 0, -1}));
  EXPECT_EQ(rowsBesideShadows(place(2, 4, after), counts, 0),
            (std::vector<int64_t>{10, 10}));
}

/// Where the hottest is everywhere, its rows are each rank's own: nothing else
/// is uneven.
TEST(OwnerSwaps, LeavesToShadowsWhatIsTheirs) {
  std::vector<int32_t> table = {0, 1, -1, 2, 3, -1}, after;
  const int32_t counts[] = {50, 2, 2, 2, 50, 2, 2, 2};
  Placement before = place(2, 4, table);
  EXPECT_EQ(rowsBesideShadows(before, counts, 1),
            (std::vector<int64_t>{54, 58}));
  EXPECT_TRUE(swapOwners(before, counts, 1, 0, after).empty());
  EXPECT_EQ(after, table);
  // The shadow's place is worth nothing: it changes places with what is left.
  for (const OwnerSwap &swap : swapOwners(before, counts, 1, 16, after))
    EXPECT_NE(before.unit(swap.first.rank, swap.first.slot), 0);
  EXPECT_LE(most(rowsBesideShadows(place(2, 4, after), counts, 1)), 58);
}

TEST(OwnerSwaps, ExpertsOnSeveralRanksStay) {
  std::vector<int32_t> table = {0, 1, 0, 2}, after;
  Placement before = place(2, 3, table);
  const int32_t counts[] = {9, 9, 0, 9, 9, 1};
  for (const OwnerSwap &swap : swapOwners(before, counts, 0, 16, after)) {
    EXPECT_EQ(swap.first.slot, 1);
    EXPECT_EQ(swap.second.slot, 1);
  }
  EXPECT_EQ(after[0], 0);
  EXPECT_EQ(after[2], 0);
}

TEST(OwnerSwaps, NothingToDo) {
  std::vector<int32_t> table = {0, 1, 2, 3}, after;
  Placement even = place(4, 4, table);
  std::vector<int32_t> none(16);
  EXPECT_TRUE(swapOwners(even, none.data(), 0, 16, after).empty());
  EXPECT_TRUE(swapOwners(even, none.data(), 9, 16, after).empty());
  Placement alone = place(1, 4, table);
  const int32_t counts[] = {1, 2, 3, 4};
  EXPECT_TRUE(swapOwners(alone, counts, 0, 16, after).empty());
  EXPECT_EQ(after, table);
}

/// Under random loads and tables: each expert keeps one place, free slots stay
/// free, no rank gets more rows than the fullest had, the same again gives the
/// same.
TEST(OwnerSwaps, KeepsWhatMustHold) {
  Draws draws({7, 11}, 0);
  int changed = 0;
  for (int round = 0; round < 300; ++round) {
    int ranks = 1 + int(draws.below(8)), own = 1 + int(draws.below(5));
    int spare = int(draws.below(3)), experts = ranks * own;
    std::vector<int32_t> order(experts), table, after, again;
    std::iota(order.begin(), order.end(), 0);
    for (int i = experts; i-- > 1;)
      std::swap(order[i], order[draws.below(i + 1)]);
    for (int rank = 0; rank < ranks; ++rank) {
      table.insert(table.end(), order.begin() + rank * own,
                   order.begin() + (rank + 1) * own);
      table.insert(table.end(), spare, -1);
    }
    std::vector<int32_t> counts(size_t(ranks) * experts);
    for (int32_t &count : counts)
      count = int32_t(draws.below(draws.uniform() < 0.2 ? 1000 : 10));
    Placement before = place(ranks, experts, table);
    int most = int(draws.below(20));
    std::vector<OwnerSwap> swaps =
        swapOwners(before, counts.data(), spare, most, after);
    EXPECT_LE(int(swaps.size()), most);
    changed += !swaps.empty();
    EXPECT_EQ(swapOwners(before, counts.data(), spare, most, again).size(),
              swaps.size());
    EXPECT_EQ(again, after);
    for (size_t i = 0; i < table.size(); ++i)
      EXPECT_EQ(after[i] < 0, table[i] < 0);
    std::vector<int32_t> sorted = after, expected = table;
    std::sort(sorted.begin(), sorted.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted, expected);
    std::vector<int64_t> was = rowsBesideShadows(before, counts.data(), spare),
                         is = rowsBesideShadows(place(ranks, experts, after),
                                                counts.data(), spare);
    EXPECT_LE(::most(is), ::most(was));
    EXPECT_EQ(std::accumulate(is.begin(), is.end(), int64_t(0)),
              std::accumulate(was.begin(), was.end(), int64_t(0)));
  }
  EXPECT_GT(changed, 100);
}
