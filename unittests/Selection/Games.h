// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs of a decider against a machine that does not exist.

#ifndef MOIRA_UNITTESTS_SELECTION_GAMES_H
#define MOIRA_UNITTESTS_SELECTION_GAMES_H

#include "Cost/World.h"
#include "placement/Shadowing.h"
#include "selection/Decider.h"
#include "selection/FlightLog.h"

#include <gtest/gtest.h>

namespace moira::test {

using runtime::Candidate;
using runtime::Decider;
using runtime::Decision;
using runtime::FlightLog;
using runtime::FlightRecorder;
using runtime::SelectionOptions;
using runtime::SelectionSpace;
using runtime::ShadowOrder;

/// A layer on a cluster, with what its calibration says and with what is true.
struct Machine {
  Topology topology;
  LayerShape shape;
  Calibration known, truth;
  double bias = 0.1;   ///< what a candidate's true time is off by, at most
  double noise = 0.02; ///< of each step

  std::unique_ptr<LayerModel> model(const Calibration &costs) const {
    auto made =
        LayerModel::create(shape, topology, costs, ShadowTransport::Split);
    EXPECT_TRUE(made.ok()) << made.status().message;
    return std::move(*made);
  }
  SelectionSpace space() const {
    SelectionSpace space;
    auto some = model(known);
    for (int copies = 0; copies <= shape.shards; ++copies)
      if (copies == 0 || shape.shards % copies == 0) {
        space.variants.push_back(
            {concat("r", copies), copies, MOIRA_SCHEDULE_EQUAL,
             copies > 1 && shape.shards == 3 ? "other" : "exact"});
        if (copies > 0)
          space.variants.push_back({concat("r", copies, " groups"), copies,
                                    MOIRA_SCHEDULE_GROUPS, "exact"});
      }
    space.hierarchical = some->hasHierarchical();
    space.maxShadows = std::min(some->maxShadows(), shape.experts);
    return space;
  }
  std::unique_ptr<Decider> decider(SelectionOptions options = {}) const {
    auto made = Decider::create(space(), model(known), options);
    EXPECT_TRUE(made.ok()) << made.status().message;
    return std::move(*made);
  }
};

/// A kernel of so many flops per second and bytes of weights, and the same as
/// it really is: a tenth slower, a fifth where rows are few.
inline void setKernels(Machine &machine, double flopsPerRow, double flops,
                       double weightSeconds) {
  TiledKernel told, real;
  told.perRow = flopsPerRow / flops;
  told.weights = weightSeconds;
  real.perRow = 1.1 * told.perRow;
  real.weights = 1.2 * told.weights;
  machine.known = calibrate(told);
  machine.truth = calibrate(real);
}

/// Training of 32 gated experts on two nodes of four.
inline Machine machineA(int spare = 3) {
  Machine machine{cluster(2, 4, 50e9, 12.5e9),
                  layerShape(8, 32, 1024, 1024, spare, true),
                  {},
                  {}};
  setKernels(machine, 12.0 * 1024 * 1024, 20e12, 6e-6);
  return machine;
}

/// Two experts on eight ranks, links that are slow for the products.
inline Machine machineB() {
  Machine machine{
      cluster(2, 4, 16e9, 8e9, "direct"), layerShape(8, 2, 1024, 1024), {}, {}};
  setKernels(machine, 4.0 * 1024 * 1024, 50e12, 4e-6);
  return machine;
}

/// Four ranks, eight experts, two spare slots, variants of two classes.
struct Small {
  Machine machine{
      cluster(2, 2, 10e9, 2e9), layerShape(4, 8, 256, 512, 2), {}, {}};
  SelectionSpace space;

  Small() {
    setKernels(machine, 4.0 * 256 * 512, 1e12, 3e-6);
    space.variants = {{"gather", 0, MOIRA_SCHEDULE_EQUAL, "exact"},
                      {"exchange", 1, MOIRA_SCHEDULE_EQUAL, "exact"},
                      {"groups", 1, MOIRA_SCHEDULE_GROUPS, "exact"},
                      {"fast", 1, MOIRA_SCHEDULE_EQUAL, "rounded"}};
    space.hierarchical = true;
    space.maxShadows = 2;
  }
  std::unique_ptr<Decider> decider(SelectionOptions options = {}) const {
    auto made = Decider::create(space, machine.model(machine.known), options);
    EXPECT_TRUE(made.ok()) << made.status().message;
    return std::move(*made);
  }
  std::string refused(SelectionSpace other, SelectionOptions options = {}) {
    return Decider::create(other, machine.model(machine.known), options)
        .status()
        .message;
  }
};

/// True times of all candidates under loads.
class Truth {
public:
  explicit Truth(const Machine &machine)
      : machine(machine), model(machine.model(machine.truth)),
        list(machine.space().candidates()) {}

  const std::vector<double> &times(const std::vector<int32_t> &counts) {
    std::vector<int64_t> loads(machine.shape.experts);
    for (size_t i = 0; i < counts.size(); ++i)
      loads[i % loads.size()] += counts[i];
    const std::vector<int32_t> &best = order.find(
        model->placement(), counts.data(), loads, machine.space().maxShadows);
    model->setLoads(counts.data(), best.data(), int(best.size()));
    seconds.clear();
    for (size_t c = 0; c < list.size(); ++c) {
      seconds.push_back(model->predict(list[c].plan).seconds * off(int(c)));
    }
    return seconds;
  }
  /// Of a decision: with the shadows that it chose by other loads.
  double timeOf(const std::vector<int32_t> &counts, const Decision &decision) {
    const LayerPlan &plan = list[decision.candidate].plan;
    model->setLoads(counts.data(), decision.shadows, plan.shadows);
    return model->predict(plan).seconds * off(decision.candidate);
  }
  double noisy(double time, int64_t step) const {
    Draws draws({13, 14}, uint32_t(step));
    return time * (1 + machine.noise * draws.normal());
  }

private:
  /// What the model does not know of a candidate.
  double off(int candidate) const {
    Draws draws({11, 12}, uint32_t(candidate));
    return 1 + machine.bias * (2 * draws.uniform() - 1);
  }

  const Machine &machine;
  std::unique_ptr<LayerModel> model;
  std::vector<Candidate> list;
  ShadowOrder order;
  std::vector<double> seconds;
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_SELECTION_GAMES_H
