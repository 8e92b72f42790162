// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Several layers that run one variant: which one, how others are tried, and
// that a layer's log can be replayed alone.

#include "selection/EntryChoice.h"
#include "Selection/Games.h"

#include <array>
#include <map>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// Two layers of machine B, which have loads of their own.
struct TwoLayers {
  explicit TwoLayers(SelectionMode mode) {
    options.mode = mode;
    options.joint = true;
    for (int layer = 0; layer < 2; ++layer)
      deciders.push_back(machine.decider(options));
    entry = std::make_unique<EntryChoice>(options);
  }
  /// One decision of both, from loads of so many tokens.
  std::vector<Decision> decide(int64_t step, std::array<int64_t, 2> tokens,
                               double seconds = 0) {
    std::vector<SharedStep> records(2);
    for (int layer = 0; layer < 2; ++layer) {
      counts[layer] =
          loads(layer ? "zipf:1" : "uniform", 8, 2, tokens[layer], 1);
      times[layer].assign(8, seconds);
      SharedStep &record = records[layer];
      record.step = step;
      record.counts = counts[layer].data();
      record.seconds = seconds > 0 ? times[layer].data() : nullptr;
      record.timedStep = step - 1;
      EXPECT_TRUE(deciders[layer]->prepare(record).ok());
    }
    chosen = entry->choose(step, deciders);
    std::vector<Decision> decisions;
    for (int layer = 0; layer < 2; ++layer) {
      records[layer].variant = chosen.variant;
      decisions.push_back(*deciders[layer]->conclude(records[layer]));
      if (recorders.size() == 2)
        recorders[layer].add(records[layer], decisions.back());
    }
    return decisions;
  }
  uint32_t variantOf(const Decision &decision) const {
    return deciders[0]->candidates()[decision.candidate].variant;
  }

  Machine machine = machineB();
  SelectionOptions options;
  std::vector<std::unique_ptr<Decider>> deciders;
  std::vector<FlightRecorder> recorders;
  std::array<std::vector<int32_t>, 2> counts;
  std::array<std::vector<double>, 2> times;
  std::unique_ptr<EntryChoice> entry;
  EntryChoice::Choice chosen;
};

/// How much longer than the best variant's one takes, each with its best plans,
/// added over layers.
double regretOf(TwoLayers &layers, std::array<int64_t, 2> tokens,
                uint32_t chosen) {
  std::map<uint32_t, double> sums;
  for (int layer = 0; layer < 2; ++layer) {
    auto model = layers.machine.model(layers.machine.known);
    std::vector<int32_t> counts =
        loads(layer ? "zipf:1" : "uniform", 8, 2, tokens[layer], 1);
    model->setLoads(counts.data(), nullptr, 0);
    std::map<uint32_t, double> best;
    for (const Candidate &candidate : layers.deciders[0]->candidates()) {
      double seconds = model->predict(candidate.plan).seconds;
      auto [place, isNew] = best.try_emplace(candidate.variant, seconds);
      place->second = std::min(place->second, seconds);
    }
    for (auto [variant, seconds] : best)
      sums[variant] += seconds;
  }
  double least = sums.begin()->second;
  for (auto [variant, seconds] : sums)
    least = std::min(least, seconds);
  return sums[chosen] / least - 1;
}
} // namespace

TEST(EntryChoice, TakesTheVariantThatIsBestForAllLayers) {
  TwoLayers layers(SelectionMode::Model);
  std::set<uint32_t> seen;
  int steps = 0;
  for (int64_t tokens : {16, 64, 256, 1024, 4096})
    for (int64_t other : {16, 4096}) {
      std::vector<Decision> decisions = layers.decide(steps++, {tokens, other});
      uint32_t chosen = layers.variantOf(decisions[0]);
      EXPECT_EQ(chosen, layers.variantOf(decisions[1]));
      // As much as the quick model, which sorts plans out, is off.
      EXPECT_LT(regretOf(layers, {tokens, other}, chosen), 0.05);
      seen.insert(chosen);
    }
  EXPECT_GE(seen.size(), 2u);
}

TEST(EntryChoice, SettlesByVariantAndTriesOthersRarely) {
  TwoLayers layers(SelectionMode::Measured);
  int trials = 0, settled = 0;
  double expected = 0;
  for (int64_t step = 0; step < 200; ++step) {
    std::vector<Decision> decisions =
        layers.decide(step, {1024, 256}, expected);
    EXPECT_EQ(layers.variantOf(decisions[0]), layers.variantOf(decisions[1]));
    expected = decisions[0].seconds > 0 ? decisions[0].seconds : 1e-4;
    trials += layers.chosen.trial();
    settled += decisions[0].reason == DecisionReason::Settled &&
               decisions[1].reason == DecisionReason::Settled;
  }
  EXPECT_LE(trials, 20);
  EXPECT_GE(settled, 100);
}

TEST(EntryChoice, AVariantThatNobodyMayRunIsRefused) {
  TwoLayers layers(SelectionMode::Model);
  Decider &decider = *layers.deciders[0];
  std::vector<int32_t> counts = loads("uniform", 8, 2, 64, 1);
  std::vector<uint64_t> variants(8, 1); // the first alone
  SharedStep record;
  record.counts = counts.data();
  record.variants = variants.data();
  ASSERT_TRUE(decider.prepare(record).ok());
  record.variant = 1;
  Result<Decision> decision = decider.conclude(record);
  EXPECT_EQ(decision.status().code, MOIRA_UNAVAILABLE);
  EXPECT_EQ(decision.status().message,
            "selection: expected a variant that all ranks may run, got number "
            "1");
  record.variant = -1;
  record.candidate = int(decider.candidates().size()) - 1;
  decision = decider.decide(record);
  EXPECT_EQ(decision.status().message,
            "selection: expected a candidate that all ranks may run, got '" +
                decider.candidates().back().describe() + "'");
  record.candidate = 1000;
  decision = decider.decide(record);
  EXPECT_EQ(decision.status().message,
            "selection: expected a candidate that all ranks may run, got "
            "number 1000");
}

TEST(EntryChoice, ALayersLogIsReplayedAlone) {
  TwoLayers layers(SelectionMode::Measured);
  for (auto &decider : layers.deciders)
    layers.recorders.emplace_back(*decider);
  std::vector<int> decided;
  for (int64_t step = 0; step < 120; ++step)
    decided.push_back(layers
                          .decide(step,
                                  {16 << (step / 10 % 8), 4096 >> (step / 25)},
                                  1e-4 * double(1 + step % 3))[1]
                          .candidate);
  Result<FlightLog> log = FlightLog::parse(layers.recorders[1].bytes());
  ASSERT_TRUE(log.ok()) << log.status().message;
  EXPECT_TRUE(log->options().joint);
  auto again = layers.machine.decider(log->options());
  std::vector<int> replayed;
  std::set<int> variants;
  Status status = log->replay(
      *again, [&](const FlightLog::Entry &entry, const Decision &made) {
        replayed.push_back(made.candidate);
        variants.insert(entry.variant);
      });
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(replayed, decided);
  EXPECT_GE(variants.size(), 2u);
}
