// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/ReplicaPolicy.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

static std::vector<int> nodesOf(const Topology &topology) {
  std::vector<int> nodes;
  for (int rank = 0; rank < topology.ranks(); ++rank)
    nodes.push_back(topology.nodeOf(rank));
  return nodes;
}

ReplicaPolicy::ReplicaPolicy(const Topology &topology,
                             const ReplicaCosts &costs, double threshold,
                             int maxRounds)
    : topology(topology), costs(costs), threshold(threshold),
      maxRounds(maxRounds), router(nodesOf(topology)) {}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

/// What the sum of an expert's gradients takes on each of its ranks.
double ReplicaPolicy::sync(const ReplicaTable &table, int expert) const {
  int first = -1;
  bool several = false;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    if (!table.replicasOn(expert, rank))
      continue;
    if (first >= 0 && topology.nodeOf(rank) != topology.nodeOf(first))
      return costs.syncInter;
    several |= first >= 0;
    first = first < 0 ? rank : first;
  }
  return several ? costs.syncIntra : 0;
}

double ReplicaPolicy::syncSum(const ReplicaTable &table) const {
  double sum = 0;
  for (int e = 0; e < table.experts(); ++e)
    sum += sync(table, e) * table.ranksOf(e);
  return sum;
}

double ReplicaPolicy::cost(const ReplicaTable &table, const int32_t *counts) {
  router.route(table, counts);
  std::vector<double> syncs(table.experts());
  for (int e = 0; e < table.experts(); ++e)
    syncs[e] = sync(table, e);
  double largest = 0;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double seconds = costs.perRow * double(router.load(rank));
    for (int source = 0; source < table.ranks(); ++source) {
      int64_t rows = router.between(source, rank);
      if (source != rank && rows > 0 && costs.bytesPerRow > 0)
        seconds += topology.messageSeconds(
            source, rank, int64_t(costs.bytesPerRow * double(rows)));
    }
    for (int e = 0; e < table.experts(); ++e)
      if (table.replicasOn(e, rank))
        seconds += syncs[e];
    largest = std::max(largest, seconds);
  }
  return largest;
}

int ReplicaPolicy::nearest(const ReplicaTable &table, int expert,
                           int rank) const {
  int best = -1;
  auto far = [&](int other) {
    return other == rank                                     ? 0
           : topology.nodeOf(other) == topology.nodeOf(rank) ? 1
                                                             : 2;
  };
  for (int other = 0; other < table.ranks(); ++other)
    if (table.replicasOn(expert, other) && (best < 0 || far(other) < far(best)))
      best = other;
  return best;
}

double ReplicaPolicy::moveSeconds(const Adjustment &a) const {
  int64_t bytes = int64_t(costs.stateBytes);
  if (a.kind == Adjustment::Shrink || a.source < 0 || a.source == a.rank)
    return 0;
  if (a.kind == Adjustment::Expand)
    return topology.messageSeconds(a.source, a.rank, bytes);
  return std::max(topology.messageSeconds(a.source, a.rank, bytes),
                  topology.messageSeconds(a.rank, a.source, bytes));
}

//===----------------------------------------------------------------------===//
// Adjustments
//===----------------------------------------------------------------------===//

std::vector<Adjustment> ReplicaPolicy::adjustOnce(ReplicaTable &table,
                                                  const int32_t *counts) {
  int experts = table.experts();
  std::vector<double> perReplica(experts);
  for (int e = 0; e < experts; ++e) {
    int64_t sum = 0;
    for (int g = 0; g < table.ranks(); ++g)
      sum += counts[size_t(g) * experts + e];
    perReplica[e] = double(sum) / table.replicas(e);
  }
  int high = 0, low = -1;
  for (int e = 1; e < experts; ++e)
    if (perReplica[e] > perReplica[high])
      high = e;
  for (int e = 0; e < experts; ++e)
    if (e != high && table.replicas(e) >= 2 &&
        (low < 0 || perReplica[e] < perReplica[low]))
      low = e;
  if (low < 0)
    return {};
  double before = cost(table, counts), least = 0;
  int best = -1, bestNear = 0;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    if (!table.replicasOn(low, rank))
      continue;
    // Of equal costs: where the expert is already, then in a node that has it.
    int source = nearest(table, high, rank);
    int near = source == rank                                     ? 2
               : topology.nodeOf(source) == topology.nodeOf(rank) ? 1
                                                                  : 0;
    ReplicaTable tried = table;
    tried.replace(rank, low, high);
    double seconds = cost(tried, counts);
    if (best < 0 || seconds < least || (seconds == least && near > bestNear)) {
      best = rank;
      least = seconds;
      bestNear = near;
    }
  }
  if (!(least < before))
    return {};
  Adjustment shrink{Adjustment::Shrink, low, best};
  Adjustment expand{Adjustment::Expand, high, best, nearest(table, high, best)};
  table.replace(best, low, high);
  return {shrink, expand};
}

std::vector<Adjustment> ReplicaPolicy::adjust(ReplicaTable &table,
                                              const int32_t *counts) {
  std::vector<Adjustment> all;
  for (int round = 0; round < maxRounds; ++round) {
    router.route(table, counts);
    if (router.ratio() <= threshold)
      break;
    std::vector<Adjustment> next = adjustOnce(table, counts);
    if (next.empty())
      break;
    all.insert(all.end(), next.begin(), next.end());
  }
  router.route(table, counts);
  return all;
}

std::vector<Adjustment> ReplicaPolicy::migrate(ReplicaTable &table,
                                               const int32_t *counts,
                                               int64_t steps) {
  std::vector<Adjustment> all;
  double now = cost(table, counts);
  for (int g = 0; g < table.ranks(); ++g)
    for (int q = g + 1; q < table.ranks(); ++q)
      for (int i = 0; i < table.slots(); ++i)
        for (int j = 0; j < table.slots(); ++j) {
          int out = table.expert(g, i), in = table.expert(q, j);
          // Only what is replicated has a sum to save.
          if (out == in || (table.replicas(out) < 2 && table.replicas(in) < 2))
            continue;
          ReplicaTable tried = table;
          tried.replace(g, out, in);
          tried.replace(q, in, out);
          Adjustment move{Adjustment::Migrate, out, g, q, in};
          double saved = syncSum(table) - syncSum(tried);
          if (saved <= moveSeconds(move) / double(std::max<int64_t>(steps, 1)))
            continue;
          double seconds = cost(tried, counts);
          if (seconds > now)
            continue;
          table = tried;
          now = seconds;
          all.push_back(move);
        }
  router.route(table, counts);
  return all;
}
