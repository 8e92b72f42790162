// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who decides for an entry, told directly: that all ranks choose the same
// whatever they measure, and what is refused.

#include "Collective/Threads.h"
#include "Runtime/AgreeingRanks.h"
#include "Runtime/TestFiles.h"

#include <cmath>
#include <csignal>
#include <limits>
#include <set>
#include <sys/resource.h>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;

Status refuse(const Manifest &manifest, const AdaptOptions &options = {},
              RankGroups groups = {0, P::ranks, 1}) {
  return Adaptation::create(manifest, 0, groups,
                            std::vector<std::vector<int32_t>>(P::layers),
                            options)
      .status();
}

void agree(int steps, const AdaptOptions &options, size_t least) {
  std::vector<SeenPlans> seen(P::ranks);
  CommunicatorOptions grid;
  grid.ranksPerNode = 2;
  expectRanks(P::ranks, grid, [&](Communicator &group) {
    return runAgreeing(group, steps, options, /*failing=*/true,
                       seen[group.rank()]);
  });
  std::set<int> chosen(seen[0].candidates.begin(), seen[0].candidates.end());
  EXPECT_GE(chosen.size(), least);
  for (const SeenPlans &other : seen)
    if (options.selection.lag == 1)
      EXPECT_EQ(other.candidates, seen[0].candidates);
}

} // namespace

TEST(Adaptation, AllRanksChooseTheSameWhateverTheirClocksSay) {
  AdaptOptions options;
  agree(10000, options, 4);
}

TEST(Adaptation, AllRanksChooseTheSameWithinAStep) {
  AdaptOptions options;
  options.selection.lag = 0;
  // Of variant r1-decode: candidates begin with the one of r = 0.
  options.selection.fixed = 1;
  options.selection.trialSpacing = 1;
  agree(1500, options, 2);
}

/// A table of experts that layers share is no layer's own.
TEST(Adaptation, LayersThatShareParametersHaveNoShadows) {
  Manifest manifest = P::manifest();
  auto most = [&](int lag) {
    AdaptOptions options;
    options.selection.lag = lag;
    auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
    int shadows = 0;
    for (const Candidate &candidate : adaptation->candidates())
      shadows = std::max(shadows, candidate.plan.shadows);
    EXPECT_EQ(adaptation->shadowsLate(), lag == 0 && shadows > 0);
    return shadows;
  };
  EXPECT_EQ(most(0), 1);
  EXPECT_EQ(most(1), 1);
  std::vector<LayerSpec> &layers = manifest.entries[0].layers;
  layers[1].cost->weights[0].parameter = layers[0].cost->weights[0].parameter;
  EXPECT_EQ(most(0), 0);
  EXPECT_EQ(most(1), 0);
}

TEST(Adaptation, VariantsAreChosenByRowsWithinAGroup) {
  Manifest manifest = P::manifest();
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, {});
  ASSERT_OK(adaptation->force("r=1 groups"));
  ASSERT_OK(adaptation->next());
  EXPECT_EQ(manifest.entries[0].variants[adaptation->variant(3)].name,
            "r1-groups-decode");
  EXPECT_EQ(manifest.entries[0].variants[adaptation->variant(8)].name,
            "r1-groups-prefill");
}

/// Shares of the last step, at the size of the next one.
TEST(Adaptation, AnnouncedTokensScaleLoads) {
  Manifest manifest = P::manifest();
  AdaptOptions options;
  options.selection.mode = SelectionMode::Model;
  std::vector<double> expected;
  for (int64_t tokens : {int64_t(-1), int64_t(P::ranks * P::experts * 2),
                         int64_t(P::ranks * P::experts * 2000)}) {
    auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
    ASSERT_OK(adaptation->next());
    RankRecord record;
    record.variants = adaptation->mask();
    const std::vector<RankRecord> records(P::ranks, record);
    const std::vector<int32_t> matrix(P::ranks * P::experts, 2);
    for (int layer = 0; layer < P::layers; ++layer)
      ASSERT_OK(adaptation->gathered(layer, records, matrix.data()).status());
    adaptation->finish(true, 0, {1, 1}, false);
    adaptation->announce(tokens);
    ASSERT_OK(adaptation->next());
    expected.push_back(adaptation->decision(0).seconds);
  }
  EXPECT_EQ(expected[0], expected[1]);
  EXPECT_GT(expected[2], expected[0]);
}

TEST(Adaptation, LayersMustTellTheirCounts) {
  Manifest manifest = P::manifest();
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, {});
  ASSERT_OK(adaptation->next());
  adaptation->finish(true, 0, {1, 1}, false);
  EXPECT_ERROR(adaptation->next(), MOIRA_FAILED,
               "adapt: layer 0: expected the counts of all ranks in each step, "
               "got none in the last one");
}

TEST(Adaptation, QualifiedVariantsAlone) {
  Manifest manifest = P::manifest();
  AdaptOptions options;
  options.qualified = "target"; // those for few rows
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
  ASSERT_OK(adaptation->next());
  EXPECT_EQ(adaptation->mask(), 0b010101u);
  EXPECT_EQ(adaptation->variant(100) % 2, 0);
  for (VariantSpec &variant : manifest.entries[0].variants)
    variant.qualified = "none";
  EXPECT_ERROR(refuse(manifest, options), MOIRA_UNAVAILABLE,
               "adapt: expected a variant for several ranks that is qualified "
               "as 'target', got none");
  options.qualified = "well";
  EXPECT_ERROR(refuse(manifest, options), MOIRA_INVALID_ARGUMENT,
               "adapt: expected variants qualified as 'none', 'twin' or "
               "'target', got 'well'");
}

TEST(Adaptation, TimesOfStepsWithAWayBack) {
  Manifest manifest = P::manifest();
  EntrySpec back = manifest.entries[0];
  back.name = "back";
  manifest.entries[0].backward = "back";
  manifest.entries.push_back(back);
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, {});
  auto known = [&] { return std::isfinite(adaptation->seconds()[1]); };
  ASSERT_OK(adaptation->next());
  adaptation->finish(true, 7, {1, 2}, true);
  EXPECT_FALSE(known());
  adaptation->finishBack(6, {10, 10}); // of an earlier step
  EXPECT_FALSE(known());
  adaptation->finishBack(7, {3, 4});
  EXPECT_EQ(adaptation->seconds(), (std::vector<double>{4, 6}));
  adaptation->finishBack(7, {3, 4}); // once more: not of the step
  EXPECT_EQ(adaptation->seconds(), (std::vector<double>{4, 6}));
  // A step without a way back says nothing of what training takes.
  adaptation->finish(true, 8, {1, 2}, false);
  EXPECT_FALSE(known());
}

TEST(Adaptation, TablesMustHaveRoomForShadows) {
  Manifest manifest = P::manifest();
  AdaptOptions options;
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
  std::set<int> shadows;
  for (const Candidate &candidate : adaptation->candidates())
    shadows.insert(candidate.plan.shadows);
  EXPECT_EQ(shadows, (std::set<int>{0, 1}));
  std::vector<int32_t> full = {0, 1, 0, 2, 3, 0, 4, 5, 0, 6, 7, 0};
  EXPECT_ERROR(adaptation->setPlacement(1, full), MOIRA_INVALID_ARGUMENT,
               "layer 1: expected a slot table with room for the 1 shadows "
               "that may be chosen, got one for 0");
  EXPECT_ERROR(adaptation->checkPlacement(1, full), MOIRA_INVALID_ARGUMENT,
               "layer 1: expected a slot table with room for the 1 shadows "
               "that may be chosen, got one for 0");
  options.maxShadows = 0;
  adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
  EXPECT_OK(adaptation->setPlacement(1, full));
}

/// A log that begins again, since more is known, says where weights stand now.
TEST(Adaptation, LogsBeginWithThePlacement) {
  Manifest manifest = P::manifest();
  TestFolder folder;
  AdaptOptions options;
  options.flightLog = folder.path("log");
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
  const std::vector<int32_t> table = {7, 6, -1, 5, 4, -1, 3, 2, -1, 1, 0, -1};
  ASSERT_OK(adaptation->setPlacement(1, table));
  ASSERT_OK(adaptation->loadLearned(adaptation->saveLearned()));
  ASSERT_OK(adaptation->next());
  auto log = FlightLog::parse(readFile(folder.path("log.1")));
  ASSERT_OK(log.status());
  ASSERT_EQ(log->entries().size(), 2u);
  EXPECT_TRUE(log->entries()[0].placement);
  EXPECT_EQ(log->entries()[0].table, table);
}

/// Another rank, which writes no log, has decided and goes on.
TEST(Adaptation, LogThatCannotBeWrittenFailsOneStep) {
  Manifest manifest = P::manifest();
  TestFolder folder;
  AdaptOptions options;
  options.flightLog = folder.path("log");
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, options);
  auto *before = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &files), 0);
  struct rlimit none = files;
  none.rlim_cur = 1;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  Status status = adaptation->next();
  setrlimit(RLIMIT_FSIZE, &files);
  std::signal(SIGXFSZ, before);
  EXPECT_ERROR(status, MOIRA_DATA_LOSS,
               concat("flight log: expected to write '", folder.path("log.0"),
                      "', got: File too large"));
  EXPECT_TRUE(adaptation->decides());
  EXPECT_OK(adaptation->next());
}

TEST(Adaptation, RefusesWhatItCannotDecideFor) {
  Manifest manifest = P::manifest();
  EXPECT_ERROR(refuse(manifest, {}, {0, 2, 1}), MOIRA_INVALID_ARGUMENT,
               "adapt: expected 4 ranks, as the entry was compiled for, got 2");
  AdaptOptions options;
  options.topology = Topology::uniform(3, 1e9, 1e-6);
  EXPECT_ERROR(refuse(manifest, options), MOIRA_INVALID_ARGUMENT,
               "layer: expected a topology of 4 ranks, got 3");
  options.topology = *Topology::parse(
      R"({"nodes": 2, "ranks_per_node": 2,
          "intra": {"bandwidth": 1e9, "latency": 1e-6},
          "inter": {"bandwidth": 1e9, "latency": 1e-6}})");
  EXPECT_ERROR(refuse(manifest, options), MOIRA_INVALID_ARGUMENT,
               "adapt: expected a topology with groups of 1 ranks, as the "
               "communicator has them, got 2");
  options.topology.reset();
  options.degrees.clear();
  EXPECT_ERROR(refuse(manifest, options), MOIRA_INVALID_ARGUMENT,
               "selection: expected at least one degree, got none");
  Manifest other = manifest;
  other.entries[0].layers[1].cost.reset();
  EXPECT_ERROR(refuse(other), MOIRA_INVALID_ARGUMENT,
               "adapt: layer 1: expected a placement and costs in the "
               "manifest, got none: compile the program again");
  other = manifest;
  other.entries[0].layers.clear();
  EXPECT_ERROR(refuse(other), MOIRA_INVALID_ARGUMENT,
               "adapt: expected an entry with layers, got one without");
  other.entries[0].ranks = 1;
  EXPECT_ERROR(refuse(other), MOIRA_INVALID_ARGUMENT,
               "adapt: expected an entry for several ranks, got one for 1");
  options = {};
  options.selection.lag = 0;
  options.selection.fixed = 1000;
  EXPECT_ERROR(refuse(manifest, options), MOIRA_INVALID_ARGUMENT,
               "selection: expected a fixed candidate among those there are, "
               "got 1000");
  auto adaptation = makeAdaptation(manifest, {0, P::ranks, 1}, {});
  EXPECT_ERROR(adaptation->force("r=9"), MOIRA_NOT_FOUND,
               "expected a candidate such as 'r=0', got 'r=9'");
  EXPECT_ERROR(adaptation->forbid("r9", true), MOIRA_NOT_FOUND,
               "expected a variant that may be chosen, got 'r9'");
}
