// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LayerModel.h"

#include "base/Hash.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

// Rows of more groups are not told apart.
static constexpr int maxGroups = 32;

static int groupSizeOf(const Topology &topology) {
  // As Members::groups has it: the ranks of one node alone are no groups.
  int node = topology.ranksPerNode();
  return node > 0 && node < topology.ranks() ? node : 1;
}

LayerModel::LayerModel(const LayerShape &shape, const Topology &topology,
                       const Calibration &calibration,
                       ShadowTransport transport)
    : layer(shape), topology(topology), costs(calibration),
      transport(transport), rankGroupSize(groupSizeOf(topology)),
      groupCount((shape.ranks + rankGroupSize - 1) / rankGroupSize),
      hierarchical(rankGroupSize > 1 && shape.ranks % rankGroupSize == 0),
      lanes(shape.ranks <= BatchCost::exactRanks ? shape.ranks : 1),
      batch(topology),
      flows(shape, groupCount <= maxGroups ? groupCount : 1, rankGroupSize) {
  size_t pairs = size_t(layer.ranks) * layer.ranks;
  for (std::vector<Flow> *flows : {&stage[0], &stage[1], &subset})
    flows->resize(pairs);
  size_t most = std::max(groupCount, maxDegree);
  for (auto *list : {&times[0], &times[1]}) {
    list->resize(most);
    for (Duration &duration : *list) {
      batch.reserve(duration.batches[0]);
      batch.reserve(duration.batches[1]);
      duration.zero.resize(lanes);
      duration.perByte.resize(lanes);
    }
  }
  batch.reserve(once);
  if (lanes == 1)
    traffic =
        std::make_unique<LinkTraffic>(topology, rankGroupSize, hierarchical);
  busiest.resize(layer.ranks);
  chunks.compute.resize(most, Lanes(lanes));
  arrived.resize(most, Lanes(lanes));
  byParts.resize(maxDegree + 1);
  pieceSlots.resize(lanes > 1 ? flows.maxSlots() : 0);
  for (Lanes *list : {&queue, &clock, &scratch, &own, &countsTime})
    list->resize(lanes);
}

Result<std::unique_ptr<LayerModel>>
LayerModel::create(const LayerShape &shape, const Topology &topology,
                   const Calibration &calibration, ShadowTransport transport) {
  MOIRA_RETURN_IF_ERROR(shape.check());
  if (topology.ranks() != shape.ranks)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("layer: expected a topology of ", shape.ranks,
                         " ranks, got ", topology.ranks()));
  std::unique_ptr<LayerModel> model(
      new LayerModel(shape, topology, calibration, transport));
  model->timeCounts();
  MOIRA_RETURN_IF_ERROR(model->setPlacement(nullptr));
  return model;
}

uint64_t LayerModel::hash() const {
  std::string text = costs.toJson();
  uint64_t hash = hashBytes(text.data(), text.size());
  auto add = [&](auto value) { hash = hashBytes(&value, sizeof(value), hash); };
  for (int number :
       {layer.ranks, layer.experts, layer.shards, layer.slots,
        int(layer.training), int(layer.gathersAgain), int(layer.backInOneChunk),
        int(layer.lateShadows), int(transport), rankGroupSize})
    add(number);
  for (int64_t bytes :
       {layer.rowBytes, layer.resultBytes, layer.partialBytes,
        layer.resultGradientBytes, layer.rowGradientBytes, layer.hiddenBytes})
    add(bytes);
  for (const WeightShape &weight : layer.weights) {
    add(weight.bytes);
    add(weight.gradientBytes);
    add(int(weight.replicated));
  }
  for (const Link &link : topology.links()) {
    add(link.bandwidth);
    add(link.latency);
    add(link.overhead);
  }
  for (int p = 0; p < layer.ranks; ++p)
    for (int q = 0; q < layer.ranks; ++q)
      for (int link : topology.path(p, q))
        add(link);
  return hash;
}

Status LayerModel::check(const LayerPlan &plan) const {
  auto invalid = [](const char *what, int64_t got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("plan: expected ", what, ", got ", got));
  };
  if (plan.copies < 0 || (plan.copies > 0 && layer.shards % plan.copies != 0))
    return invalid("copies that are 0 or divide the shards", plan.copies);
  if (plan.schedule != MOIRA_SCHEDULE_EQUAL &&
      plan.schedule != MOIRA_SCHEDULE_GROUPS)
    return invalid("schedule 0 or 1", plan.schedule);
  if (plan.degree < 1 || plan.degree > maxDegree)
    return invalid("a degree from 1 to 64", plan.degree);
  if (plan.exchange != 0 && plan.exchange != 1)
    return invalid("exchange 0 or 1", plan.exchange);
  int most = plan.copies == 0 ? 0 : maxShadows();
  if (plan.shadows < 0 || plan.shadows > most)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("plan: expected from 0 to ", most, " shadows, got ",
                         plan.shadows));
  return Status();
}

//===----------------------------------------------------------------------===//
// What does not depend on loads
//===----------------------------------------------------------------------===//

Status LayerModel::setPlacement(const int32_t *slotTable) {
  flowsSet = false;
  counts = nullptr;
  std::vector<int32_t> even;
  if (!slotTable) {
    even = layer.evenTable();
    slotTable = even.data();
  }
  MOIRA_RETURN_IF_ERROR(table.set({layer.experts, layer.shards, 1, layer.slots},
                                  slotTable, layer.ranks));
  timeWeights();
  timeShadows();
  return Status();
}

/// Runs `subset`.
void LayerModel::carry(double unitBytes, bool back, Lanes &ends) {
  batch.set(subset.data(), back, once);
  batch.run(once, unitBytes, ends);
}

/// The record of docs/ranks.md: 48 bytes and the counts.
void LayerModel::timeCounts() {
  int ranks = layer.ranks;
  double bytes = 48 + 4.0 * layer.experts;
  std::fill(countsTime.begin(), countsTime.end(), 0);
  if (ranks < 16) { // AllGather's own numbers
    std::fill(subset.begin(), subset.end(), Flow{bytes, 1});
    carry(1, false, countsTime);
    return;
  }
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::fill(subset.begin(), subset.end(), Flow());
    for (int p = 0; p < ranks; ++p)
      subset[size_t(p) * ranks + (p + ranks - distance) % ranks] = {
          bytes * std::min(distance, ranks - distance), 1};
    carry(1, false, countsTime);
  }
}

/// What each rank needs of one weight (weightPieces in
/// collective/RowPieces.h), and what that takes.
void LayerModel::addNeeds(Weights &weights, const WeightShape &weight,
                          Lanes &gather, Lanes &reduce) {
  int ranks = layer.ranks, shards = layer.shards;
  std::fill(subset.begin(), subset.end(), Flow());
  int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t parts = 0;
    auto need = [&](Place from) {
      Flow &flow = subset[size_t(from.rank) * ranks + rank];
      flow.amount += 1;
      flow.messages += 1;
      ++parts;
    };
    auto anyOf = [&](int expert) {
      for (int h = 0; h < shards; ++h) {
        Place place = table.holderFor(expert * shards + h, rank);
        if (place.rank == rank)
          return place;
      }
      return table.holderFor(expert * shards + rank % shards, rank);
    };
    if (weights.copies == 0 && weight.replicated) {
      for (int e = 0; e < layer.experts; ++e)
        need(anyOf(e));
    } else if (weights.copies == 0) {
      for (int unit = 0; unit < layer.units(); ++unit)
        need(table.holderFor(unit, rank));
    } else if (!weight.replicated) {
      int group = shards / weights.copies;
      for (int slot = 0; slot < layer.slots; ++slot)
        if (int unit = table.unit(rank, slot); unit >= 0 && group > 1)
          for (int j = 0; j < group; ++j)
            need(table.holderFor(unit - unit % shards % group + j, rank));
    }
    most = std::max(most, parts);
  }
  weights.bytes += most * weight.bytes;
  weights.gradientBytes += most * weight.gradientBytes;
  if (weight.bytes > 0)
    carry(double(weight.bytes), false, gather);
  BatchFlows &back = weights.back[weight.replicated];
  batch.set(subset.data(), true, back);
  if (weight.gradientBytes > 0)
    batch.run(back, double(weight.gradientBytes), reduce);
}

void LayerModel::timeWeights() {
  weightTimes.clear();
  for (int copies = 0; copies <= layer.shards; ++copies) {
    if (copies > 0 && layer.shards % copies != 0)
      continue;
    Weights weights;
    weights.copies = copies;
    for (BatchFlows &back : weights.back)
      batch.reserve(back);
    weights.gather.assign(lanes, 0);
    weights.reduce.assign(lanes, 0);
    for (const WeightShape &weight : layer.weights)
      addNeeds(weights, weight, weights.gather, weights.reduce);
    weightTimes.push_back(std::move(weights));
  }
}

const LayerModel::Weights &LayerModel::weightsOf(int copies) const {
  return *std::find_if(
      weightTimes.begin(), weightTimes.end(),
      [&](const Weights &weights) { return weights.copies == copies; });
}
