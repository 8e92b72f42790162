// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Rebalancing.h"

#include "placement/OwnerSwaps.h"
#include "placement/Shadowing.h"
#include "session/Adaptation.h"

#include <algorithm>
#include <climits>
#include <limits>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

/// What the policy thinks that a layer's step takes.
static ReplicaCosts costsOf(const EntrySpec &entry, const LayerSpec &layer,
                            const Calibration &calibration,
                            const Topology &topology) {
  const LayerCostSpec &cost = *layer.cost;
  bool trains = !entry.backward.empty();
  // Products far from where weights count more than rows.
  auto perRow = [](const KernelCurve &curve) {
    double far = curve.rows.empty() ? 1 : 2 * curve.rows.back();
    return curve.group(2 * far) / far - curve.group(far) / far;
  };
  ReplicaCosts costs;
  costs.perRow = perRow(calibration.forward);
  costs.bytesPerRow = double(cost.rowBytes + cost.resultBytes);
  int64_t gradients = 0;
  for (const LayerWeightSpec &weight : cost.weights) {
    costs.stateBytes += double(weight.bytes);
    gradients += weight.gradientBytes;
  }
  if (!trains)
    return costs;
  costs.perRow += perRow(calibration.backward);
  costs.bytesPerRow += double(cost.resultGradientBytes + cost.rowGradientBytes);
  costs.stateBytes += 3 * double(gradients); // two states and a master copy
  int last = topology.ranks() - 1;
  costs.syncIntra = topology.messageSeconds(0, 1, gradients);
  costs.syncInter = topology.messageSeconds(0, last, gradients);
  return costs;
}

Result<std::unique_ptr<Rebalancing>>
Rebalancing::create(const EntrySpec &entry, const RankGroups &groups,
                    const RebalanceOptions &options) {
  auto invalid = [](auto... parts) {
    return Status(MOIRA_INVALID_ARGUMENT, concat("rebalance: ", parts...));
  };
  if (entry.ranks == 1)
    return invalid("expected an entry for several ranks, got one for 1");
  if (entry.ranks != groups.ranks)
    return invalid("expected an entry for ", groups.ranks,
                   " ranks, as the session has, got one for ", entry.ranks);
  if (!(options.threshold >= 1) || options.maxRounds < 0 || options.steps < 1)
    return invalid("expected a threshold of 1 or more, 0 or more rounds and 1 "
                   "or more steps, got ",
                   options.threshold, ", ", options.maxRounds, " and ",
                   options.steps);
  if (options.topology && options.topology->ranks() != entry.ranks)
    return invalid("expected a topology of ", entry.ranks, " ranks, got ",
                   options.topology->ranks());
  std::unique_ptr<Rebalancing> made(new Rebalancing(options));
  for (const LayerSpec &spec : entry.layers) {
    if (!spec.placement || !spec.cost || spec.placement->shards != 1)
      return invalid("layer ", spec.index,
                     ": expected costs and experts that one rank holds whole, "
                     "got others");
    Calibration calibration = chooseCalibration(options.calibration, spec);
    Result<Topology> topology =
        chooseTopology(options.topology, calibration, groups);
    if (!topology.ok())
      return topology.status();
    Layer layer;
    layer.index = spec.index;
    layer.counts.assign(size_t(entry.ranks) * spec.placement->experts, 0);
    ReplicaCosts costs = costsOf(entry, spec, calibration, *topology);
    layer.policy = std::make_unique<ReplicaPolicy>(
        *topology, costs, options.threshold, options.maxRounds);
    layer.stateBytes = int64_t(costs.stateBytes);
    made->layers.push_back(std::move(layer));
  }
  return made;
}

void Rebalancing::count(const StepRow &row) {
  for (const LayerRow &counted : row.layers)
    for (Layer &layer : layers)
      if (layer.index == counted.layer &&
          layer.counts.size() == counted.matrix.size()) {
        ++layer.steps;
        for (size_t i = 0; i < layer.counts.size(); ++i)
          layer.counts[i] +=
              std::min(counted.matrix[i], INT_MAX - layer.counts[i]);
      }
}

/// Slots as virtual experts: a free one is a larger share of what its rank has.
static ReplicaTable tableOf(const Placement &placement) {
  std::vector<int32_t> table;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    int32_t own = -1;
    for (int slot = placement.slots(); slot-- > 0;)
      own = placement.unit(rank, slot) >= 0 ? placement.unit(rank, slot) : own;
    for (int slot = 0; slot < placement.slots(); ++slot) {
      int32_t unit = placement.unit(rank, slot);
      table.push_back(unit >= 0 ? unit : std::max(own, 0));
    }
  }
  // Every expert stands somewhere, as every placement has it.
  return *ReplicaTable::create(placement.ranks(), placement.slots(),
                               placement.experts(), table);
}

/// Rows of the fullest rank, as exchanges divide them.
static int64_t mostRows(const Placement &placement, const int32_t *counts) {
  std::vector<int64_t> rows(placement.ranks());
  for (int source = 0; source < placement.ranks(); ++source)
    for (int e = 0; e < placement.experts(); ++e)
      rows[placement.holderFor(e, source).rank] +=
          counts[size_t(source) * placement.experts() + e];
  return *std::max_element(rows.begin(), rows.end());
}

/// What a step takes on a table with the best number of shadows and chunks.
static double bestSeconds(LayerModel &model, const Placement &placement,
                          const std::vector<int32_t> &table,
                          const std::vector<int32_t> &counts, int shadows) {
  if (!model.setPlacement(table.data()).ok())
    return std::numeric_limits<double>::infinity();
  std::vector<int64_t> loads(placement.experts());
  for (size_t i = 0; i < counts.size(); ++i)
    loads[i % loads.size()] += counts[i];
  ShadowOrder order;
  const std::vector<int32_t> &first =
      order.find(placement, counts.data(), loads, shadows);
  model.setLoads(counts.data(), first.data(), int(first.size()));
  double least = std::numeric_limits<double>::infinity();
  for (int count = 0; count <= int(first.size()); ++count)
    for (int degree : {1, 2, 4, 8})
      least = std::min(
          least,
          model.predict({1, MOIRA_SCHEDULE_EQUAL, degree, 0, count}).seconds);
  return least;
}

std::optional<std::vector<int32_t>> Rebalancing::swap(const Layer &layer,
                                                      const Placement &now,
                                                      LayerModel &model,
                                                      int shadows) const {
  std::vector<int32_t> counts = layer.counts, current, proposed;
  for (int32_t &count : counts)
    count = int32_t(count / std::max<int64_t>(layer.steps, 1));
  for (int rank = 0; rank < now.ranks(); ++rank)
    for (int slot = 0; slot < now.slots(); ++slot)
      current.push_back(now.unit(rank, slot));
  std::vector<int64_t> rows = rowsBesideShadows(now, counts.data(), shadows);
  int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t(0));
  if (double(*std::max_element(rows.begin(), rows.end())) * now.ranks() <=
      options.threshold * double(all))
    return std::nullopt;
  std::vector<OwnerSwap> swaps =
      swapOwners(now, counts.data(), shadows, options.maxRounds, proposed);
  Placement after;
  if (swaps.empty() ||
      !after.set(now.constants(), proposed.data(), now.ranks()).ok())
    return std::nullopt;
  double gain = bestSeconds(model, now, current, counts, shadows) -
                bestSeconds(model, after, proposed, counts, shadows);
  // As if one move came after the other.
  double moves =
      2 * double(swaps.size()) *
      model.cluster().messageSeconds(0, now.ranks() - 1, layer.stateBytes);
  if (!(gain * double(options.steps) > moves))
    return std::nullopt;
  return proposed;
}

std::optional<std::vector<int32_t>> Rebalancing::propose(size_t index,
                                                         const Placement &now,
                                                         LayerModel *model,
                                                         int shadows) {
  Layer &layer = layers[index];
  if (model) {
    std::optional<std::vector<int32_t>> swapped =
        swap(layer, now, *model, shadows);
    std::fill(layer.counts.begin(), layer.counts.end(), 0);
    layer.steps = 0;
    return swapped;
  }
  std::vector<int32_t> current, proposed;
  for (int rank = 0; rank < now.ranks(); ++rank)
    for (int slot = 0; slot < now.slots(); ++slot)
      current.push_back(now.unit(rank, slot));
  // Shares of slots are not in the table that exchanges read: they are kept.
  if (!layer.table || layer.table->slotTable() != current)
    layer.table = tableOf(now);
  ReplicaTable next = *layer.table;
  bool changed = !layer.policy->adjust(next, layer.counts.data()).empty();
  changed |=
      !layer.policy->migrate(next, layer.counts.data(), options.steps).empty();
  proposed = next.slotTable();
  Placement after;
  bool better =
      changed && proposed != current &&
      after.set(now.constants(), proposed.data(), now.ranks()).ok() &&
      mostRows(after, layer.counts.data()) < mostRows(now, layer.counts.data());
  std::fill(layer.counts.begin(), layer.counts.end(), 0);
  layer.steps = 0;
  if (!better)
    return std::nullopt;
  layer.table = std::move(next);
  return proposed;
}
