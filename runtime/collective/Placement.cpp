// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Placement.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

static Status checkConstants(const moira_placement &p, int ranks) {
  auto invalid = [](const char *what, int64_t got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("placement: expected ", what, ", got ", got));
  };
  if (ranks < 1)
    return invalid("at least 1 rank", ranks);
  if (p.experts < 1)
    return invalid("at least 1 expert", p.experts);
  if (p.shards < 1)
    return invalid("at least 1 shard", p.shards);
  if (p.slots < 1)
    return invalid("at least 1 slot", p.slots);
  if (p.copies < 0 || (p.copies > 0 && p.shards % p.copies != 0))
    return invalid("copies that are 0 or divide the shards", p.copies);
  if (int64_t(p.experts) * p.shards > INT32_MAX)
    return invalid("experts and shards that fit 31 bits",
                   int64_t(p.experts) * p.shards);
  if (int64_t(ranks) * p.slots > INT32_MAX)
    return invalid("ranks and slots that fit 31 bits",
                   int64_t(ranks) * p.slots);
  return Status();
}

Status Placement::set(const moira_placement &constants, const moira_plan &plan,
                      int ranks) {
  if (plan.slot_table && plan.slots != constants.slots)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("placement: expected a slot table of ",
                         constants.slots, " slots per rank, got ", plan.slots));
  return set(constants, plan.slot_table, ranks);
}

Status Placement::set(const moira_placement &constants, const int32_t *newTable,
                      int ranks) {
  MOIRA_RETURN_IF_ERROR(checkConstants(constants, ranks));
  int64_t size = int64_t(ranks) * constants.slots;
  int64_t unitCount = int64_t(constants.experts) * constants.shards;
  // Layers and steps mostly use one table: what is inverted stays.
  bool same = rankCount == ranks && shape.slots == constants.slots &&
              shape.experts == constants.experts &&
              shape.shards == constants.shards;
  for (int64_t i = 0; same && i < size; ++i)
    same = table[i] == (newTable        ? newTable[i]
                        : i < unitCount ? int32_t(i)
                                        : -1);
  shape = constants;
  if (same)
    return Status();
  rankCount = 0;
  table.resize(size);
  for (int64_t i = 0; i < size; ++i)
    table[i] = newTable ? newTable[i] : i < unitCount ? int32_t(i) : -1;
  for (int64_t i = 0; i < size; ++i)
    if (table[i] < -1 || table[i] >= unitCount)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("slot table: rank ", i / shape.slots, " slot ",
                           i % shape.slots, ": expected -1 or a unit below ",
                           unitCount, ", got ", table[i]));
  MOIRA_RETURN_IF_ERROR(invert());
  rankCount = ranks;
  return Status();
}

/// Counting sort of the table by unit. Ranks come in ascending order; a rank's
/// second slot with the same unit does not count.
Status Placement::invert() {
  int unitCount = units();
  firstHolder.assign(unitCount + 1, 0);
  auto counts = [&](int64_t i) {
    if (table[i] < 0)
      return false;
    int64_t first = i - i % shape.slots;
    return std::find(table.begin() + first, table.begin() + i, table[i]) ==
           table.begin() + i;
  };
  int64_t size = table.size();
  for (int64_t i = 0; i < size; ++i)
    if (counts(i))
      ++firstHolder[table[i] + 1];
  for (int u = 0; u < unitCount; ++u) {
    if (firstHolder[u + 1] == 0)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("slot table: expected every unit somewhere, got "
                           "none of expert ",
                           u / shape.shards, " shard ", u % shape.shards));
    firstHolder[u + 1] += firstHolder[u];
  }
  places.resize(firstHolder[unitCount]);
  for (int64_t i = size - 1; i >= 0; --i)
    if (counts(i))
      places[--firstHolder[table[i] + 1]] = {int32_t(i / shape.slots),
                                             int32_t(i % shape.slots)};
  // Filling has moved each entry to the start of its own unit, one place up.
  for (int u = 0; u < unitCount; ++u)
    firstHolder[u] = firstHolder[u + 1];
  firstHolder[unitCount] = static_cast<int32_t>(places.size());
  return Status();
}

Place Placement::holderFor(int unit, int source) const {
  const Place *begin = places.data() + firstHolder[unit];
  const Place *end = places.data() + firstHolder[unit + 1];
  if (end - begin == 1)
    return *begin;
  const Place *own =
      std::lower_bound(begin, end, source, [](const Place &place, int rank) {
        return place.rank < rank;
      });
  if (own != end && own->rank == source)
    return *own;
  return begin[source % (end - begin)];
}
