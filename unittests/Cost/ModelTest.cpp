// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Predictions against what they predict.

#include "Cost/World.h"

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
  void merge(const Errors &other) {
    relative.insert(relative.end(), other.relative.begin(),
                    other.relative.end());
    regrets.insert(regrets.end(), other.regrets.begin(), other.regrets.end());
  }
};

/// All plans of a layer on a cluster under loads, predicted and simulated.
Errors measure(const Topology &topology, const LayerShape &shape,
               const std::vector<int32_t> &counts, bool print = false) {
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
    double predicted = (*model)->predict(plan).seconds;
    double seconds = *simulator.run(plan, counts.data(), nullptr);
    errors.relative.push_back(std::abs(predicted / seconds - 1));
    if (print)
      printf("r%d sched%d d%d x%d: %.1f us predicted %.1f (%+.1f %%)\n",
             plan.copies, plan.schedule, plan.degree, plan.exchange,
             seconds * 1e6, predicted * 1e6, 100 * (predicted / seconds - 1));
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
    printf("%-28s %5zu points: mean %.2f %%, p95 %.2f %%, top-1 regret %.2f "
           "%%\n",
           name, ofCluster.relative.size(), 100 * ofCluster.mean(),
           100 * ofCluster.percentile(0.95), 100 * ofCluster.regret());
    all.merge(ofCluster);
  }
  printf("%-28s %5zu points: mean %.2f %%, p95 %.2f %%, top-1 regret %.2f %%\n",
         "all", all.relative.size(), 100 * all.mean(),
         100 * all.percentile(0.95), 100 * all.regret());
  EXPECT_LE(all.mean(), 0.08);
  EXPECT_LE(all.percentile(0.95), 0.25);
  EXPECT_LE(all.regret(), 0.02);
}
