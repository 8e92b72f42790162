// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every synchronisation of every kernel that has one removed, and every wait
// for all but n groups made one for n + 1, one at a time: the emulated device
// must find it, or the results must differ, as removals.txt says. What survives
// is equivalent, and the table says why.

#include "GPU/GateCase.h"
#include "GPU/GroupedCase.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using mlir::moe::GPUSchedule;
using mlir::moe::GPUStyle;
namespace NVVM = mlir::NVVM;
namespace moe = mlir::moe;

namespace {
struct Subject {
  const char *name;
  /// Runs the kernel as `edit` leaves it, with failed expectations where it is
  /// not as it should be.
  std::function<void(const Edit &edit)> run;
};
} // namespace

static std::function<void(const Edit &)> gate(GateCase gate) {
  return [gate](const Edit &edit) { expectReference(gate, {0, 9}, edit); };
}

static std::function<void(const Edit &)> grouped(GroupedCase grouped) {
  return [grouped](const Edit &edit) {
    GroupedCase edited = grouped;
    edited.edit = edit;
    GroupedRun run(edited);
    for (uint64_t seed : {0, 7}) {
      EmulatedOptions options;
      options.checks = emulator::Checks::all();
      options.seed = seed;
      Status status = run.run(options, /*blocks=*/2);
      ASSERT_TRUE(status.ok()) << status.message;
      run.expectAnswer();
    }
  };
}

/// Several tiles per block, more steps than stages.
static GroupedCase rows(GPUStyle style) {
  GroupedCase grouped;
  grouped.sizes = {70, 0, 200};
  grouped.n = 72;
  grouped.k = 400;
  grouped.schedule =
      style == GPUStyle::CpAsync
          ? GPUSchedule{GPUStyle::CpAsync, 64, 64, 32, 3, 2, 2}
          : GPUSchedule{GPUStyle::Warpgroup, 128, 64, 64, 3, 2, 1};
  return grouped;
}

static GroupedCase transposed(GPUStyle style) {
  GroupedCase grouped = rows(style);
  grouped.layout = mlir::moe::WeightLayout::KN;
  return grouped;
}

static GroupedCase gated(GPUStyle style) {
  GroupedCase grouped = rows(style);
  grouped.weights = 2;
  grouped.fullEpilogue = grouped.bias = true;
  grouped.gather = style == GPUStyle::CpAsync;
  if (style == GPUStyle::CpAsync)
    grouped.schedule.tileN = 32;
  return grouped;
}

static GroupedCase contraction(GPUStyle style) {
  GroupedCase grouped = rows(style);
  grouped.contraction = true;
  grouped.sizes = {70, 0, 130};
  grouped.k = 72;
  // More steps than stages here too.
  if (style == GPUStyle::Warpgroup) {
    grouped.sizes = {70, 0, 300};
    grouped.schedule.stages = 2;
  }
  return grouped;
}

/// Blocks of the contraction that are chains.
static GroupedCase chains() {
  GroupedCase grouped = rows(GPUStyle::CpAsync);
  grouped.layout = moe::WeightLayout::TransposedPanels;
  grouped.chains = 4;
  grouped.schedule.tileN = 32;
  return grouped;
}

static GroupedCase decode() {
  GroupedCase grouped = rows(GPUStyle::CpAsync);
  grouped.sizes = {1, 0, 16, 3};
  grouped.schedule = {GPUStyle::CpAsync, 16, 64, 64, 4, 1, 4};
  return grouped;
}

static GroupedCase simt(bool isContraction) {
  GroupedCase grouped = rows(GPUStyle::CpAsync);
  grouped.sizes = {30, 0, 70};
  grouped.k = 80;
  grouped.contraction = isContraction;
  grouped.schedule = {GPUStyle::Simt, 64, 64, 16, 3, 2, 2};
  return grouped;
}

static const std::vector<Subject> &subjects() {
  static const std::vector<Subject> all = {
      {"gate", gate({"", "normalize = max_sum_eps", 96, 4})},
      {"gate-after-top-k", gate({"", "after_top_k", 96, 4, "b"})},
      {"gate-groups",
       gate({"",
             "score = sigmoid, groups = 8, keep = 3, group_score = sum_top2",
             64, 4, "bmkts"})},
      {"gate-replay", gate({"", "", 64, 4, "r"})},
      {"gate-by-expert",
       gate({"", "normalize = sum_plus_eps, expert_choice", 40, 40, "bm", 5})},
      {"cp-async", grouped(rows(GPUStyle::CpAsync))},
      {"cp-async-kn", grouped(transposed(GPUStyle::CpAsync))},
      {"cp-async-gated", grouped(gated(GPUStyle::CpAsync))},
      {"cp-async-contraction", grouped(contraction(GPUStyle::CpAsync))},
      {"cp-async-chains", grouped(chains())},
      {"cp-async-decode", grouped(decode())},
      {"simt", grouped(simt(/*isContraction=*/false))},
      {"simt-contraction", grouped(simt(/*isContraction=*/true))},
      {"warpgroup", grouped(rows(GPUStyle::Warpgroup))},
      {"warpgroup-kn", grouped(transposed(GPUStyle::Warpgroup))},
      {"warpgroup-gated", grouped(gated(GPUStyle::Warpgroup))},
      {"warpgroup-contraction", grouped(contraction(GPUStyle::Warpgroup))},
  };
  return all;
}

namespace {
/// A change of one op: removed, or a wait that leaves one group more.
struct Change {
  mlir::Operation *op;
  bool isLax;

  void apply() const {
    mlir::Builder b(op->getContext());
    if (!isLax) {
      op->erase();
    } else if (auto wait = llvm::dyn_cast<NVVM::CpAsyncWaitGroupOp>(op)) {
      wait.setN(wait.getN() + 1);
    } else {
      auto products = llvm::cast<NVVM::WgmmaWaitGroupSyncOp>(op);
      products.setGroup(products.getGroup() + 1);
    }
  }
};
} // namespace

/// The changes of barriers, waits, arrivals, commits and fences, of all kernels
/// of a module.
static std::vector<Change> changesOf(mlir::gpu::GPUModuleOp module) {
  std::vector<Change> changes;
  module.walk([&](mlir::Operation *op) {
    if (llvm::isa<NVVM::Barrier0Op, NVVM::BarrierOp, NVVM::SyncWarpOp,
                  NVVM::CpAsyncCommitGroupOp, NVVM::CpAsyncWaitGroupOp,
                  NVVM::CpAsyncBulkCommitGroupOp, NVVM::CpAsyncBulkWaitGroupOp,
                  NVVM::MBarrierInitOp, NVVM::MBarrierArriveOp,
                  NVVM::MBarrierArriveExpectTxOp, NVVM::MBarrierTryWaitParityOp,
                  NVVM::FenceMbarrierInitOp, NVVM::FenceProxyOp, NVVM::MembarOp,
                  NVVM::WgmmaFenceAlignedOp, NVVM::WgmmaGroupSyncAlignedOp,
                  NVVM::WgmmaWaitGroupSyncOp>(op))
      changes.push_back({op, false});
    if (llvm::isa<NVVM::CpAsyncWaitGroupOp, NVVM::WgmmaWaitGroupSyncOp>(op))
      changes.push_back({op, true});
  });
  return changes;
}

/// The first word of what the device found, "result" where it found nothing
/// but the results differ, "" where nothing was wrong.
static std::string outcomeOf(const Subject &subject, const Edit &edit) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::
            INTERCEPT_ONLY_CURRENT_THREAD,
        &results);
    subject.run(edit);
  }
  if (results.size() == 0)
    return "";
  std::string text = results.GetTestPartResult(0).message();
  for (emulator::FaultKind kind :
       {emulator::FaultKind::Race, emulator::FaultKind::Bounds,
        emulator::FaultKind::Uninit, emulator::FaultKind::Sync,
        emulator::FaultKind::Deadlock}) {
    std::string word = emulator::faultName(kind);
    if (text.find(word + ": ") == std::string::npos)
      continue;
    // It leads to the builder.
    bool isNamed = text.find("Kernel.cpp:") != std::string::npos ||
                   text.find("Builder.cpp:") != std::string::npos;
    EXPECT_TRUE(isNamed) << text;
    return word;
  }
  return "result";
}

/// Lines "kernel op number: outcome" of removals.txt; where nothing is found,
/// the outcome is "equivalent, " and the reason.
static std::map<std::string, std::string> readTable() {
  std::map<std::string, std::string> table;
  std::ifstream file(MOIRA_REMOVALS_TABLE);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(": ");
    if (line.rfind('#', 0) != 0 && colon != std::string::npos)
      table[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return table;
}

/// Set, all removals are tried instead of a sample; set to a path, the test
/// also writes the table there.
static const char *const allVariable = "MOIRA_ALL_REMOVALS";

TEST(RemovalTest, isFoundOrEquivalent) {
  std::map<std::string, std::string> table = readTable();
  const char *all = getenv(allVariable);
  std::ostringstream written;
  size_t entries = 0;
  for (const Subject &subject : subjects()) {
    std::vector<std::string> names;
    std::map<std::string, int> numbers;
    subject.run([&](mlir::gpu::GPUModuleOp module) {
      for (const Change &change : changesOf(module)) {
        std::string name = change.op->getName().getStringRef().str();
        if (change.isLax)
          name += "+1";
        names.push_back(std::string(subject.name) + " " + name + " " +
                        std::to_string(numbers[name]++));
      }
    });
    EXPECT_FALSE(HasFailure()) << subject.name << " as it is";
    for (size_t i = 0; i < names.size(); ++i) {
      // A sample: every fourth.
      if (!all && entries++ % 4 != 0)
        continue;
      SCOPED_TRACE(names[i]);
      std::string outcome =
          outcomeOf(subject, [&](mlir::gpu::GPUModuleOp module) {
            changesOf(module)[i].apply();
          });
      std::string known = table.count(names[i]) ? table[names[i]] : "nothing";
      bool isEquivalent = known.rfind("equivalent, ", 0) == 0;
      written << names[i] << ": " << (outcome.empty() ? "survives" : outcome)
              << '\n';
      if (outcome.empty())
        EXPECT_TRUE(isEquivalent) << "survives";
      else
        EXPECT_EQ(outcome, known);
    }
    for (const std::string &name : names)
      EXPECT_EQ(table.count(name), 1u) << "the table lacks " << name;
  }
  if (all && *all == '/')
    std::ofstream(all) << written.str();
}
