// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Selection/Games.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// A record with its memory.
struct Told {
  SharedStep record;
  std::vector<int32_t> counts;
  std::vector<double> seconds;
  std::vector<uint64_t> variants, programs;

  Told(int ranks, int experts)
      : counts(ranks * experts), seconds(ranks, 1e-3),
        variants(ranks, ~uint64_t(0)), programs(ranks, 7) {
    record.counts = counts.data();
    record.seconds = seconds.data();
    record.variants = variants.data();
    record.programs = programs.data();
  }
  void draw(Draws &draws, int64_t step) {
    record.step = step;
    record.timedStep = step - 1 - draws.below(2);
    double scale = std::pow(3000, draws.uniform());
    for (int32_t &n : counts)
      n = int32_t(draws.uniform() < 0.2 ? 0 : scale * draws.uniform());
    for (double &time : seconds) {
      const double odd[] = {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(), 0, -1};
      time = draws.uniform() < 0.02 ? odd[draws.below(4)]
                                    : 1e-3 * (0.5 + draws.uniform());
    }
    if (draws.uniform() < 0.01)
      for (uint64_t &mask : variants)
        mask = draws.uniform() < 0.5 ? ~uint64_t(0) : 0b1010 | draws.below(16);
    record.nextRows = draws.uniform() < 0.3 ? draws.below(20000) : -1;
  }
};
} // namespace

/// Each rank has its own decider and the same record: the same plan, in 10,000
/// steps of random loads, missing and NaN times and changing variants, whether
/// somebody asks why or not.
TEST(Decider, AllRanksChooseTheSame) {
  Small small;
  std::vector<std::unique_ptr<Decider>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(small.decider());
  Told told(4, 8);
  Draws draws({1, 1}, 0);
  std::vector<int> used(ranks[0]->candidates().size());
  int reasons[9] = {};
  for (int64_t step = 0; step < 10000; ++step) {
    told.draw(draws, step);
    Result<Decision> first = ranks[0]->decide(told.record);
    uint64_t mask = told.variants[0] & told.variants[1] & told.variants[2] &
                    told.variants[3] & 15;
    if (!first.ok()) {
      ASSERT_EQ(mask, 0u) << first.status().message;
      ASSERT_FALSE(ranks[1]->decide(told.record).ok());
      ASSERT_FALSE(ranks[2]->decide(told.record).ok());
      ASSERT_TRUE(ranks[2]->explain().rows.empty());
      continue;
    }
    Decision second = *ranks[1]->decide(told.record);
    Decision third = *ranks[2]->decide(told.record);
    Explanation why = ranks[2]->explain();
    ASSERT_EQ(why.step, step + 1);
    ASSERT_EQ(why.decision.candidate, third.candidate);
    ASSERT_EQ(why.rows.size(), used.size());
    ASSERT_EQ(first->candidate, second.candidate) << step;
    ASSERT_EQ(first->candidate, third.candidate) << step;
    ASSERT_EQ(first->seconds, second.seconds);
    ASSERT_EQ(first->reason, third.reason);
    const Candidate &chosen = ranks[0]->candidates()[first->candidate];
    ASSERT_TRUE(mask >> chosen.variant & 1) << "not qualified";
    for (int k = 0; k < chosen.plan.shadows; ++k)
      ASSERT_EQ(first->shadows[k], third.shadows[k]);
    // What is explained stands on its own.
    ASSERT_EQ(why.shadows.size(),
              third.shadows ? size_t(chosen.plan.shadows) : 0);
    for (size_t k = 0; k < why.shadows.size(); ++k)
      ASSERT_EQ(first->shadows[k], why.shadows[k]);
    ++used[first->candidate];
    ++reasons[int(first->reason)];
  }
  EXPECT_GT(std::count_if(used.begin(), used.end(), [](int n) { return n; }),
            10);
  EXPECT_GT(reasons[int(DecisionReason::Trial)], 10);
  EXPECT_GT(reasons[int(DecisionReason::Measured)], 100);
}

TEST(Decider, TimesThatAreMissingTeachNothing) {
  Small small;
  auto without = small.decider(), with = small.decider();
  Told told(4, 8);
  Draws draws({1, 2}, 0);
  for (int64_t step = 0; step < 200; ++step) {
    told.draw(draws, step);
    std::fill(told.seconds.begin(), told.seconds.end(), 1e-3);
    told.seconds[draws.below(4)] = std::nan("");
    Decision decision = *with->decide(told.record);
    told.record.seconds = nullptr;
    EXPECT_EQ(without->decide(told.record)->candidate, decision.candidate);
    told.record.seconds = told.seconds.data();
  }
  EXPECT_EQ(with->saveLearned(), without->saveLearned());
}

/// A time belongs to the plan of its step, whenever it comes.
TEST(Decider, TimesFindTheirSteps) {
  Small small;
  SelectionOptions options;
  options.initialLoss = options.trialLoss = 0;
  auto decider = small.decider(options);
  Told told(4, 8);
  std::fill(told.counts.begin(), told.counts.end(), 100);
  told.record.seconds = nullptr;
  std::vector<int> plans(2);
  for (int64_t step = 0; step < 6; ++step) {
    told.record.step = step;
    plans.push_back(decider->decide(told.record)->candidate);
  }
  std::string before = decider->saveLearned();
  told.record.step = 6;
  told.record.seconds = told.seconds.data();
  told.record.timedStep = -5; // long ago, or not at all
  (void)decider->decide(told.record);
  EXPECT_EQ(decider->saveLearned(), before);
  told.record.step = 7;
  told.record.timedStep = 5;
  (void)decider->decide(told.record);
  std::string after = decider->saveLearned();
  EXPECT_NE(after, before);
  told.record.step = 8; // twice the same time counts once
  (void)decider->decide(told.record);
  EXPECT_EQ(decider->saveLearned(), after);
}

TEST(Decider, Modes) {
  Small small;
  Told told(4, 8);
  std::fill(told.counts.begin(), told.counts.end(), 64);
  SelectionOptions options;
  options.mode = SelectionMode::Fixed;
  options.fixed = 5;
  auto fixed = small.decider(options);
  for (int64_t step = 0; step < 5; ++step) {
    told.record.step = step;
    Decision decision = *fixed->decide(told.record);
    EXPECT_EQ(decision.candidate, 5);
    EXPECT_EQ(decision.reason, DecisionReason::Fixed);
  }
  options.mode = SelectionMode::Oracle;
  auto oracle = small.decider(options);
  oracle->setOracle([](const Candidate &candidate) {
    return candidate.plan.shadows == 2 && candidate.plan.degree == 4 &&
                   candidate.variant == 1
               ? 1.0
               : 2.0;
  });
  Decision best = *oracle->decide(told.record);
  EXPECT_EQ(oracle->candidates()[best.candidate].describe(),
            "r=1 degree=4 shadow=2");
  EXPECT_EQ(best.reason, DecisionReason::Oracle);
  // The model's choice is the least of its careful predictions among those that
  // the quick ones let through.
  options.mode = SelectionMode::Model;
  auto model = small.decider(options);
  EXPECT_TRUE(model->explain().rows.empty()); // nothing decided yet
  Decision modelled = *model->decide(told.record);
  Explanation why = model->explain();
  EXPECT_EQ(modelled.reason, DecisionReason::Model);
  for (const Explanation::Row &row : why.rows)
    if (row.verdict == Explanation::Slower) {
      EXPECT_GE(row.predicted, why.rows[modelled.candidate].predicted);
      EXPECT_EQ(row.expected, row.predicted);
    }
  // Without a record: what is fixed.
  SharedStep none;
  none.step = -1;
  Decision first = *small.decider()->decide(none);
  EXPECT_EQ(first.reason, DecisionReason::First);
  EXPECT_EQ(first.candidate, 0);
}

TEST(Decider, KeepsToItsClassAndToWhatIsQualified) {
  Small small;
  SelectionOptions options;
  options.numerics = "rounded";
  auto rounded = small.decider(options);
  Told told(4, 8);
  Draws draws({1, 3}, 0);
  for (int64_t step = 0; step < 300; ++step) {
    told.draw(draws, step);
    std::fill(told.variants.begin(), told.variants.end(), ~uint64_t(0));
    EXPECT_EQ(
        rounded->candidates()[rounded->decide(told.record)->candidate].variant,
        3u);
  }
  told.variants[2] = 0b0111;
  EXPECT_EQ(rounded->decide(told.record).status().message,
            "selection: expected a variant of class 'rounded' that all ranks "
            "may run, got none");
  told.variants[1] = 0b1000;
  EXPECT_EQ(small.decider()->decide(told.record).status().message,
            "selection: expected a variant that all ranks may run, got none");
  told.programs[3] = 8;
  EXPECT_EQ(small.decider()->decide(told.record).status().message,
            "selection: rank 3: expected the program of rank 0, got another");
  // Fixed means fixed, unless a rank may not.
  options = {};
  options.mode = SelectionMode::Fixed;
  auto fixed = small.decider(options);
  told.programs[3] = 7;
  told.variants = {0b1000, 0b1100, 0b1000, ~uint64_t(0)};
  EXPECT_EQ(fixed->candidates()[fixed->decide(told.record)->candidate].variant,
            3u);
}

/// One rank, one expert, no rows; and more ranks than are told apart.
TEST(Decider, SmallestAndLargestGrids) {
  for (auto [ranks, experts] : {std::pair(1, 1), std::pair(1, 5),
                                std::pair(2, 1), std::pair(128, 128)}) {
    Machine machine{ranks == 128 ? cluster(16, 8)
                                 : Topology::uniform(ranks, 1e9, 1e-6),
                    layerShape(ranks, experts, 64, 64, 2),
                    {},
                    {}};
    setKernels(machine, 1e5, 1e12, 1e-6);
    auto decider = machine.decider();
    Told told(ranks, experts);
    for (int64_t step = 0; step < 40; ++step) {
      told.record.step = step;
      told.record.timedStep = step - 1;
      int32_t rows = step % 3 ? int32_t(step) : 0;
      std::fill(told.counts.begin(), told.counts.end(), rows);
      Result<Decision> decision = decider->decide(told.record);
      ASSERT_TRUE(decision.ok()) << decision.status().message;
      ASSERT_GE(decision->seconds, 0);
      ASSERT_LT(decision->seconds, 10);
    }
  }
}

TEST(Decider, TriesBothExtremes) {
  Small small;
  auto decider = small.decider();
  Told told(4, 8);
  told.record.timedStep = -1;
  bool gathered = false;
  double last = 1e-3;
  int plan = 0;
  for (int64_t step = 0; step < 60; ++step) {
    std::fill(told.counts.begin(), told.counts.end(), 300);
    told.record.step = step;
    told.record.timedStep = step - 1;
    std::fill(told.seconds.begin(), told.seconds.end(), last);
    Decision decision = *decider->decide(told.record);
    plan = decision.candidate;
    gathered |= decider->candidates()[plan].plan.copies == 0;
    last = decision.seconds > 0 ? decision.seconds : last;
  }
  EXPECT_TRUE(gathered);
}

/// One candidate becomes twice as slow: after a while it is left.
TEST(Decider, ForgetsWhenTimesDrift) {
  Machine machine = machineB();
  machine.noise = 0;
  auto decider = machine.decider();
  Truth truth(machine);
  Told told(8, 2);
  std::fill(told.counts.begin(), told.counts.end(), 700);
  int victim = -1, best = -1;
  double last = 0;
  int late = 0;
  for (int64_t step = 0; step < 400; ++step) {
    told.record.step = step;
    told.record.timedStep = step - 1;
    std::fill(told.seconds.begin(), told.seconds.end(), last);
    best = decider->decide(told.record)->candidate;
    if (step == 150)
      victim = best;
    last = truth.times(told.counts)[best] * (best == victim ? 2 : 1);
    late += step > 200 && best == victim;
  }
  EXPECT_GE(victim, 0);
  EXPECT_LE(late, 20); // of 199
}

TEST(Decider, Explains) {
  Small small;
  SelectionOptions options;
  options.numerics = "exact";
  auto decider = small.decider(options);
  Told told(4, 8);
  std::fill(told.counts.begin(), told.counts.end(), 1000);
  told.variants[0] = 0b1011;
  for (int64_t step = 0; step < 4; ++step) {
    told.record.step = step;
    told.record.timedStep = step - 1;
    ASSERT_TRUE(decider->decide(told.record).ok());
  }
  Explanation why = decider->explain();
  EXPECT_EQ(why.step, 4);
  int verdicts[6] = {};
  for (const Explanation::Row &row : why.rows) {
    ++verdicts[row.verdict];
    uint32_t variant = decider->candidates()[row.candidate].variant;
    EXPECT_EQ(row.verdict == Explanation::Unqualified, variant == 2);
    EXPECT_EQ(row.verdict == Explanation::OtherClass, variant == 3);
  }
  EXPECT_EQ(verdicts[Explanation::Chosen], 1);
  EXPECT_GT(verdicts[Explanation::Slower], 0);
  std::string text = why.toText(decider->candidates());
  for (const char *part : {"step 4: r=", "chosen", "unqualified", "other class",
                           "predicted us", "r=0"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  std::string json = why.toJson(decider->candidates());
  EXPECT_EQ(json.find('\n'), std::string::npos);
  for (const char *part :
       {"\"step\":4", "\"reason\":", "\"verdict\":\"unqualified\"",
        "\"plan\":\"r=1 degree=4 hierarchical shadow=2\"", "\"expected\":"})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
}

TEST(Decider, RefusesSpacesThatDoNotFit) {
  Small small;
  SelectionSpace space = small.space;
  space.variants.clear();
  EXPECT_EQ(small.refused(space),
            "selection: expected from 1 to 64 variants, got 0");
  space = small.space;
  space.variants[1].copies = 3;
  EXPECT_EQ(small.refused(space),
            "selection: variant 'exchange': plan: expected copies that are 0 "
            "or divide the shards, got 3");
  space = small.space;
  space.maxShadows = 3;
  EXPECT_EQ(small.refused(space), "selection: variant 'exchange': plan: "
                                  "expected from 0 to 2 shadows, got 3");
  space = small.space;
  space.degrees = {0};
  EXPECT_EQ(small.refused(space), "selection: variant 'exchange': plan: "
                                  "expected a degree from 1 to 64, got 0");
  space.degrees = {};
  EXPECT_EQ(small.refused(space),
            "selection: expected at least one degree, got none");
  space = small.space;
  SelectionOptions options;
  options.fixed = 1000;
  EXPECT_EQ(small.refused(space, options),
            "selection: expected a fixed candidate among those there are, got "
            "1000");
  options = {};
  options.trialLoss = -1;
  EXPECT_EQ(small.refused(space, options),
            "selection: expected a loss by trials of at least 0, got -1");
  options = {};
  options.initialLoss = std::nan("");
  EXPECT_EQ(small.refused(space, options), "selection: expected a first loss "
                                           "by trials of at least 0, got nan");
  options = {};
  options.trialSpacing = 0;
  EXPECT_EQ(small.refused(space, options),
            "selection: expected at least 1 step from trial to trial, got 0");
  options = {};
  options.trialsPerBucket = -1;
  EXPECT_EQ(small.refused(space, options),
            "selection: expected 0 or more trials, got -1");
  options = {};
  options.lag = 2;
  EXPECT_EQ(small.refused(space, options),
            "selection: expected a lag of 0 or 1, got 2");
  small.machine.topology = Topology::uniform(4, 1e9, 0);
  EXPECT_EQ(small.refused(space), "selection: expected no hierarchical "
                                  "exchange on a grid without nodes");
}

/// Where somebody else has decided the variant, all modes stay within it.
TEST(Decider, KeepsToTheVariantThatRuns) {
  Small small;
  Told told(4, 8);
  std::fill(told.counts.begin(), told.counts.end(), 100);
  for (SelectionMode mode : {SelectionMode::Fixed, SelectionMode::Model,
                             SelectionMode::Measured, SelectionMode::Oracle}) {
    SelectionOptions options;
    options.mode = mode;
    options.lag = 0;
    options.joint = true;
    auto decider = small.decider(options);
    if (mode == SelectionMode::Oracle)
      decider->setOracle([](const Candidate &c) { return 1.0 + c.variant; });
    told.variants.assign(4, ~uint64_t(0));
    for (int step = 0; step < 40; ++step) {
      told.record.step = step;
      told.record.timedStep = step - 1;
      told.record.variant = step % 4;
      Result<Decision> made = decider->decide(told.record);
      ASSERT_TRUE(made.ok()) << made.status().message;
      EXPECT_EQ(int(decider->candidates()[made->candidate].variant), step % 4);
    }
    told.variants[2] = 0b1101;
    told.record.variant = 1;
    EXPECT_EQ(decider->decide(told.record).status().message,
              "selection: expected a variant that all ranks may run, got "
              "number 1");
  }
}
