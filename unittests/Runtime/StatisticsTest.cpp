// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "statistics/Statistics.h"
#include "Runtime/TestProgram.h"

#include <numeric>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static StepRow row(int64_t step) {
  StepRow row;
  row.step = step;
  return row;
}

static std::vector<int64_t> steps(const RingSink &ring) {
  std::vector<int64_t> result;
  for (const StepRow &row : ring.snapshot())
    result.push_back(row.step);
  return result;
}

TEST(RingSink, KeepsTheLastRowsInOrder) {
  RingSink ring(3);
  EXPECT_EQ(steps(ring), (std::vector<int64_t>{}));
  ring.record(row(0));
  ring.record(row(1));
  EXPECT_EQ(steps(ring), (std::vector<int64_t>{0, 1}));
  for (int64_t i = 2; i < 10; ++i) {
    ring.record(row(i));
    EXPECT_EQ(steps(ring), (std::vector<int64_t>{i - 2, i - 1, i}));
  }
}

TEST(RingSink, MayKeepNone) {
  RingSink none(0);
  none.record(row(1));
  EXPECT_TRUE(none.snapshot().empty());
}

TEST(RingSink, IsReadWhileItIsWritten) {
  RingSink ring(8);
  std::thread writer([&] {
    for (int64_t i = 0; i < 2000; ++i)
      ring.record(row(i));
  });
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> seen = steps(ring);
    for (size_t j = 1; j < seen.size(); ++j)
      ASSERT_EQ(seen[j], seen[j - 1] + 1);
  }
  writer.join();
}

namespace {
struct StepRecorderTest : testing::Test {
  const std::vector<int64_t> layers = {3, 5};
  const moira_plan plans[2] = {{1, 2, 0, 0, nullptr}, {1, 4, 1, 0, nullptr}};
  StepRecorder recorder;

  void SetUp() override { recorder.begin(7, 0, 1, 20, layers, plans); }
};
} // namespace

TEST_F(StepRecorderTest, SaysWhatRan) {
  const StepRow &row = recorder.end(MOIRA_FAILED);
  EXPECT_EQ(row.step, 7);
  EXPECT_EQ(row.variant, 1);
  EXPECT_EQ(row.rows, 20);
  EXPECT_EQ(row.error, MOIRA_FAILED);
  ASSERT_EQ(row.layers.size(), 2u);
  EXPECT_EQ(row.layers[0].layer, 3);
  EXPECT_EQ(row.layers[0].plan.degree, 2);
  EXPECT_EQ(row.layers[1].plan.exchange, 1);
}

TEST_F(StepRecorderTest, TimesAddUp) {
  EXPECT_TRUE(recorder.enter(3, MOIRA_PART_GATE));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(recorder.enter(5, MOIRA_PART_EXPERT));
  EXPECT_TRUE(recorder.enter(-1, MOIRA_PART_OTHER));
  const StepRow &row = recorder.end(MOIRA_OK);
  auto sum = [](const PartSeconds &seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  EXPECT_NEAR(row.total,
              sum(row.seconds) + sum(row.layers[0].seconds) +
                  sum(row.layers[1].seconds),
              1e-9);
  EXPECT_GE(row.layers[0].seconds[MOIRA_PART_GATE], 0.002);
  EXPECT_GE(row.total, 0.002);
}

TEST_F(StepRecorderTest, UnknownPlacesAreRefused) {
  EXPECT_FALSE(recorder.enter(4, MOIRA_PART_GATE));
  EXPECT_FALSE(recorder.enter(-2, MOIRA_PART_GATE));
  EXPECT_FALSE(recorder.enter(3, MOIRA_PART_COUNT));
  EXPECT_FALSE(recorder.enter(3, -1));
  int32_t none = 0;
  EXPECT_FALSE(recorder.loads(4, 1, &none, &none));
  EXPECT_FALSE(recorder.loads(-1, 1, &none, &none));
  EXPECT_FALSE(recorder.loads(3, -1, &none, &none));
}

TEST_F(StepRecorderTest, CountsLoadsAndDrops) {
  const int32_t counts[] = {5, 0, 7}, sizes[] = {4, 0, 4};
  EXPECT_TRUE(recorder.loads(3, 3, counts, sizes));
  EXPECT_TRUE(recorder.loads(3, 3, counts, sizes));
  EXPECT_FALSE(recorder.loads(3, 2, counts, sizes));
  const StepRow &row = recorder.end(MOIRA_OK);
  EXPECT_EQ(row.layers[0].counts, (std::vector<int32_t>{10, 0, 14}));
  EXPECT_EQ(row.layers[0].sizes, (std::vector<int32_t>{8, 0, 8}));
  EXPECT_EQ(row.layers[0].routed, 24);
  EXPECT_EQ(row.layers[0].dropped, 8);
  EXPECT_TRUE(row.layers[1].counts.empty());
}

TEST_F(StepRecorderTest, StartsAfreshEachStep) {
  const int32_t counts[] = {1};
  EXPECT_TRUE(recorder.loads(3, 1, counts, counts));
  EXPECT_TRUE(recorder.enter(3, MOIRA_PART_GATE));
  (void)recorder.end(MOIRA_FAILED);
  recorder.begin(8, 0, 0, 1, {9}, plans);
  const StepRow &row = recorder.end(MOIRA_OK);
  EXPECT_EQ(row.error, MOIRA_OK);
  ASSERT_EQ(row.layers.size(), 1u);
  EXPECT_EQ(row.layers[0].layer, 9);
  EXPECT_TRUE(row.layers[0].counts.empty());
  EXPECT_EQ(row.layers[0].seconds[MOIRA_PART_GATE], 0);
}
