// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PlanComparison.h"

#include "collective/VirtualClock.h"
#include "session/Adaptation.h"
#include "support/CommandLine.h"

#include <algorithm>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// The variants that differ in more than rows, as choices.
static SelectionSpace spaceOf(const EntrySpec &entry) {
  SelectionSpace space;
  for (const VariantSpec &variant : entry.variants) {
    VariantChoice choice = choiceOf(variant);
    bool known = llvm::any_of(space.variants, [&](const VariantChoice &other) {
      return other.copies == choice.copies && other.schedule == choice.schedule;
    });
    if (variant.copies >= 0 && !known)
      space.variants.push_back(choice);
  }
  return space;
}

llvm::Expected<std::unique_ptr<PlanComparison>>
PlanComparison::create(const EntrySpec &entry, const Grid &grid, bool training,
                       const std::optional<Calibration> &known) {
  const Communicator *group =
      grid.ranks() > 1 ? grid.communicator(grid.local().front()).get()
                       : nullptr;
  const VirtualClock *clock = group ? group->clock() : nullptr;
  if (!clock || !clock->costs())
    return llvm::createStringError(
        "--compare-plans: expected --clock virtual with --clock-calibration, "
        "got another clock");
  std::unique_ptr<PlanComparison> made(
      new PlanComparison(clock->network->description(), *clock->costs()));
  SelectionSpace space = spaceOf(entry);
  space.maxShadows = INT32_MAX;
  for (const LayerSpec &spec : entry.layers) {
    if (!spec.placement || !spec.cost)
      return llvm::createStringError(
          "--compare-plans: layer " + llvm::Twine(spec.index) +
          ": expected a placement and costs in the manifest, got none");
    auto layer = std::make_unique<Layer>();
    layer->shape = layerShape(entry, spec);
    layer->shape.training = layer->shape.gathersAgain =
        layer->shape.backInOneChunk = training;
    layer->simulator = std::make_unique<LayerSimulator>(
        layer->shape, made->topology, made->compute, ShadowTransport::BySize);
    std::vector<int32_t> table = layer->shape.evenTable();
    Status placed = layer->placement.set(
        {layer->shape.experts, layer->shape.shards, 1, layer->shape.slots},
        table.data(), layer->shape.ranks);
    if (!placed.ok())
      return toError(placed);
    layer->loads.resize(layer->shape.experts);
    space.maxShadows =
        std::min({space.maxShadows, layer->shape.experts,
                  layer->shape.spareSlots() / layer->shape.shards});
    auto model = LayerModel::create(layer->shape, made->topology,
                                    known ? *known : made->calibration);
    if (!model.ok())
      return toError(model.status());
    if ((*model)->groupSize() != group->groups().groupSize)
      return llvm::createStringError(
          "--compare-plans: expected a topology with groups of " +
          llvm::Twine(group->groups().groupSize) +
          " ranks, as --ranks-per-node says, got groups of " +
          llvm::Twine((*model)->groupSize()));
    space.hierarchical = (*model)->hasHierarchical();
    if (known)
      layer->model = std::move(*model);
    made->layers.push_back(std::move(layer));
  }
  made->maxShadows = space.maxShadows;
  made->candidates = space.candidates();
  return made;
}

const std::vector<int32_t> &
PlanComparison::Layer::shadows(const std::vector<int32_t> &counts, int most) {
  std::fill(loads.begin(), loads.end(), 0);
  for (size_t i = 0; i < counts.size(); ++i)
    loads[i % shape.experts] += counts[i];
  return order.find(placement, counts.data(), loads, most);
}

/// Adds a layer's seconds under each plan.
llvm::Error PlanComparison::add(Layer &layer,
                                const std::vector<int32_t> &counts,
                                std::vector<double> &seconds) {
  const LayerShape &shape = layer.shape;
  if (counts.size() != size_t(shape.ranks) * shape.experts)
    return llvm::createStringError(
        "--compare-plans: expected a step in which the ranks tell each other "
        "their rows, got one without");
  std::vector<int32_t> order = layer.shadows(counts, maxShadows);
  std::vector<int32_t> table;
  for (size_t c = 0; c < candidates.size(); ++c) {
    const LayerPlan &plan = candidates[c].plan;
    int shadows = std::min<int>(plan.shadows, int(order.size()));
    std::vector<Place> shadowed;
    if (Status status =
            writeShadowTable(layer.placement, order.data(), shadows, table);
        !status.ok())
      return toError(status);
    for (int i = 0; i < shadows; ++i)
      for (int shard = 0; shard < shape.shards; ++shard)
        shadowed.push_back(
            layer.placement.holderFor(order[i] * shape.shards + shard, 0));
    Result<double> time =
        layer.simulator->run(plan, counts.data(), table.data(), shadowed);
    if (!time.ok())
      return toError(time.status());
    seconds[c] += *time;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<double>> PlanComparison::times(const StepRow &row) {
  std::vector<double> seconds(candidates.size());
  for (size_t i = 0; i < layers.size(); ++i)
    if (llvm::Error error = add(*layers[i], row.layers[i].matrix, seconds))
      return error;
  return seconds;
}

std::vector<double> PlanComparison::predictions(const StepRow &row) {
  std::vector<double> seconds;
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer &layer = *layers[i];
    if (!layer.model)
      return {};
    seconds.resize(candidates.size());
    const std::vector<int32_t> &counts = row.layers[i].matrix;
    const std::vector<int32_t> &order = layer.shadows(counts, maxShadows);
    layer.model->setLoads(counts.data(), order.data(), int(order.size()));
    for (size_t c = 0; c < candidates.size(); ++c) {
      LayerPlan plan = candidates[c].plan;
      plan.shadows = std::min<int>(plan.shadows, int(order.size()));
      seconds[c] += layer.model->predict(plan).seconds;
    }
  }
  return seconds;
}
