// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Naive.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

int moira::test::shardsFor(int experts, int ranks) {
  return std::max(1, ranks / experts);
}

std::vector<int32_t> moira::test::slotTable(Table kind, int experts, int ranks,
                                            int &slots) {
  int units = experts * shardsFor(experts, ranks);
  slots = units / ranks;
  std::vector<int32_t> table;
  if (kind == Table::None)
    return table;
  // 5 and 12 or powers of two have no common divisor: a permutation.
  std::vector<int32_t> order(units);
  for (int u = 0; u < units; ++u)
    order[u] = (5 * u + 3) % units;
  if (kind == Table::Permuted)
    return order;
  // A spare slot in front: on even ranks a unit of the next rank (the rank's
  // own where there is one rank), else nothing.
  for (int p = 0; p < ranks; ++p) {
    int next = (p + 1) % ranks;
    table.push_back(p % 2 == 0 ? order[next * slots] : -1);
    for (int l = 0; l < slots; ++l)
      table.push_back(order[p * slots + l]);
  }
  ++slots;
  return table;
}

int32_t moira::test::rowsFor(Counts kind, int ranks, int experts, int rank,
                             int expert) {
  switch (kind) {
  case Counts::Padded:
    return 3 * shardsFor(experts, ranks);
  case Counts::Ragged:
    return (7 * rank + 5 * expert + rank * expert) % 11;
  case Counts::Zeros:
    return (rank + expert) % 3 == 0 ? 5 : 0;
  case Counts::AllToOne:
    return expert == experts - 1 ? 17 + rank : 0;
  case Counts::Uneven:
    return rank == 0 ? 40 + expert : rank % 2; // and ranks without a row
  }
  return 0;
}

void moira::test::fillRow(const NaiveRow &row, int mark,
                          std::vector<char> &bytes) {
  uint64_t state = uint64_t(row.source) * 0x9e3779b97f4a7c15u +
                   uint64_t(row.expert) * 0xc2b2ae3d27d4eb4fu +
                   uint64_t(row.index) * 0x165667b19e3779f9u +
                   uint64_t(mark) * 0x27d4eb2f165667c5u;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0)
      state = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9u + i;
    bytes[i] = static_cast<char>(state >> (8 * (i % 8)));
  }
}

NaiveGrid::NaiveGrid(const Communicator &communicator, const ExchangeCase &test)
    : ranks(communicator.ranks()), groupSize(communicator.groups().groupSize),
      schedule(test.schedule), counts(test.counts) {
  placement.experts = test.experts;
  placement.shards = shardsFor(test.experts, ranks);
  placement.copies = test.copies;
  table = slotTable(test.table, test.experts, ranks, placement.slots);
}

int NaiveGrid::unit(int rank, int slot) const {
  int place = rank * placement.slots + slot;
  if (!table.empty())
    return table[place];
  return place < placement.experts * placement.shards ? place : -1;
}

Place NaiveGrid::holder(int wanted, int source) const {
  std::vector<Place> holders;
  for (int q = 0; q < ranks; ++q)
    for (int l = 0; l < placement.slots; ++l)
      if (unit(q, l) == wanted && (holders.empty() || holders.back().rank != q))
        holders.push_back({q, l});
  for (const Place &place : holders)
    if (place.rank == source)
      return place;
  return holders[source % holders.size()];
}

std::vector<NaiveRow> NaiveGrid::homeRows(int rank) const {
  std::vector<NaiveRow> rows;
  for (int e = 0; e < placement.experts; ++e)
    for (int64_t i = 0; i < count(rank, e); ++i)
      rows.push_back({rank, e, i, 0, 0});
  return rows;
}

/// Which of `parts` parts of n rows has row i.
static int64_t partOf(int64_t i, int64_t n, int64_t parts) {
  for (int64_t k = 0; k < parts; ++k)
    if (i >= k * n / parts && i < (k + 1) * n / parts)
      return k;
  return -1;
}

std::vector<NaiveRow> NaiveGrid::awayRows(int rank, int64_t chunk,
                                          int64_t chunks) const {
  int64_t pieces = placement.shards / placement.copies;
  int groups = (ranks + groupSize - 1) / groupSize;
  std::vector<NaiveRow> rows;
  for (int l = 0; l < placement.slots; ++l)
    for (int p = 0; p < ranks; ++p)
      for (int e = 0; e < placement.experts; ++e)
        for (int c = 0; c < placement.copies; ++c)
          for (int64_t i = 0; i < count(p, e); ++i) {
            int64_t n = count(p, e);
            int64_t j = partOf(i, n, pieces);
            Place to = holder(e * placement.shards + c * pieces + j, p);
            if (!(to == Place{rank, l}))
              continue;
            int64_t begin = j * n / pieces;
            int64_t size = (j + 1) * n / pieces - begin;
            int64_t part =
                schedule == MOIRA_SCHEDULE_EQUAL
                    ? partOf(i - begin, size, chunks)
                    : (p / groupSize - rank / groupSize + groups) % groups;
            if (part == chunk)
              rows.push_back({p, e, i, c, l});
          }
  return rows;
}
