// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shadows that a step chooses by its own counts (lag 0).

#include "Collective/Threads.h"
#include "Runtime/AdaptiveProgram.h"
#include "base/Draws.h"
#include "session/Adaptation.h"
#include "session/Rebalancing.h"

#include <algorithm>
#include <filesystem>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;
constexpr int64_t weightBytes = P::features * sizeof(float);
const char *const withShadow = "r=1 degree=2 shadow=1";

/// A rank's session of the program, which decides within its steps. Memory that
/// nobody wrote is poison.
struct RankSession {
  explicit RankSession(Communicator &group, AdaptOptions options = {})
      : group(group) {
    SessionOptions created;
    created.statisticsSteps = 1;
    created.poisonMemory = true;
    session = P::open(group, created);
    options.selection.lag = 0;
    EXPECT_OK(session->adapt("main", options));
  }
  void force(const std::string &candidate) {
    EXPECT_OK(session->forceCandidate("main", candidate));
  }
  /// Three of four rows go to one expert.
  Status step(int hot, int seed = 0) {
    std::vector<float> x =
        P::rows(8, uint64_t(seed * P::ranks + group.rank()), 0);
    for (int64_t t = 0; t < 8; ++t)
      if (t % 4 != 3)
        x[t * P::features] = float(hot) + 0.5f;
    return run(x);
  }
  Status run(const std::vector<float> &x) { return P::run(*session, x); }
  StepRow row() const { return session->statistics().back(); }
  /// Bytes of shadows that this rank has received since the last call.
  int64_t shadowBytes() {
    int64_t bytes = group.traffic()[TrafficKind::Shadows].bytesReceived;
    group.resetTraffic();
    return bytes;
  }

  Communicator &group;
  std::unique_ptr<Session> session;
};

/// Who holds an expert for long: two of eight on each of four ranks.
bool owns(const Communicator &group, int expert) {
  return expert / 2 == group.rank();
}

} // namespace

/// With lag 1 these would be the hot experts of the step before.
TEST(LateShadows, AreThoseOfTheStepsOwnCounts) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    rank.force(withShadow);
    rank.shadowBytes();
    for (int step = 0; step < 24; ++step) {
      int hot = step * 5 % P::experts, second = (hot + 3) % P::experts;
      MOIRA_RETURN_IF_ERROR(rank.step(hot, step));
      const StepRow row = rank.row();
      EXPECT_EQ(row.layers[0].shadows, std::vector<int32_t>{hot});
      EXPECT_EQ(row.layers[1].shadows, std::vector<int32_t>{second});
      EXPECT_EQ(row.layers[0].plan.degree, 2);
      EXPECT_EQ(rank.shadowBytes(),
                weightBytes * (!owns(group, hot) + !owns(group, second)));
      // Without other weights and other hot experts nothing is sent.
      MOIRA_RETURN_IF_ERROR(rank.step(hot, step));
      EXPECT_EQ(rank.row().layers[0].shadows, std::vector<int32_t>{hot});
      EXPECT_EQ(rank.shadowBytes(), 0);
      if (testing::Test::HasFailure())
        return group.endStep(Status(MOIRA_FAILED, "see above"));
    }
    return Status();
  });
}

/// One rank alone knows that they have changed.
TEST(LateShadows, NewWeightsAreSentAnew) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    rank.force(withShadow);
    MOIRA_RETURN_IF_ERROR(rank.step(0));
    std::vector<float> twice = P::weights(0);
    for (int k = 0; k < P::features; ++k)
      twice[k] *= 2; // of expert 0
    std::vector<float> x(P::features, 0.25f);
    auto first = [&]() -> float {
      std::vector<ResultTensor> results;
      EXPECT_OK(
          rank.session->invoke("main", {view(x, {1, P::features})}, results));
      EXPECT_EQ(rank.row().layers[0].shadows, std::vector<int32_t>{0});
      return values(results[0])[0];
    };
    float before = first();
    if (group.rank() == 0)
      EXPECT_OK(
          rank.session->bind("w0", view(twice, {P::experts, P::features})));
    EXPECT_EQ(first(), 2 * before);
    // A step that began without the shadow leaves it where it is.
    rank.force("r=0");
    std::vector<ResultTensor> results;
    EXPECT_OK(
        rank.session->invoke("main", {view(x, {1, P::features})}, results));
    rank.force(withShadow);
    rank.shadowBytes();
    EXPECT_EQ(first(), 2 * before);
    EXPECT_EQ(rank.shadowBytes(), 0);
    return Status();
  });
}

/// Any candidate in any step: right, on all ranks alike, in flat memory.
TEST(LateShadows, AnySwitchesInFlatMemory) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    std::vector<Candidate> all = *rank.session->candidates("main");
    std::set<int> copies, shadows;
    MemoryFigures before;
    for (int step = 0; step < 400; ++step) {
      Draws draws({3, 4}, uint32_t(step)); // alike on all ranks
      const Candidate &next = all[draws.below(int64_t(all.size()))];
      rank.force(next.describe());
      MOIRA_RETURN_IF_ERROR(rank.step(int(draws.below(P::experts)), step));
      const StepRow row = rank.row();
      for (const LayerRow &layer : row.layers) {
        EXPECT_EQ(layer.plan.degree, next.plan.degree);
        EXPECT_EQ(int(layer.shadows.size()), next.plan.shadows);
      }
      copies.insert(next.plan.copies);
      shadows.insert(next.plan.shadows);
      if (step == 50)
        before = rank.session->memory();
      if (step > 50) {
        EXPECT_EQ(rank.session->memory().workspace, before.workspace);
        EXPECT_EQ(rank.session->memory().parameters, before.parameters);
      }
      if (testing::Test::HasFailure())
        return group.endStep(Status(MOIRA_FAILED, "see above"));
    }
    EXPECT_EQ(copies, (std::set<int>{0, 1}));
    EXPECT_EQ(shadows, (std::set<int>{0, 1}));
    return Status();
  });
}

/// The variant is chosen by the step before, all else within the step.
TEST(LateShadows, VariantsFollowTheStepBefore) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    AdaptOptions options;
    options.selection.trialSpacing = 1;
    RankSession rank(group, options);
    std::set<uint32_t> copies;
    std::vector<Candidate> all = *rank.session->candidates("main");
    for (int step = 0; step < 100; ++step) {
      MOIRA_RETURN_IF_ERROR(rank.step(step / 10 % P::experts, step));
      std::vector<Explanation> why = *rank.session->explain("main");
      const Candidate &first = all[why[0].decision.candidate];
      EXPECT_EQ(first.variant, all[why[1].decision.candidate].variant);
      EXPECT_EQ(why[0].step, step);
      copies.insert(first.plan.copies);
    }
    EXPECT_EQ(copies.size(), 2u);
    return Status();
  });
}

TEST(LateShadows, AForbiddenVariantIsLeftWithTheNextStep) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    AdaptOptions options;
    options.selection.mode = SelectionMode::Fixed;
    RankSession rank(group, options);
    std::vector<Candidate> all = *rank.session->candidates("main");
    auto copies = [&] {
      return all[rank.session->explain("main")->front().decision.candidate]
          .plan.copies;
    };
    auto step = [&](int expected) {
      MOIRA_RETURN_IF_ERROR(rank.step(1));
      EXPECT_EQ(copies(), expected);
      return Status();
    };
    MOIRA_RETURN_IF_ERROR(step(0));
    if (group.rank() == 3)
      EXPECT_OK(rank.session->forbidVariant("main", "r0-decode", true));
    MOIRA_RETURN_IF_ERROR(step(0)); // others know now
    MOIRA_RETURN_IF_ERROR(step(1));
    if (group.rank() == 3)
      EXPECT_OK(rank.session->forbidVariant("main", "r0-decode", false));
    MOIRA_RETURN_IF_ERROR(step(1));
    return step(0);
  });
}

TEST(LateShadows, AReplayChoosesThemAgain) {
  std::string file =
      (std::filesystem::path(testing::TempDir()) / "late-shadows.flight")
          .string();
  std::vector<std::vector<std::string>> runs(2);
  for (int run : {0, 1})
    expectRanks(P::ranks, {}, [&](Communicator &group) {
      AdaptOptions options;
      (run == 0 ? options.flightLog : options.replay) = file;
      RankSession rank(group, options);
      for (int step = 0; step < 40; ++step) {
        if (run == 0 && step % 10 == 5)
          rank.force(step % 20 == 5 ? withShadow : "");
        MOIRA_RETURN_IF_ERROR(rank.step(step % P::experts, step));
        const StepRow row = rank.row();
        for (const LayerRow &layer : row.layers)
          if (group.rank() == 0)
            runs[run].push_back(
                concat(row.variant, " ", layer.plan.degree, " ", layer.reason,
                       " ", layer.shadows.empty() ? -1 : layer.shadows[0]));
      }
      if (run == 1) // any rank may be the first to fail
        EXPECT_NE(rank.step(0).message.find(
                      ": replay: expected at most the 40 steps of the flight "
                      "log, got another"),
                  std::string::npos);
      return Status();
    });
  EXPECT_EQ(runs[0], runs[1]);
  ASSERT_EQ(runs[0].size(), 80u);
  // Of step 6, in its first layer.
  EXPECT_NE(runs[0][12].find("2 fixed 6"), std::string::npos) << runs[0][12];
  for (const char *layer : {".0", ".1"})
    std::filesystem::remove(file + layer);
}

/// Spare slots are the shadows', so experts change owners and none stands
/// twice; results, and shadows over the new table, stay right.
TEST(LateShadows, ExpertsChangeOwnersBesideThem) {
  for (int lag : {0, 1})
    expectRanks(P::ranks, {}, [lag](Communicator &group) {
      AdaptOptions options;
      options.selection.lag = lag;
      // A row takes longer than all that it does not depend on.
      options.calibration.emplace();
      options.calibration->forward.rows = {1, 2};
      options.calibration->forward.seconds = {1e-4, 2e-4};
      options.calibration->backward = options.calibration->forward;
      options.calibration->intra = {1e-6, 0, 1e-9};
      RankSession rank(group, options);
      EXPECT_OK(rank.session->adapt("main", options));
      RebalanceOptions rebalance;
      rebalance.steps = 1000000000; // so that any gain pays
      EXPECT_OK(rank.session->countLoads("main", rebalance));
      std::vector<int32_t> before = rank.session->slotTable(0);
      // The hottest expert may be everywhere; the next two stand on rank 1.
      auto steps = [&](int count) {
        for (int step = 0; step < count; ++step)
          MOIRA_RETURN_IF_ERROR(rank.step(step % 4 < 2 ? 0 : step % 4, step));
        return Status();
      };
      MOIRA_RETURN_IF_ERROR(steps(12));
      Result<int64_t> moved = rank.session->rebalance("main");
      MOIRA_RETURN_IF_ERROR(moved.status());
      EXPECT_GE(*moved, 1);
      std::vector<int32_t> after = rank.session->slotTable(0);
      EXPECT_NE(after, before);
      for (int expert = 0; expert < P::experts; ++expert)
        EXPECT_EQ(std::count(after.begin(), after.end(), expert), 1);
      for (int place = 0; place < P::ranks * P::slots; ++place)
        EXPECT_EQ(after[place] < 0, before[place] < 0);
      rank.force(withShadow);
      MOIRA_RETURN_IF_ERROR(steps(12));
      EXPECT_EQ(rank.row().layers[0].shadows.size(), 1u);
      rank.force("");
      MOIRA_RETURN_IF_ERROR(steps(12));
      // Loads as before, on a table that suits them.
      moved = rank.session->rebalance("main");
      MOIRA_RETURN_IF_ERROR(moved.status());
      EXPECT_EQ(rank.session->slotTable(0), after);
      return Status();
    });
}
