// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Predictions against what they predict.

#include "Cost/World.h"
#include "cost/Formulas.h"
#include "placement/Shadowing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// Errors of many predictions, and what choosing by them costs.
struct Errors {
  std::vector<double> relative;
  std::vector<double> regrets;

  double mean() const {
    return std::accumulate(relative.begin(), relative.end(), 0.0) /
           double(relative.size());
  }
  double percentile(double part) const {
    std::vector<double> sorted = relative;
    std::sort(sorted.begin(), sorted.end());
    return sorted[size_t(part * double(sorted.size() - 1))];
  }
  double regret() const {
    return std::accumulate(regrets.begin(), regrets.end(), 0.0) /
           double(regrets.size());
  }
  void print(const char *name) const {
    printf("%-28s %5zu points: mean %.2f %%, p95 %.2f %%, top-1 regret %.2f "
           "%%\n",
           name, relative.size(), 100 * mean(), 100 * percentile(0.95),
           100 * regret());
  }
  void merge(const Errors &other) {
    relative.insert(relative.end(), other.relative.begin(),
                    other.relative.end());
    regrets.insert(regrets.end(), other.regrets.begin(), other.regrets.end());
  }
};

/// All plans of a layer on a cluster under loads, predicted and simulated.
Errors measure(const Topology &topology, const LayerShape &shape,
               const std::vector<int32_t> &counts,
               Detail detail = Detail::Careful) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  auto model = LayerModel::create(shape, topology, costs);
  EXPECT_TRUE(model.ok()) << model.status().message;
  LayerSimulator simulator(shape, topology, times);
  (*model)->setLoads(counts.data(), nullptr, 0);
  Errors errors;
  double best = INFINITY, chosen = 0, least = INFINITY;
  for (const LayerPlan &plan : allPlans(**model)) {
    if (plan.shadows > 0)
      continue;
    double predicted = (*model)->predict(plan, detail).seconds;
    double seconds = *simulator.run(plan, counts.data(), nullptr);
    errors.relative.push_back(std::abs(predicted / seconds - 1));
    if (predicted < least) {
      least = predicted;
      chosen = seconds;
    }
    best = std::min(best, seconds);
  }
  errors.regrets.push_back(chosen / best - 1);
  return errors;
}
} // namespace

/// The bar of the issue: 8 % mean on points that no calibration has seen, loads
/// from uniform to one-hot, all r, degrees, algorithms and schedules.
TEST(LayerModel, PredictsHeldOutSteps) {
  Errors all;
  const std::pair<const char *, Topology> clusters[] = {
      {"8 alike", Topology::uniform(8, 10e9, 3e-6)},
      {"2 x 4 switch", cluster(2, 4)},
      {"4 x 2 direct, a card each", cluster(4, 2, 20e9, 5e9, "direct", "rank")},
      {"2 x 4 with overheads",
       cluster(2, 4, 12e9, 3e9, "switch", "node", 1e-6)},
      {"2 x 4, fast links", cluster(2, 4, 200e9, 50e9)},
      {"2 x 8", cluster(2, 8)}};
  for (const auto &[name, topology] : clusters) {
    Errors ofCluster;
    for (const char *load : {"uniform", "zipf:0.5", "zipf:1.5", "4-of-16",
                             "training", "one-device", "one-hot"})
      for (int64_t tokens : {24, 300, 2048})
        for (bool training : {false, true}) {
          int ranks = topology.ranks();
          ofCluster.merge(measure(topology,
                                  layerShape(ranks, 32, 512, 1024, 0, training),
                                  loads(load, ranks, 32, tokens, 2)));
          ofCluster.merge(measure(topology,
                                  layerShape(ranks, 2, 512, 4096, 0, training),
                                  loads(load, ranks, 2, tokens, 1)));
        }
    ofCluster.print(name);
    all.merge(ofCluster);
  }
  all.print("all");
  EXPECT_LE(all.mean(), 0.08);
  EXPECT_LE(all.percentile(0.95), 0.25);
  EXPECT_LE(all.regret(), 0.02);
}

/// What decisions on small grids begin with.
TEST(LayerModel, QuickPredictionsAreRougher) {
  Errors small;
  for (const char *load : {"uniform", "zipf:1.5", "training", "one-hot"})
    for (int64_t tokens : {300, 2048}) {
      small.merge(measure(cluster(2, 4), layerShape(8, 32, 512, 1024),
                          loads(load, 8, 32, tokens, 2), Detail::Quick));
      small.merge(measure(cluster(2, 4), layerShape(8, 2, 512, 4096),
                          loads(load, 8, 2, tokens, 1), Detail::Quick));
    }
  small.print("quick, 8 ranks");
  EXPECT_LE(small.mean(), 0.12);
  EXPECT_LE(small.regret(), 0.08);
}

/// On large grids exchanges take what the fullest directed link takes
/// (FasterMoE, equation 2): what a network that shares its links fairly
/// reaches. List schedules of many uneven messages do worse; how much is
/// printed.
TEST(LayerModel, LargeGridsTakeTheBound) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  const Topology clusters[] = {cluster(4, 8), cluster(8, 8),
                               Topology::uniform(32, 10e9, 3e-6)};
  for (const Topology &topology : clusters) {
    int ranks = topology.ranks(), experts = 2 * ranks;
    LayerShape shape = layerShape(ranks, experts, 512, 1024, 1);
    auto model = LayerModel::create(shape, topology, costs);
    Errors errors;
    for (const char *load : {"uniform", "zipf:1.5", "one-hot"}) {
      auto counts = loads(load, ranks, experts, 500, 4);
      std::vector<int64_t> pairs(size_t(ranks) * ranks), shadowed;
      for (int p = 0; p < ranks; ++p)
        for (int e = 0; e < experts; ++e)
          pairs[p * ranks + e / 2] += counts[p * experts + e];
      // Expert 5, of rank 2, everywhere: its rows stay at home.
      shadowed = pairs;
      for (int p = 0; p < ranks; ++p)
        shadowed[p * ranks + 2] -= counts[p * experts + 5];
      std::vector<int32_t> order = {5};
      (*model)->setLoads(counts.data(), order.data(), 1);
      for (int shadows : {0, 1}) {
        std::vector<int64_t> there = shadows ? shadowed : pairs;
        std::vector<int64_t> back(there.size());
        for (int p = 0; p < ranks; ++p)
          for (int q = 0; q < ranks; ++q)
            back[q * ranks + p] = there[p * ranks + q];
        double bound = exchangeBound(topology, there, shape.rowBytes) +
                       exchangeBound(topology, back, shape.resultBytes);
        double latency = topology.messageSeconds(0, ranks - 1, 0);
        EXPECT_NEAR((*model)->predict({1, 0, 1, 0, shadows}).exchange,
                    bound + 2 * latency, 1e-9 * bound);
      }
      LayerSimulator simulator(shape, topology, times);
      for (const LayerPlan &plan : allPlans(**model))
        if (plan.shadows == 0 && plan.copies > 0)
          errors.relative.push_back(
              std::abs((*model)->predict(plan).seconds /
                           *simulator.run(plan, counts.data(), nullptr) -
                       1));
    }
    printf("bound, %d ranks: mean %.1f %% from list schedules\n", ranks,
           100 * errors.mean());
  }
}

/// Shadows, their weights' way to all ranks and their gradients' way back.
TEST(LayerModel, PredictsShadows) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  for (ShadowTransport transport :
       {ShadowTransport::Direct, ShadowTransport::Tree, ShadowTransport::Split})
    for (bool few : {false, true}) {
      // Few experts are cut in two: a shadow takes two slots.
      Topology topology = few ? cluster(2, 2) : cluster(2, 4);
      LayerShape shape = few ? layerShape(4, 2, 512, 2048, 4, true)
                             : layerShape(8, 16, 512, 1024, 3, true);
      auto model = LayerModel::create(shape, topology, costs, transport);
      ASSERT_TRUE(model.ok());
      EXPECT_EQ((*model)->maxShadows(), few ? 2 : 3);
      LayerSimulator simulator(shape, topology, times, transport);
      Errors errors;
      double without = 0, with = 0;
      for (const char *load : {"zipf:1.5", "one-hot"}) {
        auto counts =
            loads(load, shape.ranks, shape.experts, 4000, few ? 1 : 2);
        std::vector<int64_t> sums;
        std::vector<int32_t> order, table;
        orderByLoad(counts.data(), shape.ranks, shape.experts, 3, sums, order);
        (*model)->setLoads(counts.data(), order.data(), (*model)->maxShadows());
        for (const LayerPlan &plan : allPlans(**model)) {
          ASSERT_TRUE(writeShadowTable((*model)->placement(), order.data(),
                                       plan.shadows, table)
                          .ok());
          std::vector<Place> places;
          for (int k = 0; k < plan.shadows; ++k)
            for (int h = 0; h < shape.shards; ++h)
              places.push_back(
                  (*model)->placement().holder(order[k] * shape.shards + h, 0));
          double seconds =
              *simulator.run(plan, counts.data(), table.data(), places);
          double predicted = (*model)->predict(plan).seconds;
          errors.relative.push_back(std::abs(predicted / seconds - 1));
          if (plan.copies == 1 && plan.degree == 1 && plan.schedule == 0 &&
              plan.exchange == 0 && load[0] == 'z')
            (plan.shadows ? with : without) = seconds;
        }
      }
      EXPECT_LE(errors.mean(), 0.04) << int(transport) << few;
      EXPECT_NE(with, without);
    }
}

/// Experts that several ranks hold, in any slots.
TEST(LayerModel, PredictsLastingPlacements) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  Topology topology = cluster(2, 2);
  LayerShape shape = layerShape(4, 6, 512, 1024);
  shape.slots = 3;
  std::vector<int32_t> table = {5, 0, 1, 0, 2, 1, 4, -1, 0, 3, 5, 4};
  auto model = LayerModel::create(shape, topology, costs);
  ASSERT_TRUE((*model)->setPlacement(table.data()).ok());
  LayerSimulator simulator(shape, topology, times);
  Errors errors;
  for (const char *load : {"uniform", "zipf:1.5"}) {
    auto counts = loads(load, 4, 6, 900, 2);
    (*model)->setLoads(counts.data(), nullptr, 0);
    for (const LayerPlan &plan : allPlans(**model))
      if (plan.shadows == 0)
        errors.relative.push_back(
            std::abs((*model)->predict(plan).seconds /
                         *simulator.run(plan, counts.data(), table.data()) -
                     1));
  }
  EXPECT_LE(errors.mean(), 0.03);
  EXPECT_EQ((*model)->setPlacement(std::vector<int32_t>(12, 7).data()).message,
            "slot table: rank 0 slot 0: expected -1 or a unit below 6, got 7");
}

/// Nothing of one question is left in the next.
/// What is not cut takes the same under every plan: backward parts of programs
/// that are compiled so.
TEST(LayerModel, WaysBackInOneChunk) {
  Topology topology = cluster(2, 4);
  std::vector<int32_t> counts = loads("zipf:1", 8, 32, 512, 2);
  LayerShape forward = layerShape(8, 32, 256, 256);
  LayerShape training = forward;
  training.training = training.backInOneChunk = true;
  TiledKernel times;
  Calibration costs = calibrate(times);
  auto without = LayerModel::create(forward, topology, costs);
  auto with = LayerModel::create(training, topology, costs);
  LayerSimulator forwards(forward, topology, times);
  LayerSimulator both(training, topology, times);
  std::vector<double> predicted, simulated;
  for (LayerPlan plan : {LayerPlan{1, MOIRA_SCHEDULE_EQUAL, 1, 0, 0},
                         LayerPlan{1, MOIRA_SCHEDULE_EQUAL, 8, 0, 0},
                         LayerPlan{1, MOIRA_SCHEDULE_GROUPS, 1, 0, 0}}) {
    for (auto *model : {&without, &with})
      (**model)->setLoads(counts.data(), nullptr, 0);
    predicted.push_back((*with)->predict(plan).seconds -
                        (*without)->predict(plan).seconds);
    simulated.push_back(*both.run(plan, counts.data(), nullptr) -
                        *forwards.run(plan, counts.data(), nullptr));
  }
  for (int i = 1; i < 3; ++i) {
    EXPECT_NEAR(predicted[i], predicted[0], 1e-9);
    EXPECT_NEAR(simulated[i], simulated[0], 1e-12);
  }
  EXPECT_NEAR(predicted[0] / simulated[0], 1, 0.05);
  // The next prediction of a plan is not of what the way back ran with.
  LayerPlan cut{1, MOIRA_SCHEDULE_EQUAL, 8, 0, 0};
  EXPECT_EQ((*with)->predict(cut).seconds, (*with)->predict(cut).seconds);
  EXPECT_NE((*with)->hash(), (*without)->hash());
}

TEST(LayerModel, AnswersInAnyOrder) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  for (int ranks : {8, 32}) {
    Topology topology = cluster(ranks / 4, 4);
    LayerShape shape = layerShape(ranks, 2 * ranks, 256, 512, 2, true);
    auto model = LayerModel::create(shape, topology, costs);
    std::vector<LayerPlan> plans = allPlans(**model);
    std::vector<int32_t> order = {3, 0};
    Draws draws({9, 9}, 0);
    for (int round = 0; round < 4; ++round) {
      auto counts = loads("zipf:1", ranks, 2 * ranks, round * 300, 2, round);
      (*model)->setLoads(counts.data(), order.data(), 2);
      for (int i = 0; i < 60; ++i) {
        const LayerPlan &plan = plans[draws.below(int64_t(plans.size()))];
        Detail detail = draws.below(2) ? Detail::Quick : Detail::Careful;
        LayerPrediction asked = (*model)->predict(plan, detail);
        auto fresh = LayerModel::create(shape, topology, costs);
        (*fresh)->setLoads(counts.data(), order.data(), 2);
        LayerPrediction wanted = (*fresh)->predict(plan, detail);
        // On large grids sums over links are taken away from: in any order.
        ASSERT_NEAR(asked.seconds, wanted.seconds,
                    ranks > 16 ? 1e-12 * wanted.seconds : 0);
        ASSERT_EQ(asked.peakBytes, wanted.peakBytes);
      }
    }
  }
}

/// Two ranks, by hand: rows of 2 bytes there and back, weights of 10 bytes.
TEST(LayerModel, PeakMemory) {
  LayerShape shape;
  shape.ranks = 2;
  shape.experts = 2;
  shape.slots = 1;
  shape.rowBytes = shape.resultBytes = 2;
  shape.hiddenBytes = 6;
  shape.weights = {{10, 20, false}};
  auto model =
      LayerModel::create(shape, Topology::uniform(2, 1e9, 0), Calibration());
  std::vector<int32_t> counts = {3, 1, 5, 0};
  (*model)->setLoads(counts.data(), nullptr, 0);
  // r = 1: rank 0 gets 8 rows: 8 (2 + 2), one chunk's hidden 8 * 6; a rank has
  // at most 5 rows of its own: dispatched and returned.
  EXPECT_EQ((*model)->predict({1, 0, 1, 0, 0}).peakBytes,
            8 * 4 + 8 * 6 + 5 * 2 + 5 * 2);
  EXPECT_EQ((*model)->predict({1, 0, 2, 0, 0}).peakBytes,
            8 * 4 + 8 * 6 / 2 + 5 * 2 + 5 * 2);
  // r = 0: both experts' weights, own rows.
  EXPECT_EQ((*model)->predict({0, 0, 1, 0, 0}).peakBytes,
            2 * 10 + 5 * (6 + 2) + 5 * 2);
}

/// FasterMoE's equation 2 and 1 as special cases: no latency, a kernel that is
/// linear in rows, no overlap.
TEST(LayerModel, HasFasterMoEAsASpecialCase) {
  const double flops = 11.5e12, bandwidth = 6.25e9;
  Calibration costs;
  costs.forward.rows = {1, 2};
  costs.forward.seconds = {8.0 * 1024 * 1024 / flops,
                           16.0 * 1024 * 1024 / flops};
  LayerShape shape = layerShape(4, 4, 1024, 2048);
  shape.rowBytes = shape.resultBytes = 4096;
  auto model =
      LayerModel::create(shape, Topology::uniform(4, bandwidth, 0), costs);
  std::vector<int32_t> counts(16, 512);
  (*model)->setLoads(counts.data(), nullptr, 0);
  LayerPrediction even = (*model)->predict({1, 0, 1, 0, 0});
  EXPECT_NEAR(even.compute, 1.4939e-3, 5e-8);
  // A rank's own quarter does not travel; the paper counts it.
  EXPECT_NEAR(even.exchange, 2 * 0.75 * 1.3422e-3, 1e-7);
  // Equation 2 counts links only; the record of counts comes with it.
  EXPECT_NEAR(even.seconds, even.compute + even.exchange, 1e-6);
}

TEST(LayerModel, RefusesWhatCannotBe) {
  Calibration costs;
  LayerShape shape = layerShape(8, 2, 64, 64, 1);
  auto message = [&](const LayerShape &other) {
    return LayerModel::create(other, Topology::uniform(8, 1e9, 0), costs)
        .status()
        .message;
  };
  LayerShape bad = shape;
  bad.ranks = 4;
  EXPECT_EQ(message(bad), "layer: expected a topology of 4 ranks, got 8");
  bad = shape;
  bad.ranks = 0;
  EXPECT_EQ(message(bad), "layer: expected at least 1 rank, got 0");
  bad = shape;
  bad.experts = 0;
  EXPECT_EQ(message(bad), "layer: expected at least 1 expert, got 0");
  bad = shape;
  bad.shards = 0;
  EXPECT_EQ(message(bad), "layer: expected at least 1 shard, got 0");
  bad = shape;
  bad.slots = 0;
  EXPECT_EQ(message(bad), "layer: expected slots for all shards, got 0");
  bad = shape;
  bad.rowBytes = -1;
  EXPECT_EQ(message(bad), "layer: expected 0 or more bytes of a row, got -1");
  bad = shape;
  bad.weights[0].bytes = -2;
  EXPECT_EQ(message(bad),
            "layer: expected 0 or more bytes of a weight, got -2");
  auto model = LayerModel::create(shape, Topology::uniform(8, 1e9, 0), costs);
  auto plan = [&](LayerPlan p) { return (*model)->check(p).message; };
  EXPECT_EQ(plan({3, 0, 1, 0, 0}),
            "plan: expected copies that are 0 or divide the shards, got 3");
  EXPECT_EQ(plan({1, 2, 1, 0, 0}), "plan: expected schedule 0 or 1, got 2");
  EXPECT_EQ(plan({1, 0, 65, 0, 0}),
            "plan: expected a degree from 1 to 64, got 65");
  EXPECT_EQ(plan({1, 0, 1, 2, 0}), "plan: expected exchange 0 or 1, got 2");
  // One spare slot is too few for the four shards of an expert.
  EXPECT_EQ(plan({1, 0, 1, 0, 1}), "plan: expected from 0 to 0 shadows, got 1");
  EXPECT_TRUE((*model)->check({4, 1, 1, 1, 0}).ok());
}
