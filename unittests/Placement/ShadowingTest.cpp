// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/Shadowing.h"
#include "cost/Formulas.h"
#include "cost/LayerShape.h"
#include "cost/LoadTrace.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::runtime;

using Ids = std::vector<int32_t>;

namespace {
Placement even(int ranks, int experts, int shards, int slots) {
  Placement placement;
  LayerShape shape;
  shape.ranks = ranks;
  shape.experts = experts;
  shape.shards = shards;
  shape.slots = slots;
  EXPECT_TRUE(
      placement
          .set({experts, shards, 1, slots}, shape.evenTable().data(), ranks)
          .ok());
  return placement;
}

/// FasterMoE's policy with its own costs, one expert per rank.
Ids faster(double model, const std::vector<int32_t> &counts, int ranks = 4) {
  FasterMoeModel costs;
  costs.model = model;
  return selectShadows(even(ranks, ranks, 1, 2 * ranks), counts.data(), ranks,
                       [&](int shadows, const auto &rows) {
                         return shadows ? costs.shadowed(shadows, rows)
                                        : costs.imbalanced(rows);
                       });
}

/// Every rank sends these rows.
std::vector<int32_t> each(int ranks, const std::vector<int32_t> &rows) {
  std::vector<int32_t> counts;
  for (int rank = 0; rank < ranks; ++rank)
    counts.insert(counts.end(), rows.begin(), rows.end());
  return counts;
}
} // namespace

/// FasterMoE's algorithm 1 by hand (H = 1024 and 4096, alpha = 2, 11.5e12
/// flops, 6.25e9 B/s, f32).
TEST(Shadowing, GoldensOfFasterMoE) {
  auto balanced = each(4, {512, 512, 512, 512});
  auto allToOne = each(4, {0, 0, 2048, 0});
  auto skewed = each(4, {819, 819, 205, 205});
  auto tiny = each(4, {0, 0, 16, 0});
  EXPECT_EQ(faster(1024, balanced), Ids{});
  EXPECT_EQ(faster(1024, allToOne), Ids{2});
  EXPECT_EQ(faster(1024, skewed), Ids{0});
  EXPECT_EQ(faster(1024, tiny), Ids{});
  EXPECT_EQ(faster(4096, balanced), Ids{});
  EXPECT_EQ(faster(4096, allToOne), Ids{2});
  EXPECT_EQ(faster(4096, skewed), Ids{});
  EXPECT_EQ(faster(4096, tiny), Ids{});
}

TEST(Shadowing, StepsOfTheSkewedCase) {
  FasterMoeModel costs;
  std::vector<double> seen;
  auto counts = each(4, {819, 819, 205, 205});
  selectShadows(even(4, 4, 1, 8), counts.data(), 4,
                [&](int shadows, const auto &rows) {
                  seen.push_back(shadows ? costs.shadowed(shadows, rows)
                                         : costs.imbalanced(rows));
                  return seen.back();
                });
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen[0], 15.757e-3, 1e-6);
  EXPECT_NEAR(seen[1], 14.330e-3, 1e-6);
  EXPECT_NEAR(seen[2], 16.116e-3, 1e-6);
}

/// Several experts on a rank: rows stay where they are, none is lost.
TEST(Shadowing, SeveralExpertsPerRank) {
  std::vector<int32_t> counts = {9, 1, 0, 2, 5, 0, 3, 3};
  Placement two = even(2, 4, 1, 4);
  std::vector<std::vector<double>> seen;
  Ids chosen =
      selectShadows(two, counts.data(), 3, [&](int shadows, const auto &rows) {
        seen.push_back(rows);
        return -shadows;
      });
  EXPECT_EQ(chosen, (Ids{0, 3, 2})); // loads 14, 1, 3, 5; then the limit
  EXPECT_EQ(seen[0], (std::vector<double>{15, 8}));
  EXPECT_EQ(seen[1], (std::vector<double>{10, 13}));
  EXPECT_EQ(seen[2], (std::vector<double>{12, 11}));
  EXPECT_EQ(seen[3], (std::vector<double>{12, 11}));
}

TEST(Shadowing, OrderByLoad) {
  std::vector<int64_t> loads;
  Ids order;
  std::vector<int32_t> counts = {1, 2, 3, 2, 1, 0};
  orderByLoad(counts.data(), 2, 3, 3, loads, order);
  EXPECT_EQ(order, (Ids{0, 1, 2})); // all 3: by id
  orderByLoad(counts.data(), 1, 3, 2, loads, order);
  EXPECT_EQ(order, (Ids{2, 1}));
  orderByLoad(counts.data(), 2, 3, 9, loads, order);
  EXPECT_EQ(order.size(), 3u);
}

TEST(Shadowing, OrderOfRelief) {
  ShadowOrder order;
  auto find = [&](const Placement &placement,
                  const std::vector<int32_t> &counts, int count) {
    std::vector<int64_t> loads(placement.experts());
    for (size_t i = 0; i < counts.size(); ++i)
      loads[i % loads.size()] += counts[i];
    return order.find(placement, counts.data(), loads, count);
  };
  // One expert per rank: by load, as FasterMoE has it.
  EXPECT_EQ(find(even(4, 4, 1, 8), each(4, {819, 820, 205, 206}), 4),
            (Ids{1, 0, 3, 2}));
  // Rank 1 has two experts of 8 each, rank 0 one of 10: what is hottest is not
  // what helps most.
  Placement two = even(2, 4, 1, 6);
  EXPECT_EQ(find(two, each(2, {5, 0, 4, 4}), 1), Ids{2});
  EXPECT_EQ(find(two, each(2, {5, 0, 4, 4}), 2), (Ids{2, 0}));
  EXPECT_EQ(find(two, each(2, {5, 0, 4, 4}), 9).size(), 4u);
  EXPECT_EQ(find(two, each(2, {0, 0, 0, 0}), 0), Ids{});
  // Shards: an expert's rows on all of its ranks.
  EXPECT_EQ(find(even(4, 2, 2, 9), each(4, {1, 9}), 2), (Ids{1, 0}));
}

TEST(Shadowing, WritesTables) {
  Placement base = even(2, 4, 1, 4);
  Ids table, experts = {3, 0};
  ASSERT_TRUE(writeShadowTable(base, experts.data(), 2, table).ok());
  // Rank 0 lacks 3 and rank 1 lacks 0.
  EXPECT_EQ(table, (Ids{0, 1, 3, -1, 2, 3, 0, -1}));
}

TEST(Shadowing, TablesHoldEverythingEverywhere) {
  for (int shards : {1, 2, 4})
    for (int shadows = 0; shadows <= 2; ++shadows) {
      int ranks = 4, experts = shards == 1 ? 8 : ranks / shards;
      if (shadows > experts)
        continue;
      int own = experts * shards / ranks;
      Placement base, whole;
      std::vector<int32_t> start(size_t(ranks) * (own + shadows * shards), -1);
      for (int rank = 0; rank < ranks; ++rank)
        for (int slot = 0; slot < own; ++slot)
          start[rank * (own + shadows * shards) + slot] = rank * own + slot;
      moira_placement constants{experts, shards, 1, own + shadows * shards};
      ASSERT_TRUE(base.set(constants, start.data(), ranks).ok());
      Ids table, chosen = {experts - 1, 0};
      ASSERT_TRUE(writeShadowTable(base, chosen.data(), shadows, table).ok());
      ASSERT_TRUE(whole.set(constants, table.data(), ranks).ok());
      for (int unit = 0; unit < experts * shards; ++unit)
        for (int rank = 0; rank < ranks; ++rank) {
          bool shadowed = shadows > 0 && unit / shards == chosen[0];
          shadowed |= shadows > 1 && unit / shards == chosen[1];
          EXPECT_EQ(whole.holderFor(unit, rank).rank,
                    shadowed ? rank : base.holderFor(unit, rank).rank);
          // What stood somewhere stands there still.
          Place before = base.holder(unit, 0);
          EXPECT_EQ(whole.unit(before.rank, before.slot), unit);
        }
    }
}

TEST(Shadowing, RefusesWhatDoesNotFit) {
  Placement base;
  std::vector<int32_t> start = {0, 1, -1, 2, 3, -1};
  ASSERT_TRUE(base.set({4, 1, 1, 3}, start.data(), 2).ok());
  Ids table, two = {0, 1}, wrong = {4};
  EXPECT_EQ(writeShadowTable(base, two.data(), 2, table).message,
            "shadow: expected a free slot on rank 1 for expert 1, got none of "
            "3");
  EXPECT_EQ(writeShadowTable(base, wrong.data(), 1, table).message,
            "shadow: expected an expert below 4, got 4");
  EXPECT_TRUE(writeShadowTable(base, two.data(), 1, table).ok());
  EXPECT_EQ(table, (Ids{0, 1, -1, 2, 3, 0}));
}
