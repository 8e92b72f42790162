// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What there is to choose from, and the buckets of loads.

#include "Selection/Games.h"

#include <cmath>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

TEST(Candidates, OfOneRAloneHaveShadows) {
  SelectionSpace space;
  for (int copies : {0, 1, 2, 4})
    space.variants.push_back({concat("r", copies), copies, 0, "exact"});
  space.maxShadows = 2;
  uint64_t before = space.hash();
  space.shadowCopies = 4;
  EXPECT_NE(space.hash(), before);
  std::set<int> with;
  for (const Candidate &candidate : space.candidates())
    if (candidate.plan.shadows > 0)
      with.insert(candidate.plan.copies);
  EXPECT_EQ(with, std::set<int>{4});
}

TEST(Candidates, AreListedOnce) {
  Small small;
  std::vector<Candidate> list = small.space.candidates();
  // r = 0: one. r = 1: two variants of 4 degrees by 2 exchanges, groups: each
  // with 0, 1 and 2 shadows.
  EXPECT_EQ(list.size(), 1 + 3 * (2 * 4 * 2 + 1));
  EXPECT_EQ(list[0].describe(), "r=0");
  EXPECT_EQ(list.back().describe(), "r=1 degree=8 hierarchical shadow=2");
  const int32_t table[] = {0};
  moira_plan plan = list.back().toPlan(table, 6);
  EXPECT_EQ(plan.variant, list.back().variant);
  EXPECT_EQ(plan.degree, 8);
  EXPECT_EQ(plan.exchange, 1);
  EXPECT_EQ(plan.slots, 6);
  EXPECT_EQ(plan.slot_table, table);
  EXPECT_EQ(list[0].toPlan(nullptr, 6).slots, 0);
  SelectionSpace other = small.space;
  EXPECT_EQ(other.hash(), small.space.hash());
  other.variants[0].numerics = "x";
  EXPECT_NE(other.hash(), small.space.hash());
  other = small.space;
  other.degrees = {1, 2, 4};
  EXPECT_NE(other.hash(), small.space.hash());
}

TEST(Buckets, Logarithms) {
  EXPECT_EQ(quarterLog2(0), 0);
  EXPECT_EQ(quarterLog2(std::nan("")), 0);
  EXPECT_EQ(quarterLog2(1), 0);
  for (double x = 1; x < 1e12; x *= 1.01)
    EXPECT_EQ(quarterLog2(x), int(std::floor(4 * std::log2(x) + 1e-12))) << x;
}

/// More kinds of loads than are kept: the oldest go, nothing grows.
TEST(Buckets, MakeRoom) {
  History history(3);
  for (int64_t step = 0; step < 5000; ++step) {
    BucketKey key{int32_t(step % 1000), int32_t(step % 7), 0};
    Bucket &bucket = history.find(key, step);
    EXPECT_TRUE(bucket.key == key);
    EXPECT_EQ(history.peek(key), &bucket);
    EXPECT_EQ(bucket.visits, 1);
  }
  EXPECT_EQ(history.buckets.size(), size_t(History::maxBuckets));
  EXPECT_EQ(history.peek({1, 1, 1}), nullptr);
}
