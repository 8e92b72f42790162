// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machines that do not exist, for tests of models: kernels whose times no model
// has been told, clusters, layers, loads.

#ifndef MOIRA_UNITTESTS_COST_WORLD_H
#define MOIRA_UNITTESTS_COST_WORLD_H

#include "cost/LayerModel.h"
#include "cost/LayerSimulator.h"
#include "cost/LoadTrace.h"

#include <cmath>

namespace moira::test {

using runtime::Calibration;
using runtime::CalibrationPoint;
using runtime::ComputeTimes;
using runtime::Detail;
using runtime::Draws;
using runtime::LayerModel;
using runtime::LayerPlan;
using runtime::LayerPrediction;
using runtime::LayerShape;
using runtime::LayerSimulator;
using runtime::LoadOptions;
using runtime::LoadTrace;
using runtime::Measured;
using runtime::RecordedLoads;
using runtime::ShadowTransport;
using runtime::Topology;

/// A kernel in tiles of rows, bound by its weights where rows are few, less
/// efficient where they are some. Not a form that the model can express.
class TiledKernel : public ComputeTimes {
public:
  double perRow = 2e-7, weights = 4e-6, start = 3e-6;
  int tile = 8;

  double call(bool) const override { return start; }
  double group(int64_t rows, bool backward) const override {
    double tiles = std::ceil(double(rows) / tile) * tile;
    double efficiency = 1 - 0.25 / (1 + double(rows) / 64);
    double seconds = 5e-7 + std::hypot(weights, tiles * perRow / efficiency);
    return backward ? 2.1 * seconds : seconds;
  }
  double gate(int64_t rows) const override { return 4e-6 + 6e-9 * rows; }
  double dispatch(int64_t rows) const override { return 1e-6 + 4e-9 * rows; }
  double combine(int64_t rows) const override { return 1e-6 + 5e-9 * rows; }
};

/// What somebody who may ask the machine 20 times finds out.
inline Calibration calibrate(const ComputeTimes &times) {
  std::vector<CalibrationPoint> points;
  auto kernel = [&](int64_t groups, int64_t rows, bool backward) {
    points.push_back(
        {backward ? Measured::Backward : Measured::Forward, double(groups),
         double(rows),
         times.call(backward) + double(groups) * times.group(rows, backward)});
  };
  for (int64_t rows : {4, 16, 48, 128, 512, 2048, 8192})
    kernel(2, rows, false);
  kernel(8, 16, false);
  for (int64_t rows : {4, 32, 128, 1024, 8192})
    kernel(2, rows, true);
  kernel(8, 32, true);
  for (int64_t rows : {100, 10000}) {
    points.push_back({Measured::Gate, 1, double(rows), times.gate(rows)});
    points.push_back(
        {Measured::Dispatch, 1, double(rows), times.dispatch(rows)});
    points.push_back({Measured::Combine, 1, double(rows), times.combine(rows)});
  }
  return *Calibration::fit(points);
}

inline Topology cluster(int nodes, int perNode, double intra = 12e9,
                        double inter = 3e9, const char *kind = "switch",
                        const char *per = "node", double overhead = 0) {
  return *Topology::parse(
      concat(R"({"nodes": )", nodes, R"(, "ranks_per_node": )", perNode,
             R"(, "intra": {"bandwidth": )", intra,
             R"(, "latency": 2e-6, "overhead": )", overhead, R"(, "kind": ")",
             kind, R"("}, "inter": {"bandwidth": )", inter,
             R"(, "latency": 5e-6, "overhead": )", overhead, R"(, "per": ")",
             per, R"("}})"));
}

/// A layer with rows of `model` bf16 elements and gated experts.
inline LayerShape layerShape(int ranks, int experts, int64_t model,
                             int64_t hidden, int spare = 0,
                             bool training = false) {
  LayerShape shape;
  shape.ranks = ranks;
  shape.experts = experts;
  shape.shards = experts < ranks ? ranks / experts : 1;
  shape.slots = experts * shape.shards / ranks + spare;
  shape.rowBytes = shape.resultBytes = 2 * model;
  shape.partialBytes = 4 * model;
  shape.resultGradientBytes = shape.rowGradientBytes = 2 * model;
  shape.hiddenBytes = 2 * hidden;
  for (int i = 0; i < 2; ++i) {
    int64_t elements = model * hidden / shape.shards;
    shape.weights.push_back({2 * elements, 4 * elements, false});
  }
  shape.training = training;
  return shape;
}

inline std::vector<int32_t> loads(const std::string &name, int ranks,
                                  int experts, int64_t tokens, int topK,
                                  uint64_t seed = 1) {
  LoadOptions options;
  if (!options.parse(name).ok())
    std::abort();
  options.ranks = ranks;
  options.experts = experts;
  options.tokens = tokens;
  options.topK = topK;
  options.seed = seed;
  options.first = 400;
  LoadTrace trace = *LoadTrace::create(options);
  trace.next();
  std::vector<int32_t> matrix;
  trace.rows(matrix);
  return matrix;
}

/// All plans of a model, in the order that suits it.
inline std::vector<LayerPlan> allPlans(const LayerModel &model) {
  std::vector<LayerPlan> plans;
  const LayerShape &shape = model.shape();
  for (int copies = 0; copies <= shape.shards; ++copies) {
    if (copies > 0 && shape.shards % copies != 0)
      continue;
    if (copies == 0) {
      plans.push_back({0, 0, 1, 0, 0});
      continue;
    }
    for (int shadows = 0; shadows <= model.maxShadows(); ++shadows)
      for (int exchange = 0; exchange <= model.hasHierarchical(); ++exchange) {
        for (int degree : {1, 2, 4, 8})
          plans.push_back(
              {copies, MOIRA_SCHEDULE_EQUAL, degree, exchange, shadows});
        plans.push_back({copies, MOIRA_SCHEDULE_GROUPS, 1, exchange, shadows});
      }
  }
  return plans;
}

} // namespace moira::test

#endif // MOIRA_UNITTESTS_COST_WORLD_H
