// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a calibrated virtual clock charges for the parts of a step, in whole
// seconds.

#include "session/ComputeCharges.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::runtime;

namespace {
/// Two layers, 3 and 5, as a step on one rank sees them.
struct ComputeChargesTest : testing::Test {
  ComputeChargesTest() {
    Calibration costs;
    costs.forward = {100, {1, 2}, {10, 20}}; // 10 for each row
    costs.backward = {1000, {1, 2}, {20, 40}};
    costs.gate = {1, 1};
    costs.dispatch = {2, 1};
    costs.combine = {3, 1};
    clock = std::make_unique<VirtualClock>(
        std::make_shared<VirtualNetwork>(Topology::uniform(1, 1, 0)),
        std::make_shared<const Calibration>(costs));
    recorder.setClock(clock.get());
    charges.setClock(clock.get());
  }
  void begin(int64_t step, int64_t forwardStep = -1) {
    const moira_plan plans[2] = {};
    charges.begin(step, forwardStep);
    recorder.begin(step, 0, 0, 0, {3, 5}, plans);
  }
  const StepRow &end() { return recorder.end(MOIRA_OK); }
  void enter(int64_t layer, int64_t part) {
    EXPECT_TRUE(recorder.enter(layer, part));
    charges.enter(layer, part);
  }
  void route(int64_t layer, std::vector<int32_t> rows) {
    charges.routed(layer, int64_t(rows.size()), rows.data());
  }
  /// A forward step of layer 3 whose rows stay where they are.
  void ownStep(int64_t step, std::vector<int32_t> rows) {
    begin(step);
    route(3, std::move(rows));
    enter(3, MOIRA_PART_DISPATCH);
    enter(3, MOIRA_PART_EXPERT);
    enter(3, MOIRA_PART_COMBINE);
  }

  std::unique_ptr<VirtualClock> clock;
  StepRecorder recorder;
  ComputeCharges charges{recorder};
};
} // namespace

TEST_F(ComputeChargesTest, EachPartOnce) {
  begin(0);
  enter(3, MOIRA_PART_GATE);
  route(3, {4, 0, 2});
  enter(3, MOIRA_PART_DISPATCH);
  enter(3, MOIRA_PART_EXCHANGE);
  enter(3, MOIRA_PART_DISPATCH);
  const int32_t first[2] = {2, 0}, second[2] = {1, 3};
  charges.product(3, 1, first, 2);
  charges.product(3, 1, second, 2);
  enter(3, MOIRA_PART_COMBINE);
  enter(3, MOIRA_PART_OTHER);
  enter(3, MOIRA_PART_COMBINE);
  const StepRow &row = end();
  EXPECT_EQ(row.total, 7 + 8 + (100 + 20) + (100 + 40) + 9);
  const PartSeconds &parts = row.layers[0].seconds;
  EXPECT_EQ(parts[MOIRA_PART_GATE], 7);
  EXPECT_EQ(parts[MOIRA_PART_DISPATCH], 8);
  EXPECT_EQ(parts[MOIRA_PART_EXPERT], 260);
  EXPECT_EQ(parts[MOIRA_PART_COMBINE], 9);
  EXPECT_EQ(parts[MOIRA_PART_EXCHANGE], 0);
}

/// With r copies a group has a part of the hidden dimension, and r results of
/// each row come back.
TEST_F(ComputeChargesTest, CopiesShareTheProduct) {
  begin(0);
  route(3, {6});
  const int32_t groups[1] = {8};
  charges.product(3, 2, groups, 1);
  enter(3, MOIRA_PART_COMBINE);
  const StepRow &row = end();
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_EXPERT], 100 + 80 / 2);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_COMBINE], 3 + 2 * 6);
}

TEST_F(ComputeChargesTest, WithoutExchangesOwnRowsCount) {
  ownStep(0, {4, 0, 2});
  EXPECT_EQ(end().layers[0].seconds[MOIRA_PART_EXPERT], 100 + 60);
}

TEST_F(ComputeChargesTest, LayersAreApart) {
  begin(0);
  route(3, {1});
  route(5, {2});
  enter(3, MOIRA_PART_COMBINE);
  enter(5, MOIRA_PART_COMBINE);
  const StepRow &row = end();
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_EXPERT], 110);
  EXPECT_EQ(row.layers[1].seconds[MOIRA_PART_EXPERT], 120);
}

TEST_F(ComputeChargesTest, AWayBackHasTheRowsOfItsStep) {
  ownStep(7, {1});
  end();
  ownStep(8, {5});
  end();
  begin(9, 7);
  enter(3, MOIRA_PART_DISPATCH);
  charges.reduce(3); // gradients leave before combine
  enter(3, MOIRA_PART_COMBINE);
  const StepRow &row = end();
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_GATE], 0);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_DISPATCH], 3);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_EXPERT], 1020);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_COMBINE], 4);
}

/// The gradient of a combine's weights comes before the products, which are
/// charged where their results leave, once.
TEST_F(ComputeChargesTest, AWayBackReadsWhatWasCombinedBeforeItsProducts) {
  const int32_t groups[1] = {6};
  begin(0);
  route(3, {6});
  charges.product(3, 1, groups, 1);
  enter(3, MOIRA_PART_COMBINE);
  end();
  begin(1, 0);
  enter(3, MOIRA_PART_COMBINE);
  enter(3, MOIRA_PART_DISPATCH);
  charges.product(3, 1, groups, 1);
  enter(3, MOIRA_PART_COMBINE);
  const StepRow &row = end();
  EXPECT_EQ(row.total, 8 + (1000 + 120) + 9);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_EXPERT], 1120);
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_COMBINE], 9);
}

TEST_F(ComputeChargesTest, AStepForgetsTheOneInItsPlace) {
  ownStep(0, {9, 9});
  end();
  begin(64);
  enter(3, MOIRA_PART_DISPATCH);
  EXPECT_EQ(end().layers[0].seconds[MOIRA_PART_DISPATCH], 2);
}

TEST_F(ComputeChargesTest, ClocksOfTheProcessorAreLeftAlone) {
  VirtualClock other(clock->network, 0.0);
  charges.setClock(&other);
  EXPECT_FALSE(charges.active());
  ownStep(0, {4});
  EXPECT_EQ(end().total, 0);
  EXPECT_EQ(other.seconds(), 0);
}
