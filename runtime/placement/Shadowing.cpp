// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/Shadowing.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

void moira::runtime::orderByLoad(const int32_t *counts, int ranks, int experts,
                                 int count, std::vector<int64_t> &loads,
                                 std::vector<int32_t> &order) {
  loads.assign(experts, 0);
  for (int p = 0; p < ranks; ++p)
    for (int e = 0; e < experts; ++e)
      loads[e] += counts[size_t(p) * experts + e];
  order.resize(experts);
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, experts);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int32_t a, int32_t b) {
                      return loads[a] != loads[b] ? loads[a] > loads[b] : a < b;
                    });
  order.resize(count);
}

const std::vector<int32_t> &ShadowOrder::find(const Placement &placement,
                                              const int32_t *counts,
                                              const std::vector<int64_t> &loads,
                                              int count) {
  int ranks = placement.ranks(), experts = placement.experts();
  int shards = placement.shards(), slots = placement.slots();
  order.clear();
  if (count <= 0)
    return order;
  taken.assign(experts, 0);
  rows.assign(ranks, 0);
  auto first = [&](int unit) { return placement.holder(unit, 0).rank; };
  for (int unit = 0; unit < placement.units(); ++unit)
    rows[first(unit)] += loads[placement.expertOf(unit)];
  while (int(order.size()) < count) {
    // The fullest rank that still has an expert to give.
    int32_t best = -1;
    for (int tries = 0; tries < ranks && best < 0; ++tries) {
      int fullest =
          int(std::max_element(rows.begin(), rows.end()) - rows.begin());
      if (rows[fullest] < 0)
        break;
      for (int slot = 0; slot < slots; ++slot) {
        int unit = placement.unit(fullest, slot);
        if (unit < 0 || first(unit) != fullest)
          continue;
        int32_t e = placement.expertOf(unit);
        if (!taken[e] && (best < 0 || loads[e] > loads[best] ||
                          (loads[e] == loads[best] && e < best)))
          best = e;
      }
      if (best < 0)
        rows[fullest] = -1; // all of its experts are everywhere
    }
    if (best < 0)
      break;
    taken[best] = 1;
    order.push_back(best);
    for (int h = 0; h < shards; ++h) {
      int owner = first(best * shards + h);
      rows[owner] -= loads[best];
      for (int p = 0; p < ranks; ++p)
        if (rows[p] >= 0)
          rows[p] += counts[size_t(p) * experts + best];
    }
  }
  return order;
}

std::vector<int32_t> moira::runtime::selectShadows(const Placement &placement,
                                                   const int32_t *counts,
                                                   int most,
                                                   const ShadowCost &cost) {
  int ranks = placement.ranks(), experts = placement.experts();
  int shards = placement.shards();
  // Rows that a rank computes: of a shard, the share that goes to its holder.
  std::vector<double> rows(ranks);
  for (int p = 0; p < ranks; ++p)
    for (int e = 0; e < experts; ++e)
      for (int h = 0; h < shards; ++h)
        rows[placement.holderFor(e * shards + h, p).rank] +=
            double(counts[size_t(p) * experts + e]) / shards;
  std::vector<int64_t> loads;
  std::vector<int32_t> order, chosen;
  orderByLoad(counts, ranks, experts, experts, loads, order);
  double least = cost(0, rows);
  for (int32_t e : order) {
    if (int(chosen.size()) == most)
      break;
    for (int p = 0; p < ranks; ++p)
      for (int h = 0; h < shards; ++h) {
        double n = double(counts[size_t(p) * experts + e]) / shards;
        rows[placement.holderFor(e * shards + h, p).rank] -= n;
        rows[p] += n;
      }
    double now = cost(int(chosen.size()) + 1, rows);
    if (!(now < least))
      break;
    least = now;
    chosen.push_back(e);
  }
  return chosen;
}

Status moira::runtime::writeShadowTable(const Placement &base,
                                        const int32_t *experts, int count,
                                        std::vector<int32_t> &table) {
  int ranks = base.ranks(), slots = base.slots(), shards = base.shards();
  table.resize(size_t(ranks) * slots);
  for (int rank = 0; rank < ranks; ++rank) {
    int32_t *row = table.data() + size_t(rank) * slots;
    for (int slot = 0; slot < slots; ++slot)
      row[slot] = base.unit(rank, slot);
    int next = 0;
    for (int i = 0; i < count; ++i) {
      if (experts[i] < 0 || experts[i] >= base.experts())
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("shadow: expected an expert below ",
                             base.experts(), ", got ", experts[i]));
      for (int h = 0; h < shards; ++h) {
        int unit = experts[i] * shards + h;
        if (base.holderFor(unit, rank).rank == rank)
          continue;
        while (next < slots && row[next] >= 0)
          ++next;
        if (next == slots)
          return Status(MOIRA_INVALID_ARGUMENT,
                        concat("shadow: expected a free slot on rank ", rank,
                               " for expert ", experts[i], ", got none of ",
                               slots));
        row[next] = unit;
      }
    }
  }
  return Status();
}
