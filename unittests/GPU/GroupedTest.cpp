// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every kernel of moe.grouped_matmul on the emulated device: the answer, and no
// fault under any schedule.

#include "GPU/GroupedCase.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using mlir::moe::GPUSchedule;
using mlir::moe::GPUStyle;

/// Small tiles, so that small cases have many of them.
static GPUSchedule cpAsync(int64_t m, int64_t n, int64_t k, int64_t stages,
                           int64_t warpsM = 2, int64_t warpsN = 2) {
  return {GPUStyle::CpAsync, m, n, k, stages, warpsM, warpsN};
}

static GPUSchedule warpgroup(int64_t groups, int64_t n, int64_t stages) {
  return {GPUStyle::Warpgroup, 64 * groups, n, 64, stages, groups, 1};
}

/// Runs a case in turn and under two random schedules, with all checks.
static void check(const GroupedCase &grouped) {
  GroupedRun run(grouped);
  bool hasColumnCopies =
      grouped.layout == mlir::moe::WeightLayout::KN || grouped.contraction;
  for (uint64_t seed : {0, 7, 11}) {
    EmulatedOptions options;
    options.checks = emulator::Checks::all();
    options.seed = seed;
    Status status = run.run(options);
    ASSERT_TRUE(status.ok()) << status.message << '\n' << run.report.text();
    // Rows of an odd number of elements are copied one by one.
    if (grouped.k % 2 == 0 && (grouped.n % 2 == 0 || !hasColumnCopies))
      EXPECT_EQ(run.report.counters.bankConflicts, 0u);
    ASSERT_NO_FATAL_FAILURE(run.expectAnswer()) << "seed " << seed;
  }
}

//===----------------------------------------------------------------------===//
// Both styles
//===----------------------------------------------------------------------===//

class GroupedStyleTest : public testing::TestWithParam<GPUStyle> {
protected:
  GroupedCase base() const {
    GroupedCase grouped;
    grouped.schedule = GetParam() == GPUStyle::CpAsync ? cpAsync(64, 64, 32, 3)
                                                       : warpgroup(2, 64, 3);
    return grouped;
  }
};

INSTANTIATE_TEST_SUITE_P(Styles, GroupedStyleTest,
                         testing::Values(GPUStyle::CpAsync,
                                         GPUStyle::Warpgroup),
                         [](const auto &info) {
                           return info.param == GPUStyle::CpAsync ? "CpAsync"
                                                                  : "Warpgroup";
                         });

TEST_P(GroupedStyleTest, raggedRows) { check(base()); }

TEST_P(GroupedStyleTest, realNumbers) {
  GroupedCase grouped = base();
  grouped.integers = false;
  check(grouped);
}

TEST_P(GroupedStyleTest, half) {
  GroupedCase grouped = base();
  grouped.isHalf = true;
  grouped.integers = false;
  check(grouped);
}

TEST_P(GroupedStyleTest, noRowsAtAll) {
  GroupedCase grouped = base();
  grouped.sizes = {0, 0, 0};
  check(grouped);
}

TEST_P(GroupedStyleTest, oneRow) {
  GroupedCase grouped = base();
  grouped.sizes = {0, 1};
  check(grouped);
}

TEST_P(GroupedStyleTest, oneExpert) {
  GroupedCase grouped = base();
  grouped.sizes = {200};
  check(grouped);
}

TEST_P(GroupedStyleTest, allInOneGroup) {
  GroupedCase grouped = base();
  grouped.sizes = {0, 0, 210, 0};
  check(grouped);
}

TEST_P(GroupedStyleTest, exactTiles) {
  GroupedCase grouped = base();
  grouped.sizes = {128, 128};
  grouped.n = 128;
  grouped.k = 192;
  check(grouped);
}

TEST_P(GroupedStyleTest, padded) {
  GroupedCase grouped = base();
  grouped.sizes = {5, 0, 70};
  grouped.stride = 75;
  check(grouped);
}

TEST_P(GroupedStyleTest, transposedWeights) {
  GroupedCase grouped = base();
  grouped.layout = mlir::moe::WeightLayout::KN;
  check(grouped);
}

TEST_P(GroupedStyleTest, transposedWeightsReal) {
  GroupedCase grouped = base();
  grouped.layout = mlir::moe::WeightLayout::KN;
  grouped.integers = false;
  grouped.isHalf = true;
  check(grouped);
}

TEST_P(GroupedStyleTest, gatedWithEverything) {
  GroupedCase grouped = base();
  grouped.weights = 2;
  grouped.bias = true;
  grouped.fullEpilogue = true;
  check(grouped);
}

TEST_P(GroupedStyleTest, gatedWithEverythingReal) {
  GroupedCase grouped = base();
  grouped.weights = 2;
  grouped.bias = true;
  grouped.fullEpilogue = true;
  grouped.integers = false;
  check(grouped);
}

TEST_P(GroupedStyleTest, oddColumnsAndWideResult) {
  GroupedCase grouped = base();
  grouped.n = 67;
  grouped.bias = true;
  grouped.fullEpilogue = true;
  grouped.f32Result = true;
  check(grouped);
}

//===----------------------------------------------------------------------===//
// cp.async only
//===----------------------------------------------------------------------===//

TEST(GroupedCpAsyncTest, gather) {
  GroupedCase grouped;
  grouped.schedule = cpAsync(64, 64, 32, 3);
  grouped.gather = true;
  check(grouped);
}

TEST(GroupedCpAsyncTest, unalignedRows) {
  // Rows of multiples of 8, 4 and 2 bytes.
  for (int64_t k : {68, 70, 71, 1}) {
    GroupedCase grouped;
    grouped.schedule = cpAsync(64, 64, 32, 3);
    grouped.sizes = {3, 0, 70};
    grouped.k = k;
    check(grouped);
  }
}

TEST(GroupedCpAsyncTest, contraction) {
  GroupedCase grouped;
  grouped.schedule = cpAsync(64, 64, 32, 3);
  grouped.contraction = true;
  check(grouped);
  grouped.f32Result = true;
  grouped.integers = false;
  check(grouped);
}

TEST(GroupedCpAsyncTest, contractionOdd) {
  GroupedCase grouped;
  grouped.schedule = cpAsync(64, 64, 32, 3);
  grouped.contraction = true;
  grouped.n = 65;
  grouped.k = 71;
  check(grouped);
}

TEST(GroupedCpAsyncTest, transposedOdd) {
  GroupedCase grouped;
  grouped.schedule = cpAsync(64, 64, 32, 3);
  grouped.layout = mlir::moe::WeightLayout::KN;
  grouped.sizes = {3, 0, 70};
  grouped.n = 67;
  grouped.k = 35;
  check(grouped);
}

/// Tiles of 16 rows, for a few rows per expert.
TEST(GroupedCpAsyncTest, decode) {
  for (const GPUSchedule &schedule :
       {cpAsync(16, 128, 64, 4, 1, 4), cpAsync(16, 64, 64, 4, 1, 4),
        cpAsync(16, 64, 32, 3, 1, 2)}) {
    GroupedCase grouped;
    grouped.schedule = schedule;
    grouped.sizes = {1, 0, 16, 3, 17};
    grouped.k = 136;
    check(grouped);
    grouped.layout = mlir::moe::WeightLayout::KN;
    grouped.integers = false;
    check(grouped);
    if (schedule.tileN > 64)
      continue;
    grouped.layout = mlir::moe::WeightLayout::NK;
    grouped.gather = grouped.bias = grouped.fullEpilogue = true;
    grouped.weights = 2;
    check(grouped);
  }
}

/// Results of 16 bits leave as whole sectors, and nothing is read twice.
TEST_P(GroupedStyleTest, touchesNoSectorInVain) {
  for (bool hasWideResult : {false, true}) {
    GroupedCase grouped = base();
    grouped.sizes = {70, 0, 133, 1};
    grouped.n = 192;
    grouped.k = 128;
    grouped.f32Result = hasWideResult;
    GroupedRun run(grouped);
    EmulatedOptions options;
    options.checks = emulator::Checks::all();
    Status status = run.run(options);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(run.report.counters.sectors, run.report.counters.neededSectors);
    EXPECT_EQ(run.report.counters.bankConflicts, 0u);
  }
}

TEST(GroupedCpAsyncTest, schedules) {
  for (const GPUSchedule &schedule :
       {cpAsync(128, 128, 32, 4), cpAsync(128, 128, 64, 2),
        cpAsync(128, 128, 32, 3, 2, 4), cpAsync(128, 64, 64, 3, 4, 1),
        cpAsync(32, 128, 64, 2, 1, 4), cpAsync(64, 32, 32, 5, 2, 1)}) {
    GroupedCase grouped;
    grouped.schedule = schedule;
    grouped.k = 104;
    check(grouped);
  }
}

//===----------------------------------------------------------------------===//
// Warpgroups only
//===----------------------------------------------------------------------===//

TEST(GroupedWarpgroupTest, schedules) {
  for (const GPUSchedule &schedule :
       {warpgroup(2, 128, 4), warpgroup(1, 128, 2), warpgroup(2, 256, 3),
        warpgroup(2, 8, 2), warpgroup(1, 192, 4)}) {
    GroupedCase grouped;
    grouped.schedule = schedule;
    grouped.k = 328;
    check(grouped);
  }
}

TEST(GroupedWarpgroupTest, transposedWide) {
  GroupedCase grouped;
  grouped.schedule = warpgroup(2, 128, 3);
  grouped.layout = mlir::moe::WeightLayout::KN;
  grouped.weights = 2;
  grouped.fullEpilogue = true;
  grouped.n = 200;
  grouped.k = 136;
  check(grouped);
}
