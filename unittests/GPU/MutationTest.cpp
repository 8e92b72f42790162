// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels that lack one synchronisation: the checks must find each of them.

#include "GPU/GroupedCase.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using emulator::FaultKind;
using mlir::moe::GPUMutation;
using mlir::moe::GPUSchedule;
using mlir::moe::GPUStyle;

namespace {
struct Mutant {
  const char *name;
  GPUStyle style;
  GPUMutation mutation;
  FaultKind kind;
  /// What the first fault of that kind must say.
  const char *text;
};

void PrintTo(const Mutant &mutant, std::ostream *stream) {
  *stream << mutant.name;
}
} // namespace

static const Mutant mutants[] = {
    {"TileBarrier", GPUStyle::CpAsync, GPUMutation::TileBarrier,
     FaultKind::Race, "cp.async of thread"},
    {"LoopBarrier", GPUStyle::CpAsync, GPUMutation::LoopBarrier,
     FaultKind::Race, "cp.async of thread"},
    {"LaxWait", GPUStyle::CpAsync, GPUMutation::LaxWait, FaultKind::Race,
     "cp.async of thread"},
    {"FullWait", GPUStyle::Warpgroup, GPUMutation::FullWait, FaultKind::Race,
     "wgmma of warpgroup"},
    {"EmptyWait", GPUStyle::Warpgroup, GPUMutation::EmptyWait, FaultKind::Sync,
     "arrivals in this phase"},
    {"EarlyRelease", GPUStyle::Warpgroup, GPUMutation::EarlyRelease,
     FaultKind::Race, "wgmma of warpgroup"},
    {"LastWait", GPUStyle::Warpgroup, GPUMutation::LastWait, FaultKind::Sync,
     "uses accumulators"},
    {"WgmmaFence", GPUStyle::Warpgroup, GPUMutation::WgmmaFence,
     FaultKind::Sync, "expected wgmma.fence"},
    {"InitFence", GPUStyle::Warpgroup, GPUMutation::InitFence, FaultKind::Sync,
     "expected fence.mbarrier.init"},
    {"InitBarrier", GPUStyle::Warpgroup, GPUMutation::InitBarrier,
     FaultKind::Race, "nvvm.mbarrier.init"},
};

class MutationTest : public testing::TestWithParam<Mutant> {};

INSTANTIATE_TEST_SUITE_P(All, MutationTest, testing::ValuesIn(mutants),
                         [](const auto &info) { return info.param.name; });

TEST_P(MutationTest, isFound) {
  const Mutant &mutant = GetParam();
  GroupedCase grouped;
  grouped.sizes = {70, 0, 200};
  grouped.k = 400;
  grouped.mutation = mutant.mutation;
  grouped.schedule =
      mutant.style == GPUStyle::CpAsync
          ? GPUSchedule{GPUStyle::CpAsync, 64, 64, 32, 3, 2, 2}
          : GPUSchedule{GPUStyle::Warpgroup, 128, 64, 64, 3, 2, 1};
  GroupedRun run(grouped);
  bool named = false;
  std::string all;
  for (uint64_t seed : {0, 7}) {
    EmulatedOptions options;
    options.checks = emulator::Checks::all();
    options.checks.uninit = false;
    options.seed = seed;
    Status status = run.run(options, /*blocks=*/2);
    EXPECT_FALSE(status.ok()) << "seed " << seed;
    for (const emulator::Fault &fault : run.report.faults)
      named |= fault.kind == mutant.kind &&
               fault.text.find(mutant.text) != std::string::npos &&
               fault.text.find("Kernel.cpp:") != std::string::npos;
    all += run.report.text();
  }
  EXPECT_TRUE(named) << all;
}

TEST(MutationTableTest, namesAllOfThem) {
  EXPECT_EQ(std::size(mutants) + 1, size_t(mlir::moe::kGPUMutations));
}
