// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the emulated device counts of each kind of kernel: passes through the
// banks of shared memory beyond those of a perfect layout, and sectors of
// global memory beyond those that the bytes fill. counters.txt is the table.

#include "GPU/GateCase.h"
#include "GPU/GroupedCase.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using mlir::moe::GPUSchedule;
using mlir::moe::GPUStyle;

namespace {
struct Counted {
  const char *name;
  std::function<emulator::Counters()> run;
};
} // namespace

/// Rows, columns and steps of whole sectors; groups of any size.
static Counted grouped(const char *name, const GPUSchedule &schedule,
                       const std::function<void(GroupedCase &)> &set) {
  GroupedCase grouped;
  grouped.schedule = schedule;
  grouped.sizes = {70, 0, 133, 1};
  grouped.n = 192;
  grouped.k = 128;
  set(grouped);
  return {name, [grouped] {
            GroupedRun run(grouped);
            EmulatedOptions options;
            options.checks = emulator::Checks::all();
            Status status = run.run(options);
            EXPECT_TRUE(status.ok()) << status.message;
            return run.report.counters;
          }};
}

static Counted gate(const char *name, const GateCase &gate) {
  return {name, [gate] {
            emulator::Counters counters;
            expectReference(gate, {0}, {}, &counters);
            return counters;
          }};
}

static std::vector<Counted> countedKernels() {
  GPUSchedule cp{GPUStyle::CpAsync, 64, 64, 32, 3, 2, 2};
  GPUSchedule deep{GPUStyle::CpAsync, 64, 64, 64, 3, 2, 2};
  GPUSchedule decode{GPUStyle::CpAsync, 16, 128, 64, 4, 1, 4};
  GPUSchedule bulk{GPUStyle::Warpgroup, 128, 64, 64, 3, 2, 1};
  GPUSchedule single{GPUStyle::Simt, 64, 64, 16, 3, 2, 2};
  GPUSchedule singleDecode{GPUStyle::Simt, 16, 128, 32, 4, 1, 4};
  auto plain = [](GroupedCase &) {};
  auto transposed = [](GroupedCase &grouped) {
    grouped.layout = mlir::moe::WeightLayout::KN;
  };
  auto contraction = [](GroupedCase &grouped) { grouped.contraction = true; };
  auto packed = [](mlir::moe::WeightLayout layout) {
    return [layout](GroupedCase &grouped) {
      grouped.layout = layout;
      grouped.columnBlocks = 2;
    };
  };
  auto panels = packed(mlir::moe::WeightLayout::Panels);
  auto transposedPanels = packed(mlir::moe::WeightLayout::TransposedPanels);
  auto chains = [](GroupedCase &grouped) {
    grouped.layout = mlir::moe::WeightLayout::Panels;
    grouped.chains = 4;
  };
  auto gated = [](GroupedCase &grouped) { grouped.weights = 2; };
  return {
      grouped("cp-async", cp, plain),
      grouped("cp-async-deep", deep, plain),
      grouped("cp-async-kn", cp, transposed),
      grouped("cp-async-gated-gather", cp,
              [](GroupedCase &grouped) {
                grouped.weights = 2;
                grouped.gather = true;
              }),
      grouped("cp-async-f32", cp,
              [](GroupedCase &grouped) { grouped.f32Result = true; }),
      grouped("cp-async-contraction", cp, contraction),
      grouped("cp-async-panels", cp, panels),
      grouped("cp-async-transposed-panels", cp, transposedPanels),
      grouped("cp-async-chains", cp, chains),
      grouped("cp-async-epilogue", cp,
              [](GroupedCase &grouped) {
                grouped.bias = grouped.fullEpilogue = true;
              }),
      grouped("decode", decode, plain),
      grouped("warpgroup", bulk, plain),
      grouped("warpgroup-kn", bulk, transposed),
      grouped("warpgroup-gated", bulk, gated),
      grouped("warpgroup-contraction", bulk, contraction),
      grouped("simt", single, plain),
      grouped("simt-kn", single, transposed),
      grouped("simt-contraction", single, contraction),
      grouped("simt-panels", single, panels),
      grouped("simt-transposed-panels", single, transposedPanels),
      grouped("simt-decode", singleDecode, plain),
      gate("gate", {"", "normalize = max_sum_eps", 128, 8}),
      gate("gate-groups", {"",
                           "score = sigmoid, groups = 8, keep = 4, "
                           "group_score = sum_top2",
                           256, 8, "b"}),
      gate("gate-by-expert", {"", "expert_choice", 64, 64, "", 5}),
  };
}

/// Set to the table's path, the test writes it instead of comparing.
static const char *const writeVariable = "MOIRA_WRITE_COUNTERS";

TEST(CountersTest, areThoseOfTheTable) {
  std::ostringstream table;
  table << "# kernel bank-conflicts sectors-beyond-those-needed; written by "
           "moira-gpu-tests with "
        << writeVariable << "=FILE\n";
  for (const Counted &kernel : countedKernels()) {
    SCOPED_TRACE(kernel.name);
    emulator::Counters counters = kernel.run();
    EXPECT_GT(counters.sectors, 0u);
    table << kernel.name << ' ' << counters.bankConflicts << ' '
          << counters.sectors - counters.neededSectors << '\n';
  }
  if (const char *path = getenv(writeVariable)) {
    std::ofstream(path) << table.str();
    return;
  }
  std::ifstream file(MOIRA_COUNTERS_TABLE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(table.str(), committed.str());
}
