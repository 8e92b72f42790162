// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a layer's model that knows of shadows.

#include "cost/LayerModel.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

ShadowTransport moira::runtime::shadowTransport(int ranks, int64_t bytes) {
  return ranks >= 4 && bytes >= int64_t(256) << 10 ? ShadowTransport::Split
                                                   : ShadowTransport::Tree;
}

/// Whether the weight of a shadow goes in parts.
bool LayerModel::isSplit(const WeightShape &weight) const {
  ShadowTransport way = transport == ShadowTransport::BySize
                            ? shadowTransport(layer.ranks, weight.bytes)
                            : transport;
  return way == ShadowTransport::Split;
}

/// Rounds of one unit's way from its owner to all.
void LayerModel::timeShadow(int owner, ShadowTransport way,
                            std::vector<BatchFlows> &rounds) {
  int ranks = layer.ranks;
  auto flow = [&](int from, int to, double amount) {
    subset[size_t((from + owner) % ranks) * ranks + (to + owner) % ranks] = {
        amount, 1};
  };
  auto endRound = [&] {
    rounds.emplace_back();
    batch.reserve(rounds.back());
    batch.set(subset.data(), false, rounds.back());
    std::fill(subset.begin(), subset.end(), Flow());
  };
  std::fill(subset.begin(), subset.end(), Flow());
  if (way == ShadowTransport::Tree) {
    int top = 1;
    while (top < ranks)
      top *= 2;
    for (int bit = top / 2; bit > 0; bit /= 2) {
      for (int from = 0; from + bit < ranks; from += 2 * bit)
        flow(from, from + bit, 1);
      endRound();
    }
    return;
  }
  bool split = way == ShadowTransport::Split;
  for (int to = 1; to < ranks; ++to)
    flow(0, to, split ? 1.0 / ranks : 1);
  endRound();
  for (int from = 0; from < ranks && split; ++from)
    for (int to = 1; to < ranks; ++to)
      if (from != to)
        flow(from, to, 1.0 / ranks);
  if (split)
    endRound();
}

/// The ways of one unit from each owner, and of its gradients straight back.
void LayerModel::timeShadows() {
  int ranks = layer.ranks;
  shadowWays.assign(ranks, ShadowWay());
  for (int owner = 0; owner < ranks && maxShadows() > 0; ++owner) {
    ShadowWay &way = shadowWays[owner];
    timeShadow(owner,
               transport == ShadowTransport::Direct ? ShadowTransport::Direct
                                                    : ShadowTransport::Tree,
               way.rounds[0]);
    timeShadow(owner, ShadowTransport::Split, way.rounds[1]);
    std::fill(subset.begin(), subset.end(), Flow());
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != owner)
        subset[size_t(rank) * ranks + owner] = {1, 1};
    batch.set(subset.data(), false, once);
    Lanes there(lanes), back(lanes);
    for (const WeightShape &weight : layer.weights) {
      for (const BatchFlows &round : way.rounds[isSplit(weight)])
        batch.run(round, double(weight.bytes), there);
      batch.run(once, double(weight.gradientBytes), back);
    }
    way.there = *std::max_element(there.begin(), there.end());
    way.back = *std::max_element(back.begin(), back.end());
    // On a large grid all owners are taken for the first one: to list the
    // messages of each would take seconds.
    if (lanes == 1) {
      ShadowWay times;
      times.there = way.there;
      times.back = way.back;
      shadowWays.assign(ranks, times);
      break;
    }
  }
}

/// Moves the queue on by the weights of shadows, one after the other.
void LayerModel::sendShadows(const LayerPlan &plan) {
  for (int k = 0; k < plan.shadows; ++k)
    for (int h = 0; h < layer.shards; ++h) {
      const ShadowWay &way =
          shadowWays[table.holder(order[k] * layer.shards + h, 0).rank];
      if (detail == Detail::Quick || lanes == 1) {
        synchronize(queue);
        for (double &time : queue)
          time += way.there;
        continue;
      }
      for (const WeightShape &weight : layer.weights)
        for (const BatchFlows &round : way.rounds[isSplit(weight)])
          batch.run(round, double(weight.bytes), queue);
    }
}

/// And by their gradients: all of one weight in a batch. A rank has an addend
/// of each of its slots that gathered the unit (collective/ReduceWeights.h).
void LayerModel::returnShadows(const LayerPlan &plan) {
  if (plan.shadows == 0)
    return;
  if (lanes > 1)
    std::fill(subset.begin(), subset.end(), Flow());
  for (int k = 0; k < plan.shadows; ++k)
    for (int h = 0; h < layer.shards; ++h) {
      int owner = table.holder(order[k] * layer.shards + h, 0).rank;
      if (lanes == 1)
        queue[0] += shadowWays[owner].back * layer.shards / plan.copies;
      for (int rank = 0; rank < layer.ranks && lanes > 1; ++rank)
        if (rank != owner) {
          Flow &flow = subset[size_t(rank) * layer.ranks + owner];
          flow.amount += 1;
          flow.messages += 1;
        }
    }
  if (lanes == 1)
    return;
  batch.set(subset.data(), false, once);
  for (const WeightShape &weight : layer.weights) {
    double parts =
        weight.replicated ? layer.shards : double(layer.shards) / plan.copies;
    batch.run(once, parts * double(weight.gradientBytes), queue);
  }
}
