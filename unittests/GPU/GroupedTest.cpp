// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every kernel of moe.grouped_matmul on the emulated device: the answer, and no
// fault under any schedule.

#include "GPU/GroupedCase.h"

#include <gtest/gtest.h>
#include <numeric>

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

static GPUSchedule simt(int64_t m, int64_t n, int64_t k, int64_t stages,
                        int64_t warpsM = 2, int64_t warpsN = 2) {
  return {GPUStyle::Simt, m, n, k, stages, warpsM, warpsN};
}

/// Runs a case in turn and under two random schedules, with all checks.
static void check(const GroupedCase &grouped) {
  GroupedRun run(grouped);
  // Rows of an odd number of 16-bit elements are copied one by one.
  bool hasColumnCopies =
      grouped.contraction || grouped.layout == mlir::moe::WeightLayout::KN;
  bool isOdd =
      grouped.k / grouped.chains % 2 || (hasColumnCopies && grouped.n % 2);
  // Lanes that clear part of a tail are counted in the order in which they
  // come, not in that of the warp.
  bool clearsTails =
      grouped.contraction && grouped.schedule.style == GPUStyle::Warpgroup;
  for (uint64_t seed : {0, 7, 11}) {
    EmulatedOptions options;
    options.checks = emulator::Checks::all();
    options.seed = seed;
    Status status = run.run(options);
    ASSERT_TRUE(status.ok()) << status.message << '\n' << run.report.text();
    if (!clearsTails && (grouped.isSingle() || !isOdd))
      EXPECT_EQ(run.report.counters.bankConflicts, 0u);
    ASSERT_NO_FATAL_FAILURE(run.expectAnswer()) << "seed " << seed;
  }
}

//===----------------------------------------------------------------------===//
// All styles
//===----------------------------------------------------------------------===//

class GroupedStyleTest : public testing::TestWithParam<GPUStyle> {
protected:
  GroupedCase base() const {
    GroupedCase grouped;
    switch (GetParam()) {
    case GPUStyle::CpAsync:
      grouped.schedule = cpAsync(64, 64, 32, 3);
      break;
    case GPUStyle::Warpgroup:
      grouped.schedule = warpgroup(2, 64, 3);
      break;
    case GPUStyle::Simt:
      grouped.schedule = simt(64, 64, 16, 3);
      break;
    }
    return grouped;
  }
};

static std::string nameOf(const testing::TestParamInfo<GPUStyle> &info) {
  switch (info.param) {
  case GPUStyle::CpAsync:
    return "CpAsync";
  case GPUStyle::Warpgroup:
    return "Warpgroup";
  case GPUStyle::Simt:
    return "Simt";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Styles, GroupedStyleTest,
                         testing::Values(GPUStyle::CpAsync, GPUStyle::Warpgroup,
                                         GPUStyle::Simt),
                         nameOf);

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

/// Groups of no row, one, a tile and parts of one.
TEST_P(GroupedStyleTest, contraction) {
  GroupedCase grouped = base();
  grouped.contraction = true;
  check(grouped);
  grouped.sizes = {64, 0, 1, 129};
  grouped.f32Result = true;
  grouped.integers = false;
  check(grouped);
}

TEST_P(GroupedStyleTest, contractionOfOneGroup) {
  GroupedCase grouped = base();
  grouped.contraction = true;
  grouped.sizes = {0, 0, 130, 0};
  grouped.n = 72;
  check(grouped);
}

TEST_P(GroupedStyleTest, contractionOfNoRows) {
  GroupedCase grouped = base();
  grouped.contraction = true;
  grouped.sizes = {0, 0};
  grouped.n = 72;
  check(grouped);
}

TEST_P(GroupedStyleTest, contractionPadded) {
  GroupedCase grouped = base();
  grouped.contraction = true;
  grouped.sizes = {5, 0, 70};
  grouped.stride = 75;
  grouped.n = 72;
  check(grouped);
}

TEST_P(GroupedStyleTest, twoResults) {
  GroupedCase grouped = base();
  grouped.weights = 2;
  grouped.fullEpilogue = grouped.hasTwoResults = true;
  check(grouped);
  grouped.n = 67;
  check(grouped);
}

//===----------------------------------------------------------------------===//
// Styles that copy by all threads
//===----------------------------------------------------------------------===//

class GroupedStagedTest : public GroupedStyleTest {};

INSTANTIATE_TEST_SUITE_P(Styles, GroupedStagedTest,
                         testing::Values(GPUStyle::CpAsync, GPUStyle::Simt),
                         nameOf);

TEST_P(GroupedStagedTest, gather) {
  GroupedCase grouped = base();
  grouped.gather = true;
  check(grouped);
}

TEST_P(GroupedStagedTest, unalignedRows) {
  // Rows of multiples of 8, 4 and 2 bytes.
  for (int64_t k : {68, 70, 71, 1}) {
    GroupedCase grouped = base();
    grouped.sizes = {3, 0, 70};
    grouped.k = k;
    check(grouped);
  }
}

TEST_P(GroupedStagedTest, contractionOdd) {
  GroupedCase grouped = base();
  grouped.contraction = true;
  grouped.n = 65;
  grouped.k = 71;
  check(grouped);
}

TEST_P(GroupedStagedTest, transposedOdd) {
  GroupedCase grouped = base();
  grouped.layout = mlir::moe::WeightLayout::KN;
  grouped.sizes = {3, 0, 70};
  grouped.n = 67;
  grouped.k = 35;
  check(grouped);
}

TEST_P(GroupedStagedTest, chained) {
  GroupedCase grouped = base();
  grouped.chained = true;
  grouped.weights = 2;
  grouped.bias = grouped.fullEpilogue = true;
  check(grouped);
  grouped.fullEpilogue = grouped.integers = false;
  grouped.layout = mlir::moe::WeightLayout::KN;
  grouped.weights = 3;
  grouped.k = 40;
  check(grouped);
}

namespace {
struct Packed {
  int64_t n, k, columnBlocks, chains, width;
};
} // namespace

/// Panels as they are, forwards and backwards: of no block, of blocks of
/// columns whose sizes are no multiple of a panel, a piece or two, and of
/// blocks that are summed as chains.
static const Packed packed[] = {
    {136, 72, 1, 1, 32}, {136, 72, 4, 1, 16}, {75, 40, 3, 1, 16},
    {72, 136, 1, 4, 32}, {67, 78, 1, 6, 16},  {72, 75, 1, 3, 64},
    {200, 40, 2, 1, 64},
};

static void checkPacked(GroupedCase grouped, const Packed &form) {
  grouped.sizes = {0, 70, 1};
  grouped.n = form.n;
  grouped.k = form.k;
  grouped.columnBlocks = form.columnBlocks;
  grouped.chains = form.chains;
  grouped.panelWidth = form.width;
  grouped.bias = true;
  // Sums of real numbers differ in their last bits where the order does.
  grouped.integers = false;
  check(grouped);
}

TEST_P(GroupedStagedTest, panels) {
  for (const Packed &form : packed) {
    SCOPED_TRACE(form.n);
    GroupedCase grouped = base();
    grouped.layout = mlir::moe::WeightLayout::Panels;
    checkPacked(grouped, form);
  }
}

TEST_P(GroupedStagedTest, transposedPanels) {
  for (const Packed &form : packed) {
    SCOPED_TRACE(form.n);
    GroupedCase grouped = base();
    grouped.layout = mlir::moe::WeightLayout::TransposedPanels;
    checkPacked(grouped, form);
  }
}

/// Blocks of k are chains of row-major weights too.
TEST_P(GroupedStagedTest, rowMajorChains) {
  GroupedCase grouped = base();
  checkPacked(grouped, {72, 120, 1, 8, 0});
  grouped.layout = mlir::moe::WeightLayout::KN;
  checkPacked(grouped, {72, 60, 1, 5, 0});
}

TEST_P(GroupedStagedTest, gatedPanelsWithEverything) {
  GroupedCase grouped = base();
  grouped.layout = mlir::moe::WeightLayout::Panels;
  grouped.weights = 2;
  grouped.n = 120;
  grouped.columnBlocks = 5;
  grouped.gather = grouped.bias = grouped.fullEpilogue = true;
  grouped.hasTwoResults = true;
  check(grouped);
}

/// As many rows as a decoding step has: 1 to 16 in a group.
TEST_P(GroupedStagedTest, decodeRows) {
  GroupedCase grouped;
  grouped.schedule = GetParam() == GPUStyle::Simt
                         ? simt(16, 64, 32, 4, 1, 4)
                         : cpAsync(16, 64, 64, 4, 1, 4);
  grouped.sizes.resize(16);
  std::iota(grouped.sizes.begin(), grouped.sizes.end(), 1);
  grouped.n = 72;
  grouped.k = 40;
  grouped.integers = false;
  check(grouped);
}

//===----------------------------------------------------------------------===//
// cp.async only
//===----------------------------------------------------------------------===//

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

TEST(GroupedSimtTest, schedules) {
  for (const GPUSchedule &schedule :
       {simt(128, 128, 16, 4, 2, 4), simt(32, 64, 32, 3, 1, 4),
        simt(64, 32, 16, 2, 2, 1), simt(16, 128, 32, 4, 1, 4)}) {
    GroupedCase grouped;
    grouped.schedule = schedule;
    grouped.sizes = {3, 0, 70};
    grouped.k = 52;
    grouped.integers = false;
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

TEST(GroupedWarpgroupTest, contractionSchedules) {
  for (const GPUSchedule &schedule :
       {warpgroup(2, 256, 3), warpgroup(1, 64, 2), warpgroup(1, 128, 4)}) {
    GroupedCase grouped;
    grouped.schedule = schedule;
    grouped.contraction = true;
    grouped.sizes = {3, 0, 300};
    grouped.n = 72;
    grouped.k = 264;
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
