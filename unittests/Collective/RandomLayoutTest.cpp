// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random slot tables, right and wrong, and the layouts of those that are right.

#include "collective/ExchangeLayout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

using namespace moira;
using namespace moira::runtime;

namespace {
class Source {
public:
  explicit Source(uint32_t seed) : engine(seed) {}
  /// From first to last, both included.
  int in(int first, int last) {
    return first + int(engine() % uint32_t(last - first + 1));
  }
  bool oneIn(int n) { return in(1, n) == 1; }

private:
  std::mt19937 engine;
};

/// A grid with a table that may be wrong.
struct RandomGrid {
  explicit RandomGrid(Source &source) {
    ranks = source.in(1, 6);
    constants.experts = source.in(1, 6);
    constants.shards = source.oneIn(2) ? 1 : source.in(1, 4);
    do
      constants.copies = source.in(1, constants.shards);
    while (constants.shards % constants.copies != 0);
    int units = constants.experts * constants.shards;
    constants.slots = (units + ranks - 1) / ranks + source.in(0, 2);
    table.assign(size_t(ranks) * constants.slots, -1);
    for (int u = 0; u < units; ++u)
      table[u] = u;
    for (size_t i = units; i < table.size(); ++i)
      if (source.oneIn(2))
        table[i] = source.in(0, units - 1);
    std::shuffle(table.begin(), table.end(), std::mt19937(source.in(0, 1000)));
    if (source.oneIn(3))
      for (int n = source.in(1, 3); n > 0; --n)
        table[source.in(0, int(table.size()) - 1)] = source.in(-3, units + 2);
  }

  bool isLegal() const {
    int units = constants.experts * constants.shards;
    std::set<int32_t> standing(table.begin(), table.end());
    standing.erase(-1);
    return int(standing.size()) == units && *standing.begin() == 0 &&
           *standing.rbegin() == units - 1;
  }

  int ranks = 1;
  moira_placement constants{};
  std::vector<int32_t> table;
};
} // namespace

/// One object for all of them: what a refused table has left may not help or
/// harm the next one.
TEST(Placement, RandomTables) {
  Source source(1);
  Placement placement;
  int legal = 0, wrong = 0;
  for (int i = 0; i < 5000; ++i) {
    RandomGrid grid(source);
    Status status =
        placement.set(grid.constants, grid.table.data(), grid.ranks);
    ASSERT_EQ(status.ok(), grid.isLegal()) << i << ": " << status.message;
    ++(status.ok() ? legal : wrong);
    if (!status.ok()) {
      EXPECT_EQ(status.code, MOIRA_INVALID_ARGUMENT);
      EXPECT_EQ(status.message.rfind("slot table: ", 0), 0u) << status.message;
      continue;
    }
    for (int u = 0; u < placement.units(); ++u) {
      int previous = -1;
      for (int h = 0; h < placement.holders(u); ++h) {
        Place place = placement.holder(u, h);
        EXPECT_LT(previous, place.rank);
        EXPECT_EQ(placement.unit(place.rank, place.slot), u);
        EXPECT_EQ(placement.holderFor(u, place.rank), place);
        previous = place.rank;
      }
    }
  }
  EXPECT_GT(legal, 1000);
  EXPECT_GT(wrong, 1000);
}

namespace {
/// A grid's exchange in one direction, of every rank.
class Exchange {
public:
  Exchange(const RandomGrid &grid, Source &source)
      : grid(grid), layouts(grid.ranks) {
    groups.ranks = grid.ranks;
    groups.groupSize = source.in(1, grid.ranks);
    for (int i = 0; i < grid.ranks * grid.constants.experts; ++i)
      counts.push_back(source.oneIn(4) ? 0 : source.in(0, 9));
    isGroups = source.oneIn(2);
    chunks = isGroups ? groups.count() : source.in(1, 4);
    toTokens = source.oneIn(2);
    EXPECT_TRUE(
        placement.set(grid.constants, grid.table.data(), grid.ranks).ok());
  }

  int64_t rowsOf(int rank) const {
    const int32_t *mine = counts.data() + rank * grid.constants.experts;
    return std::accumulate(mine, mine + grid.constants.experts, int64_t(0));
  }

  void set(int64_t chunk) {
    moira_exchange exchange{};
    exchange.placement = grid.constants;
    exchange.direction = toTokens ? MOIRA_TO_TOKENS : MOIRA_TO_EXPERTS;
    exchange.schedule = isGroups ? MOIRA_SCHEDULE_GROUPS : MOIRA_SCHEDULE_EQUAL;
    exchange.chunk = chunk;
    exchange.chunks = chunks;
    exchange.counts = counts.data();
    for (int rank = 0; rank < grid.ranks; ++rank) {
      groups.rank = rank;
      exchange.home_rows = rowsOf(rank) + 3;
      Status status = layouts[rank].set(exchange, placement, groups);
      ASSERT_TRUE(status.ok()) << status.message;
    }
  }

  const RandomGrid &grid;
  RankGroups groups;
  std::vector<int32_t> counts;
  bool isGroups = false, toTokens = false;
  int64_t chunks = 1;
  Placement placement;
  std::vector<ExchangeLayout> layouts;
};
} // namespace

/// Both ends of a message agree, rows at the experts follow each other without
/// gaps, and every row at home travels once per copy.
TEST(Layout, RandomGridsLoseNoRow) {
  Source source(2);
  int tried = 0;
  while (tried < 600) {
    RandomGrid grid(source);
    if (!grid.isLegal())
      continue;
    SCOPED_TRACE(tried++);
    Exchange exchange(grid, source);
    const int slots = grid.constants.slots, copies = grid.constants.copies;
    std::vector<std::vector<int>> moved(grid.ranks);
    for (int p = 0; p < grid.ranks; ++p)
      moved[p].resize((exchange.rowsOf(p) + 3) * copies);
    for (int64_t chunk = 0; chunk < exchange.chunks; ++chunk) {
      exchange.set(chunk);
      for (int q = 0; q < grid.ranks; ++q) {
        const ExchangeLayout &holder = exchange.layouts[q];
        int64_t next = 0;
        for (int slot = 0; slot < slots; ++slot)
          for (int p = 0; p < grid.ranks; ++p) {
            const RowRange &away = holder.away(slot, p);
            RowRange home = exchange.layouts[p].home(q, slot);
            EXPECT_EQ(home.rows, away.rows);
            EXPECT_EQ(away.begin, next);
            next += away.rows;
            // One copy after the other; without that offset on the way there.
            int first = grid.constants.shards / copies;
            int copy = exchange.toTokens || away.rows == 0
                           ? 0
                           : exchange.placement.unit(q, slot) %
                                 grid.constants.shards / first;
            for (int64_t i = 0; i < home.rows; ++i)
              ++moved[p][copy * (exchange.rowsOf(p) + 3) + home.begin + i];
          }
        EXPECT_EQ(next, holder.awayRows());
      }
    }
    for (int p = 0; p < grid.ranks; ++p)
      for (int copy = 0; copy < copies; ++copy)
        for (int64_t i = 0; i < exchange.rowsOf(p) + 3; ++i)
          EXPECT_EQ(moved[p][copy * (exchange.rowsOf(p) + 3) + i],
                    i < exchange.rowsOf(p));
    if (testing::Test::HasFailure())
      break;
  }
}
