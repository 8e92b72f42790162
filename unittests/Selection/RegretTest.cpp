// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is lost against one who knows every time beforehand.

#include "Selection/Games.h"

#include <cmath>
#include <fstream>
#include <numeric>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
struct Outcome {
  double chosen = 0, oracle = 0; ///< seconds of the steps that count
  std::vector<double> fixed;     ///< by candidate, the same steps
  std::vector<double> unshadowed;
  int trials = 0, lateTrials = 0, switches = 0, settled = 0, steps = 0;
  double late = 0;

  double regret() const { return chosen / oracle - 1; }
  double speedup(const std::vector<Candidate> &list) const {
    double best = INFINITY;
    for (size_t c = 0; c < fixed.size(); ++c)
      if (list[c].plan.shadows == 0)
        best = std::min(best, fixed[c]);
    return best / chosen;
  }
};

/// Plays `loads` of all steps; with `ahead` the rows of a step are known before
/// it (the session's option), else the last step's stand for the next's.
template <typename Loads>
Outcome play(const Machine &machine, int steps, const Loads &loadsOf,
             SelectionOptions options, bool announced, const char *name) {
  auto decider = machine.decider(options);
  Truth truth(machine);
  Outcome outcome;
  size_t candidates = decider->candidates().size();
  outcome.fixed.resize(candidates);
  std::vector<int32_t> counts, next;
  std::vector<double> seconds(machine.shape.ranks);
  SharedStep record;
  record.step = -1;
  double last = 0;
  int before = -1;
  for (int step = 0; step < steps; ++step) {
    loadsOf(step, next);
    if (options.lag == 0) {
      record.step = step;
      record.counts = next.data();
      record.timedStep = step - 1;
      record.seconds = step >= 1 ? seconds.data() : nullptr;
      std::fill(seconds.begin(), seconds.end(), last);
    } else if (step > 0) {
      record.step = step - 1;
      record.counts = counts.data();
      // The record of step t - 1 has the time of step t - 2.
      record.timedStep = step - 2;
      record.seconds = step >= 2 ? seconds.data() : nullptr;
    }
    record.nextRows =
        announced ? std::accumulate(next.begin(), next.end(), int64_t(0)) : -1;
    Result<Decision> decision = decider->decide(record);
    EXPECT_TRUE(decision.ok()) << decision.status().message;
    if (options.lag == 1)
      std::fill(seconds.begin(), seconds.end(), last);
    double time = truth.timeOf(next, *decision);
    const std::vector<double> &times = truth.times(next);
    last = truth.noisy(time, step);
    outcome.trials += decision->trial();
    outcome.settled += decision->reason == DecisionReason::Settled;
    outcome.switches += before >= 0 && before != decision->candidate;
    before = decision->candidate;
    ++outcome.steps;
    if (step >= 50) {
      outcome.lateTrials += decision->trial();
      outcome.chosen += time;
      outcome.oracle += *std::min_element(times.begin(), times.end());
      for (size_t c = 0; c < candidates; ++c)
        outcome.fixed[c] += times[c];
    }
    counts.swap(next);
  }
  printf("%-34s %zu candidates: regret %.2f %%, %.2fx over the best fixed, "
         "%d trials (%d late), %d switches, %d of %d settled\n",
         name, candidates, 100 * outcome.regret(),
         outcome.speedup(decider->candidates()), outcome.trials,
         outcome.lateTrials, outcome.switches, outcome.settled, outcome.steps);
  return outcome;
}

auto training(int ranks, int experts, int64_t tokens, int topK,
              const char *name = "training") {
  LoadOptions options;
  EXPECT_TRUE(options.parse(name).ok());
  options.ranks = ranks;
  options.experts = experts;
  options.tokens = tokens;
  options.topK = topK;
  auto trace = std::make_shared<LoadTrace>(*LoadTrace::create(options));
  return [trace](int, std::vector<int32_t> &counts) {
    trace->next();
    trace->rows(counts);
  };
}

/// T log-uniform from 16 to 4,096 per rank, times f of {1, 1.25, 2, 4}; each
/// setting holds for `hold` steps. Padded: all experts alike.
auto varying(int ranks, int experts, int hold) {
  return [=](int step, std::vector<int32_t> &counts) {
    Draws draws({5, 6}, uint32_t(step / hold));
    const double factors[] = {1, 1.25, 2, 4};
    double tokens = 16 * std::pow(256, draws.uniform());
    double f = factors[draws.below(4)];
    int32_t capacity = int32_t(std::ceil(f * tokens / experts));
    capacity = (capacity + 3) / 4 * 4;
    counts.assign(ranks * experts, capacity);
  };
}
} // namespace

/// Workload A of the design: a training run, experts on ranks of two nodes. In
/// its first hundred steps hot experts change by the step; who chooses by the
/// step before pays for each change.
TEST(Regret, TrainingTrace) {
  Machine machine = machineA();
  Outcome outcome =
      play(machine, 1000, training(8, 32, 8192, 2), {}, false, "A training");
  EXPECT_LE(outcome.regret(), 0.02);
  EXPECT_GE(outcome.speedup(machine.space().candidates()), 1.5);
  SelectionOptions now;
  now.lag = 0;
  outcome = play(machine, 400, training(8, 32, 8192, 2), now, false,
                 "A training, lag 0");
  EXPECT_LE(outcome.regret(), 0.02);
}

/// What a real run had, step by step; between the steps that the file has,
/// shares go over in equal parts.
TEST(Regret, RecordedTrace) {
  std::string path =
      std::string(MOIRA_TRACES) + "/gpt24x32_global_layers00-11.npy";
  if (!std::ifstream(path))
    GTEST_SKIP() << "expected measured loads in " << path << ", got no file";
  RecordedLoads recorded = *RecordedLoads::read(path);
  Machine machine = machineA();
  for (int64_t layer : {0, 11}) {
    std::vector<double> from, to;
    auto loadsOf = [&](int step, std::vector<int32_t> &counts) {
      recorded.shares(step / 10, layer, from);
      recorded.shares(step / 10 + 1, layer, to);
      for (size_t e = 0; e < from.size(); ++e)
        from[e] += (to[e] - from[e]) * (step % 10) / 10;
      drawRows(from, 8, 8192, 2, streamKey(1, "recorded"), step, counts);
    };
    Outcome outcome = play(machine, 500, loadsOf, {}, false,
                           concat("A, recorded layer ", layer).c_str());
    EXPECT_LE(outcome.regret(), 0.02) << layer;
    EXPECT_GE(outcome.speedup(machine.space().candidates()), 1.3) << layer;
  }
}

TEST(Regret, OtherTraces) {
  Machine machine = machineA();
  SelectionOptions now;
  now.lag = 0;
  for (const char *name : {"uniform", "zipf:1", "4-of-16"})
    EXPECT_LE(
        play(machine, 200, training(8, 32, 8192, 2, name), {}, false, name)
            .regret(),
        0.02)
        << name;
  // Nobody who has only the step before can know what comes next here.
  for (const char *name : {"spiky-training", "rotating-hot"})
    EXPECT_LE(
        play(machine, 200, training(8, 32, 8192, 2, name), now, false, name)
            .regret(),
        0.02)
        << name;
}

/// Workload B: few experts, sizes that change in every step and are known when
/// it begins, or stay for a while and are not.
TEST(Regret, ChangingSizes) {
  Machine machine = machineB();
  Outcome outcome =
      play(machine, 500, varying(8, 2, 1), {}, true, "B, sizes announced");
  EXPECT_LE(outcome.regret(), 0.02);
  EXPECT_GE(outcome.speedup(machine.space().candidates()), 1.25);
  outcome = play(machine, 1000, varying(8, 2, 50), {}, false,
                 "B, sizes stay for 50 steps");
  EXPECT_LE(outcome.regret(), 0.04);
}

/// Measured times are worth something: the model alone is off by more.
TEST(Regret, MeasuredBeatsTheModel) {
  Machine machine = machineB();
  machine.bias = 0.3;
  SelectionOptions model;
  model.mode = SelectionMode::Model;
  double modelled = play(machine, 400, varying(8, 2, 1), model, true,
                         "B, model alone, 30 % off")
                        .regret();
  double measured =
      play(machine, 400, varying(8, 2, 1), {}, true, "B, measured, 30 % off")
          .regret();
  EXPECT_LT(measured, modelled);
  SelectionOptions fixed;
  fixed.mode = SelectionMode::Fixed;
  EXPECT_GT(
      play(machine, 400, varying(8, 2, 1), fixed, true, "B, fixed").regret(),
      measured);
}
