// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

using namespace moira::reference;

//===----------------------------------------------------------------------===//
// Count and capacity
//===----------------------------------------------------------------------===//

TEST(Count, IgnoresUnusedAndForeignIds) {
  EXPECT_EQ(count({{0, 2}, {2, 1}, {0, -1}}, 3), (Counts{2, 1, 2}));
  EXPECT_EQ(count({{7, 0}}, 3), (Counts{1, 0, 0}));
  // First choices only: a column, not the first k entries.
  EXPECT_EQ(count({{0}, {2}}, 4), (Counts{1, 0, 1, 0}));
}

static int64_t tutel(int64_t tokens, int64_t experts, int64_t k, double f) {
  return capacity({CapacityRule::Tutel, f}, tokens, experts, k, 0);
}
static int64_t gshard(int64_t tokens, int64_t experts, double f) {
  return capacity({CapacityRule::GShard, f}, tokens, experts, 2, 0);
}
static int64_t switchRule(int64_t tokens, int64_t experts, double f) {
  return capacity({CapacityRule::Switch, f}, tokens, experts, 1, 0);
}

TEST(Capacity, TutelTable) {
  EXPECT_EQ(tutel(0, 4, 2, 1), 0);
  EXPECT_EQ(tutel(1, 8, 2, 1), 2);
  EXPECT_EQ(tutel(3, 4, 1, .5), 0);
  EXPECT_EQ(tutel(5, 4, 2, .4), 0);
  EXPECT_EQ(tutel(5, 4, 2, .5), 2);
  EXPECT_EQ(tutel(7, 2, 1, 1.25), 5);
  EXPECT_EQ(tutel(8, 4, 2, 1.25), 4);
  EXPECT_EQ(tutel(6, 4, 1, 1), 2);
  EXPECT_EQ(tutel(16384, 2, 2, 1), 16384);
}

TEST(Capacity, TutelByNeed) {
  EXPECT_EQ(capacity({CapacityRule::Tutel, 0}, 6, 4, 2, 5), 5);
  EXPECT_EQ(capacity({CapacityRule::Tutel, -1}, 6, 4, 2, 5), 4);
  EXPECT_EQ(capacity({CapacityRule::Tutel, -4}, 6, 4, 2, 5), 5);
  EXPECT_EQ(capacity({CapacityRule::Tutel, 0}, 0, 4, 2, 0), 0);
}

TEST(Capacity, OtherRules) {
  EXPECT_EQ(gshard(16, 4, .1), 1);
  EXPECT_EQ(gshard(16, 4, 1.1), 9);
  EXPECT_EQ(gshard(1, 8, 1.2), 0);
  EXPECT_EQ(switchRule(4096, 16, .1), 26);
  EXPECT_EQ(switchRule(4096, 16, .8), 205);
  EXPECT_EQ(switchRule(4096, 1, .1), 410);
  EXPECT_EQ(switchRule(8, 4, 1), 2);
  EXPECT_EQ(capacity({CapacityRule::Fixed, 64.9}, 6, 4, 2, 5), 64);
  EXPECT_EQ(capacity({CapacityRule::Fixed, -3}, 6, 4, 2, 5), 0);
}

TEST(Capacity, FactorsWithoutMeaning) {
  for (CapacityRule rule : {CapacityRule::Tutel, CapacityRule::GShard,
                            CapacityRule::Switch, CapacityRule::Fixed}) {
    EXPECT_EQ(capacity({rule, std::nan("")}, 6, 4, 2, 5), 0);
    EXPECT_GE(capacity({rule, -1e300}, 6, 4, 2, 5), 0);
    EXPECT_GT(capacity({rule, 1e300}, 6, 4, 2, 5), 1 << 28);
  }
}

/// The table of docs/routing.md.
TEST(Capacity, DocumentedTable) {
  const struct {
    int64_t tokens, experts, k;
    double factor;
    int64_t tutel, gshard, switches;
  } rows[] = {{6, 4, 1, 1.0, 2, 1, 2},
              {6, 4, 2, 1.0, 4, 3, 3},
              {16, 4, 2, 1.1, 8, 9, 9},
              {4096, 16, 1, 0.1, 25, 25, 26},
              {1, 8, 2, 1.2, 2, 0, 1}};
  for (const auto &r : rows) {
    auto by = [&](CapacityRule rule) {
      return capacity({rule, r.factor}, r.tokens, r.experts, r.k, 0);
    };
    EXPECT_EQ(by(CapacityRule::Tutel), r.tutel);
    EXPECT_EQ(by(CapacityRule::GShard), r.gshard);
    EXPECT_EQ(by(CapacityRule::Switch), r.switches);
  }
}

TEST(Capacity, MinimumThenAlignment) {
  EXPECT_EQ(capacity({CapacityRule::Fixed, 5, 0, 4}, 6, 4, 2, 0), 8);
  EXPECT_EQ(capacity({CapacityRule::Fixed, 1, 5, 4}, 6, 4, 2, 0), 8);
  EXPECT_EQ(capacity({CapacityRule::Fixed, 8, 5, 4}, 6, 4, 2, 0), 8);
  EXPECT_EQ(capacity({CapacityRule::Fixed, 0, 0, 4}, 6, 4, 2, 0), 0);
}

TEST(Capacity, TutelAlignment) {
  EXPECT_EQ(tutelAlignment(1, 1, 0), 1);
  EXPECT_EQ(tutelAlignment(2, 2, 0), 4);
  EXPECT_EQ(tutelAlignment(1, 1, 2), 2);
  EXPECT_EQ(tutelAlignment(4, 8, 0), 32);
  EXPECT_EQ(tutelAlignment(64, 8, 0), 512);
  EXPECT_EQ(tutelAlignment(3, 1, 2), 4);
}

TEST(Capacity, IsPerBlockNotPerBatch) {
  // Two blocks that each fill one expert: a block needs 4, the batch too, but
  // one block of 8 spread over both experts would need 4 as well.
  Ids ids = {{0}, {0}, {0}, {0}, {1}, {1}, {1}, {1}};
  EXPECT_EQ(count(ids, 2, 0, 4), (Counts{4, 0}));
  EXPECT_EQ(count(ids, 2, 4, 8), (Counts{0, 4}));
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = tutel(4, 2, 1, 1);
  inputs.blocks = {4, 4};
  EXPECT_EQ(assign(ids, inputs).sizes, (Counts{2, 2}));
}

//===----------------------------------------------------------------------===//
// Assign
//===----------------------------------------------------------------------===//

static const Ids twoExperts = {{0, 1}, {0, 1}, {1, 0}};

static Ids placesOf(Order order) {
  AssignInputs inputs;
  inputs.order = order;
  inputs.experts = 2;
  inputs.tokenPriority = {1, 2, 2};
  inputs.pairPriority = {{.6, .4}, {.7, .3}, {.7, .6}};
  return assign(twoExperts, inputs).places;
}

TEST(Assign, Orders) {
  EXPECT_EQ(placesOf(Order::ChoiceMajor), (Ids{{0, 1}, {1, 2}, {0, 2}}));
  EXPECT_EQ(placesOf(Order::TokenMajor), (Ids{{0, 0}, {1, 1}, {2, 2}}));
  // Tokens 1, 2, 0.
  EXPECT_EQ(placesOf(Order::BatchPrioritized), (Ids{{1, 2}, {0, 1}, {0, 2}}));
  // Expert 0: .7 (1), .6 (0), .6 (2); expert 1: .7 (2), .4 (0), .3 (1).
  EXPECT_EQ(placesOf(Order::ExpertProbability), (Ids{{1, 1}, {0, 2}, {0, 2}}));
}

TEST(Assign, NaNPrioritiesComeLast) {
  AssignInputs inputs;
  inputs.order = Order::BatchPrioritized;
  inputs.tokenPriority = {std::numeric_limits<double>::quiet_NaN(), -5, 3};
  EXPECT_EQ(assign(Ids(3, 1, 0), inputs).places, (Ids{{2}, {1}, {0}}));
  inputs.order = Order::ExpertProbability;
  inputs.pairPriority = {{std::numeric_limits<double>::quiet_NaN()}, {-5}, {3}};
  EXPECT_EQ(assign(Ids(3, 1, 0), inputs).places, (Ids{{2}, {1}, {0}}));
}

TEST(Assign, DroppedPairsUseUpTheirPlaces) {
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = 1;
  Assignment a = assign({{0, 1}, {0, 1}}, inputs);
  EXPECT_EQ(a.places, (Ids{{0, 0}, {1, 1}}));
  EXPECT_EQ(a.slots, (Ids{{0, 1}, {-1, -1}}));
  EXPECT_EQ(a.sizes, (Counts{1, 1}));
}

TEST(Assign, BlocksFollowEachOtherWithoutGaps) {
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = 2;
  inputs.blocks = {3, 0, 2};
  Ids ids = {{0}, {1}, {0}, {0}, {1}};
  EXPECT_EQ(assign(ids, inputs).slots, (Ids{{0}, {3}, {1}, {2}, {4}}));
  inputs.paddedRows = 6;
  Assignment padded = assign(ids, inputs);
  EXPECT_EQ(padded.slots, (Ids{{0}, {6}, {1}, {2}, {7}}));
  EXPECT_EQ(padded.bound, 12);
  EXPECT_EQ(assign(ids, {}).bound, 5);
}

TEST(Assign, SlotsAreABijectionOntoTheValidRows) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    auto pick = [&, n = 0u](uint32_t range) mutable {
      return draw({seed, 0, 0}, n++, 0)[0] % range;
    };
    int64_t tokens = pick(30), experts = 1 + pick(6), k = 1 + pick(experts);
    Ids ids(tokens, k, -1);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0, e = pick(experts); j < k; ++j)
        if (pick(5))
          ids(t, j) = (e + j) % experts;
    AssignInputs inputs;
    inputs.experts = experts;
    inputs.order = pick(2) ? Order::ChoiceMajor : Order::TokenMajor;
    if (pick(2))
      inputs.capacity = pick(6);
    Assignment a = assign(ids, inputs);
    std::set<int32_t> slots;
    int64_t used = 0, total = 0;
    for (int32_t slot : a.slots.data)
      if (slot >= 0) {
        slots.insert(slot);
        ++used;
      }
    Counts counts = count(ids, experts);
    for (int64_t e = 0; e < experts; ++e) {
      total += a.sizes[e];
      int64_t limit = inputs.capacity.value_or(counts[e]);
      EXPECT_EQ(a.sizes[e], std::min<int64_t>(counts[e], limit));
    }
    EXPECT_EQ(int64_t(slots.size()), used);
    EXPECT_EQ(used, total);
    if (used > 0) {
      EXPECT_EQ(*slots.rbegin(), used - 1);
    }
  }
}

TEST(Assign, ReversedIdsSkipDroppedPairs) {
  // Token 2's place equals the capacity: it must not reach the next group.
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = 2;
  inputs.paddedRows = 2;
  Assignment a = assign({{0}, {0}, {0}}, inputs);
  EXPECT_EQ(reversedIds(a, 2, false), (Ids{{0, 1}, {-1, -1}}));
  EXPECT_EQ(reversedIds(a, 2, true), (Ids{{0, 0}, {-1, -1}}));
}

TEST(Assign, NoExpertsRowsOrCapacity) {
  AssignInputs inputs;
  inputs.experts = 3;
  inputs.capacity = 0;
  inputs.paddedRows = 0;
  Assignment a = assign({{0, 1}, {2, 0}}, inputs);
  EXPECT_EQ(a.slots, Ids(2, 2, -1));
  EXPECT_EQ(a.sizes, (Counts{0, 0, 0}));
  EXPECT_EQ(a.bound, 0);
  EXPECT_EQ(assign(Ids(0, 2), inputs).slots.rows, 0);
}
