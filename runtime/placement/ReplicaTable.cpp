// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/ReplicaPolicy.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

ReplicaTable::ReplicaTable(int ranks, int slots, int experts)
    : rankCount(ranks), slotCount(slots), expertCount(experts),
      table(size_t(ranks) * slots) {
  int64_t size = int64_t(ranks) * slots;
  for (int64_t i = 0; i < size; ++i)
    table[i] = int32_t(i * experts / size);
  count();
}

Result<ReplicaTable> ReplicaTable::create(int ranks, int slots, int experts,
                                          const std::vector<int32_t> &table) {
  if (ranks < 1 || slots < 1 || experts < 1 || int64_t(ranks) * slots < experts)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("replicas: expected slots for ", experts,
                         " experts, got ", slots, " on each of ", ranks,
                         " ranks"));
  if (int64_t(table.size()) != int64_t(ranks) * slots)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("replicas: expected ", int64_t(ranks) * slots,
                         " entries, got ", table.size()));
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i] < 0 || table[i] >= experts)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("replicas: rank ", i / slots, " slot ", i % slots,
                           ": expected an expert below ", experts, ", got ",
                           table[i]));
  ReplicaTable result(ranks, slots, experts);
  result.table = table;
  result.count();
  for (int e = 0; e < experts; ++e)
    if (result.total[e] == 0)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("replicas: expected every expert somewhere, got "
                           "none of expert ",
                           e));
  return result;
}

void ReplicaTable::count() {
  total.assign(expertCount, 0);
  perRank.assign(size_t(expertCount) * rankCount, 0);
  for (int rank = 0; rank < rankCount; ++rank)
    for (int slot = 0; slot < slotCount; ++slot) {
      ++total[expert(rank, slot)];
      ++perRank[size_t(expert(rank, slot)) * rankCount + rank];
    }
}

int ReplicaTable::ranksOf(int expert) const {
  int ranks = 0;
  for (int rank = 0; rank < rankCount; ++rank)
    ranks += replicasOn(expert, rank) > 0;
  return ranks;
}

void ReplicaTable::replace(int rank, int from, int to) {
  // The last one: the copy of those that stay is at the lowest.
  for (int slot = slotCount; slot-- > 0;)
    if (expert(rank, slot) == from) {
      table[size_t(rank) * slotCount + slot] = to;
      --total[from];
      --perRank[size_t(from) * rankCount + rank];
      ++total[to];
      ++perRank[size_t(to) * rankCount + rank];
      return;
    }
}

std::vector<int32_t> ReplicaTable::slotTable() const {
  std::vector<int32_t> result = table;
  for (int rank = 0; rank < rankCount; ++rank) {
    int32_t *row = result.data() + size_t(rank) * slotCount;
    for (int slot = 1; slot < slotCount; ++slot)
      if (std::find(row, row + slot, row[slot]) != row + slot)
        row[slot] = -1;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// ReplicaRouting
//===----------------------------------------------------------------------===//

void ReplicaRouting::route(const ReplicaTable &table, const int32_t *counts) {
  rankCount = table.ranks();
  expertCount = table.experts();
  moved.assign(size_t(rankCount) * expertCount * rankCount, 0);
  loads.assign(rankCount, 0);
  pairs.assign(size_t(rankCount) * rankCount, 0);
  left.resize(rankCount);
  for (int e = 0; e < expertCount; ++e) {
    int64_t sum = 0;
    for (int g = 0; g < rankCount; ++g)
      sum += counts[size_t(g) * expertCount + e];
    int64_t base = sum / table.replicas(e), more = sum % table.replicas(e);
    for (int g = 0; g < rankCount; ++g) {
      int64_t n = table.replicasOn(e, g);
      int64_t extra = std::min(n, more);
      left[g] = n * base + extra;
      more -= extra;
    }
    auto send = [&](int source, int holder, int64_t rows) {
      moved[(size_t(source) * expertCount + e) * rankCount + holder] += rows;
      pairs[size_t(source) * rankCount + holder] += rows;
      loads[holder] += rows;
      left[holder] -= rows;
    };
    // Own rows first, of all: nobody takes the place that another one's own
    // rows have.
    for (int g = 0; g < rankCount; ++g)
      send(g, g,
           std::min<int64_t>(counts[size_t(g) * expertCount + e], left[g]));
    for (int near = 1; near >= 0; --near)
      for (int g = 0; g < rankCount; ++g) {
        int64_t rest = counts[size_t(g) * expertCount + e];
        for (int q = 0; q < rankCount; ++q)
          rest -= rows(g, e, q);
        for (int q = 0; q < rankCount && rest > 0; ++q) {
          if (near && nodes[q] != nodes[g])
            continue;
          int64_t n = std::min(rest, left[q]);
          if (n > 0)
            send(g, q, n);
          rest -= n;
        }
      }
  }
}

double ReplicaRouting::ratio() const {
  int64_t most = 0, sum = 0;
  for (int64_t load : loads) {
    most = std::max(most, load);
    sum += load;
  }
  return sum ? double(most) * rankCount / double(sum) : 1;
}
