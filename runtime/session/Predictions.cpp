// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Predictions.h"

#include "cost/LayerModel.h"
#include "session/Adaptation.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

/// Pairs of each rank and expert when `rows` tokens choose evenly.
static std::vector<int32_t> evenCounts(const EntrySpec &entry,
                                       const LayerSpec &layer, int64_t rows) {
  int64_t experts = layer.experts, pairs = rows * layer.topK;
  std::vector<int32_t> counts;
  for (int rank = 0; rank < entry.ranks; ++rank)
    for (int64_t e = 0; e < experts; ++e)
      counts.push_back(
          int32_t((e + 1) * pairs / experts - e * pairs / experts));
  return counts;
}

static Status addLayer(const EntrySpec &entry, const LayerSpec &layer,
                       int64_t rows,
                       const std::optional<Calibration> &calibration,
                       std::vector<VariantPrediction> &sums) {
  Calibration costs = chooseCalibration(calibration, layer);
  Topology topology = Topology::uniform(
      entry.ranks, 1 / costs.intra.secondsPerByte, costs.intra.latency);
  auto model = LayerModel::create(layerShape(entry, layer), topology, costs);
  if (!model.ok())
    return model.status();
  std::vector<int32_t> counts = evenCounts(entry, layer, rows);
  std::vector<int32_t> order(layer.experts);
  std::iota(order.begin(), order.end(), 0);
  MOIRA_RETURN_IF_ERROR((*model)->setPlacement(nullptr));
  (*model)->setLoads(counts.data(), order.data(), 0);
  for (size_t v = 0; v < entry.variants.size(); ++v) {
    const VariantSpec &variant = entry.variants[v];
    LayerPlan plan;
    plan.copies = variant.copies;
    plan.schedule = variant.scheduleOfPlans();
    MOIRA_RETURN_IF_ERROR((*model)->check(plan));
    LayerPrediction one = (*model)->predict(plan);
    sums[v].seconds += one.seconds;
    sums[v].peakBytes = std::max(sums[v].peakBytes, one.peakBytes);
  }
  return Status();
}

Result<std::vector<VariantPrediction>>
runtime::predictVariants(const EntrySpec &entry, int64_t rows,
                         const std::optional<Calibration> &calibration) {
  if (calibration && !(calibration->intra.secondsPerByte > 0))
    return Status(MOIRA_INVALID_ARGUMENT,
                  "calibration: expected the speed of links within a node, got "
                  "none");
  std::vector<VariantPrediction> sums(entry.variants.size());
  bool known = entry.ranks > 1 && !entry.layers.empty();
  for (const LayerSpec &layer : entry.layers)
    known &= layer.placement && layer.cost;
  for (const VariantSpec &variant : entry.variants)
    known &= variant.copies >= 0;
  if (!known)
    return std::vector<VariantPrediction>();
  for (const LayerSpec &layer : entry.layers)
    MOIRA_RETURN_IF_ERROR(addLayer(entry, layer, rows, calibration, sums)
                              .within(concat("layer ", layer.index)));
  return sums;
}
