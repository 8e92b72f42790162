// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Formulas of FasterMoE and Flex with numbers worked out by hand.

#include "cost/Formulas.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::runtime;

TEST(Formulas, RooflineOfFasterMoE) {
  FasterMoeModel model; // H = 1024, alpha = 2, 11.5e12, 6.25e9, f32
  std::vector<double> even(4, 2048);
  EXPECT_NEAR(model.compute(even), 1.4939e-3, 5e-8);
  EXPECT_NEAR(model.exchange(even), 1.3422e-3, 5e-8);
  EXPECT_NEAR(model.synchronous(even), 9.850e-3, 5e-7);
  double r = model.computeToCommunication(even);
  EXPECT_NEAR(r, 0.835, 5e-4);
  double got = model.throughput(even, model.synchronous(even));
  EXPECT_NEAR(got / model.flops, 0.455, 5e-4);
  // Balanced and synchronous: exactly on the ceiling.
  EXPECT_NEAR(got, model.synchronousCeiling(r), 1e-3 * got);
  EXPECT_NEAR(model.ceiling(r) / model.flops, 0.835, 5e-4);
  EXPECT_EQ(model.ceiling(2), model.flops);

  std::vector<double> hot = {8192, 0, 0, 0};
  EXPECT_NEAR(model.synchronous(hot), 39.402e-3, 5e-7);
  EXPECT_NEAR(model.throughput(hot, model.synchronous(hot)) / model.flops,
              0.114, 5e-4);
  EXPECT_EQ(model.compute({}), 0);
}

TEST(Formulas, ShadowingOfFasterMoE) {
  FasterMoeModel model;
  std::vector<double> even(4, 2048);
  EXPECT_NEAR(model.imbalanced({0, 0, 8192, 0}), 39.402e-3, 5e-7);
  EXPECT_NEAR(model.shadowed(1, even), 9.850e-3, 5e-7);
  EXPECT_NEAR(model.shadowed(2, even), 15.219e-3, 5e-7);
  // (9): 8192 rows are more than alpha * H.
  EXPECT_TRUE(model.pays(1, 8192, 2048));
  // (10) where (9) does not hold agrees with (7) > (8).
  for (double before : {64.0, 500.0, 1500.0, 2000.0})
    for (double after : {16.0, 400.0, 1000.0})
      if (after < before)
        EXPECT_EQ(model.pays(1, before, after),
                  model.imbalanced({before}) > model.shadowed(1, {after}))
            << before << " " << after;
}

TEST(Formulas, TimelineOfFasterMoE) {
  std::vector<double> computed, returned;
  EXPECT_EQ(scheduleTimeline({1, 3, 3, 2}, {4, 4, 4, 4}, {1, 3, 3, 2},
                             &computed, &returned),
            19);
  EXPECT_EQ(computed, (std::vector<double>{5, 9, 13, 17}));
  EXPECT_EQ(returned, (std::vector<double>{10, 13, 16, 19}));
  EXPECT_EQ(scheduleTimeline({9}, {16}, {9}), 34); // one chunk gains nothing
  EXPECT_EQ(scheduleTimeline({}, {}, {}), 0);
}

TEST(Formulas, LinksOfATree) {
  // Two nodes of two; the card of a node carries what its ranks send away.
  Topology topology = *Topology::parse(R"({"nodes": 2, "ranks_per_node": 2,
    "intra": {"bandwidth": 100}, "inter": {"bandwidth": 10}})");
  std::vector<int64_t> all(16, 1);
  // Each node sends 2 * 2 rows away over one card: 4 rows of 5 bytes at 10.
  EXPECT_DOUBLE_EQ(exchangeBound(topology, all, 5), 2);
  std::vector<int64_t> inside(16, 0);
  inside[1] = 40; // rank 0 to 1
  EXPECT_DOUBLE_EQ(exchangeBound(topology, inside, 5), 2);
  inside[0] = 1000; // to itself: free
  EXPECT_DOUBLE_EQ(exchangeBound(topology, inside, 5), 2);
}

/// Flex/Tutel, W = 8, E = 1, D = 2048, H = 8192, 2 bytes, both ways: MiB per
/// rank by r, from which the best r follows.
TEST(Formulas, VolumesOfFlex) {
  const int copies[] = {0, 1, 2, 4, 8};
  const struct {
    double capacity;
    int mib[5];
  } table[] = {{256, {112, 115, 55, 30, 28}},
               {512, {112, 119, 62, 44, 56}},
               {2048, {112, 140, 104, 128, 224}},
               {4096, {112, 168, 160, 240, 448}}};
  for (const auto &row : table)
    for (int i = 0; i < 5; ++i) {
      FlexVolumes v = flexVolumes(8, 1, copies[i], row.capacity, 2048, 2048,
                                  2.0 * 2048 * 8192);
      double mib = 2 * 2 * (v.rows + v.weights) / (1 << 20);
      EXPECT_NEAR(mib, row.mib[i], 1.01) << row.capacity << " " << copies[i];
    }
}

TEST(Formulas, Roofline) {
  EXPECT_EQ(roofline(100, 10, 10, 10), 10);
  EXPECT_EQ(roofline(10, 100, 10, 10), 10);
}
