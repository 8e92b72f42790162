// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LayerFlows.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

Status LayerShape::check() const {
  auto invalid = [](const char *what, int64_t got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("layer: expected ", what, ", got ", got));
  };
  if (ranks < 1)
    return invalid("at least 1 rank", ranks);
  if (experts < 1)
    return invalid("at least 1 expert", experts);
  if (shards < 1)
    return invalid("at least 1 shard", shards);
  if (int64_t(experts) * shards > INT32_MAX / ranks)
    return invalid("experts and shards whose product with ranks fits 31 bits",
                   int64_t(experts) * shards);
  if (spareSlots() < 0)
    return invalid("slots for all shards", slots);
  for (int64_t bytes : {rowBytes, resultBytes, partialBytes,
                        resultGradientBytes, rowGradientBytes, hiddenBytes})
    if (bytes < 0)
      return invalid("0 or more bytes of a row", bytes);
  for (const WeightShape &weight : weights)
    if (weight.bytes < 0 || weight.gradientBytes < 0)
      return invalid("0 or more bytes of a weight",
                     std::min(weight.bytes, weight.gradientBytes));
  return Status();
}

std::vector<int32_t> LayerShape::evenTable() const {
  std::vector<int32_t> table(size_t(ranks) * slots, -1);
  int own = (units() + ranks - 1) / ranks;
  for (int unit = 0; unit < units(); ++unit)
    table[size_t(unit / own) * slots + unit % own] = unit;
  return table;
}

LayerFlows::LayerFlows(const LayerShape &shape, int groups, int groupSize)
    : shape(shape), ranks(shape.ranks), groupCount(groups),
      groupSize(groupSize) {
  perShadow = shape.shards;
  // Spare slots are where shadows will stand; here they count behind the rest.
  int shadows = std::max(shape.spareSlots(), 0) / perShadow;
  width = shape.slots + shadows * perShadow;
  pairList.resize(size_t(ranks) * ranks);
  slotTotals.resize(size_t(ranks) * width);
  own.resize(ranks);
  shadowed.resize(shape.experts);
  sums.resize(size_t(groups) * shape.experts);
  if (groups > 1)
    fromGroups.resize(size_t(groups) * ranks * width);
}

void LayerFlows::move(int source, Place place, double rows, double sign) {
  if (rows <= 0)
    return;
  Flow &flow = pairList[size_t(source) * ranks + place.rank];
  flow.amount += sign * rows;
  flow.messages += sign;
  totalPieces += sign;
  slotTotals[size_t(place.rank) * width + place.slot] += sign * rows;
  if (groupCount > 1)
    fromGroups[(size_t(source / groupSize) * ranks + place.rank) * width +
               place.slot] += sign * rows;
}

void LayerFlows::set(const Placement &newPlacement, const int32_t *newCounts,
                     int newCopies) {
  placement = &newPlacement;
  counts = newCounts;
  copies = newCopies;
  shadowCount = 0;
  std::fill(shadowed.begin(), shadowed.end(), -1);
  std::fill(pairList.begin(), pairList.end(), Flow());
  std::fill(slotTotals.begin(), slotTotals.end(), 0);
  std::fill(fromGroups.begin(), fromGroups.end(), 0);
  totalPieces = 0;
  isDealtOut() ? setDealtOut() : setAny();
}

/// Whole experts in order, the same number on each rank: what a large grid
/// begins with.
bool LayerFlows::isDealtOut() const {
  if (shape.shards != 1 || shape.experts % ranks != 0)
    return false;
  int own = shape.experts / ranks;
  for (int e = 0; e < shape.experts; ++e)
    if (placement->holders(e) != 1 ||
        !(placement->holder(e, 0) == Place{e / own, e % own}))
      return false;
  return true;
}

void LayerFlows::setDealtOut() {
  int each = shape.experts / ranks, experts = shape.experts;
  std::fill(sums.begin(), sums.end(), 0);
  int64_t pieceTotal = 0;
  for (int p = 0; p < ranks; ++p) {
    const int32_t *mine = counts + size_t(p) * experts;
    Flow *row = pairList.data() + size_t(p) * ranks;
    int64_t *group =
        sums.data() + (groupCount > 1 ? size_t(p / groupSize) * experts : 0);
    int64_t all = 0;
    for (int e = 0; e < experts; ++e)
      group[e] += mine[e];
    for (int q = 0; q < ranks; ++q) {
      int64_t amount = 0, messages = 0;
      for (int e = q * each; e < (q + 1) * each; ++e) {
        amount += mine[e];
        messages += mine[e] > 0;
      }
      row[q] = {double(amount), double(messages)};
      all += amount;
      pieceTotal += messages;
    }
    own[p] = double(all);
  }
  totalPieces = double(pieceTotal);
  for (int g = 0; g < groupCount; ++g)
    for (int e = 0; e < experts; ++e) {
      double n = double(sums[size_t(g) * experts + e]);
      slotTotals[size_t(e / each) * width + e % each] += n;
      if (groupCount > 1)
        fromGroups[(size_t(g) * ranks + e / each) * width + e % each] = n;
    }
}

void LayerFlows::setAny() {
  for (int p = 0; p < ranks; ++p) {
    int64_t sum = 0;
    for (int e = 0; e < shape.experts; ++e) {
      int64_t n = counts[size_t(p) * shape.experts + e];
      sum += n;
      if (n > 0)
        pieces(e, n, [&](int unit, double rows) {
          move(p, placement->holderFor(unit, p), rows, 1);
        });
    }
    own[p] = double(sum);
  }
}

void LayerFlows::shadow(int expert) {
  int first = shape.slots + shadowCount * perShadow;
  for (int p = 0; p < ranks; ++p)
    pieces(expert, counts[size_t(p) * shape.experts + expert],
           [&](int unit, double rows) {
             Place place = placement->holderFor(unit, p);
             if (place.rank == p)
               return; // holds it anyway
             move(p, place, rows, -1);
             move(p, {p, first + unit % shape.shards}, rows, 1);
           });
  shadowed[expert] = shadowCount++;
}

void LayerFlows::chunk(int index, int degree, std::vector<Flow> &pairs,
                       std::vector<double> &slots) const {
  int count = slotsWithShadows();
  std::fill(pairs.begin(), pairs.end(), Flow());
  std::fill(slots.begin(), slots.begin() + size_t(ranks) * count, 0);
  for (int p = 0; p < ranks; ++p)
    for (int e = 0; e < shape.experts; ++e) {
      int64_t n = counts[size_t(p) * shape.experts + e];
      if (n > 0)
        pieces(e, n, [&](int unit, double piece) {
          int64_t rows = int64_t(piece);
          rows = (index + 1) * rows / degree - index * rows / degree;
          if (rows <= 0)
            return;
          Place place = placement->holderFor(unit, p);
          if (shadowed[e] >= 0 && place.rank != p)
            place = {p, shape.slots + shadowed[e] * perShadow +
                            unit % shape.shards};
          Flow &flow = pairs[size_t(p) * ranks + place.rank];
          flow.amount += double(rows);
          flow.messages += 1;
          slots[size_t(place.rank) * count + place.slot] += double(rows);
        });
    }
}
