// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/ExchangeLayout.h"

using namespace moira;
using namespace moira::runtime;

int64_t moira::runtime::chunkCount(int32_t degree, int64_t schedule,
                                   const RankGroups &groups) {
  return schedule == MOIRA_SCHEDULE_GROUPS ? groups.count() : degree;
}

/// Part `i` of `n` rows that are cut in `parts`.
static RowRange cut(int64_t n, int64_t i, int64_t parts) {
  int64_t begin = i * n / parts;
  return {begin, (i + 1) * n / parts - begin};
}

Status ExchangeLayout::check(const moira_exchange &exchange) const {
  auto invalid = [](const char *what, int64_t got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("exchange: expected ", what, ", got ", got));
  };
  if (exchange.placement.copies < 1)
    return invalid("at least 1 copy", exchange.placement.copies);
  if (exchange.direction != MOIRA_TO_EXPERTS &&
      exchange.direction != MOIRA_TO_TOKENS)
    return invalid("direction 0 or 1", exchange.direction);
  if (exchange.schedule != MOIRA_SCHEDULE_EQUAL &&
      exchange.schedule != MOIRA_SCHEDULE_GROUPS)
    return invalid("schedule 0 or 1", exchange.schedule);
  if (exchange.chunks < 1 || exchange.chunks > INT32_MAX)
    return invalid("at least 1 chunk", exchange.chunks);
  if (exchange.chunk < 0 || exchange.chunk >= exchange.chunks)
    return invalid("a chunk below the number of chunks", exchange.chunk);
  if (exchange.schedule == MOIRA_SCHEDULE_GROUPS &&
      exchange.chunks != groups.count())
    return invalid("as many chunks as groups of ranks", exchange.chunks);
  if (exchange.row_bytes < 0)
    return invalid("0 or more bytes per row", exchange.row_bytes);
  if (!exchange.counts)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "exchange: expected counts, got a null pointer");
  return Status();
}

bool ExchangeLayout::meets(int source, int holder) const {
  if (schedule != MOIRA_SCHEDULE_GROUPS)
    return true;
  // FasterMoE's ring: group g receives part i from group (g + i) mod n.
  int64_t n = groups.count();
  return groups.groupOf(source) == (groups.groupOf(holder) + chunk) % n;
}

RowRange ExchangeLayout::part(int64_t n, int unit) const {
  int shard = unit % placement->shards();
  RowRange piece = cut(n, shard % pieces, pieces);
  if (schedule == MOIRA_SCHEDULE_GROUPS)
    return piece;
  RowRange share = cut(piece.rows, chunk, chunks);
  return {piece.begin + share.begin, share.rows};
}

Status ExchangeLayout::set(const moira_exchange &exchange,
                           const Placement &newPlacement,
                           const RankGroups &newGroups) {
  placement = &newPlacement;
  groups = newGroups;
  MOIRA_RETURN_IF_ERROR(check(exchange));
  counts = exchange.counts;
  slotCount = placement->slots();
  pieces = exchange.placement.shards / exchange.placement.copies;
  schedule = exchange.schedule;
  chunk = exchange.chunk;
  chunks = exchange.chunks;

  int64_t experts = placement->experts();
  for (int64_t i = 0; i < groups.ranks * experts; ++i)
    if (counts[i] < 0)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("exchange: rank ", i / experts, " expert ",
                           i % experts, ": expected 0 or more rows, got ",
                           counts[i]));
  segments.resize(experts);
  int64_t rows = 0;
  for (int64_t e = 0; e < experts; ++e) {
    segments[e] = rows;
    rows += count(groups.rank, e);
  }
  bool addsCopies = exchange.direction == MOIRA_TO_TOKENS;
  if (addsCopies && exchange.placement.copies > 1 && exchange.home_rows < rows)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("exchange: expected at least ", rows,
                         " rows from one copy to the next, got ",
                         exchange.home_rows));

  homeRanges.assign(int64_t(groups.ranks) * slotCount, RowRange());
  for (int peer = 0; peer < groups.ranks; ++peer) {
    if (!meets(groups.rank, peer))
      continue;
    for (int slot = 0; slot < slotCount; ++slot) {
      int unit = placement->unit(peer, slot);
      if (unit < 0 ||
          !(placement->holderFor(unit, groups.rank) == Place{peer, slot}))
        continue;
      int expert = placement->expertOf(unit);
      RowRange range = part(count(groups.rank, expert), unit);
      range.begin += segments[expert];
      if (addsCopies)
        range.begin += unit % placement->shards() / pieces * exchange.home_rows;
      homeRanges[int64_t(peer) * slotCount + slot] = range;
    }
  }

  awayRanges.assign(int64_t(groups.ranks) * slotCount, RowRange());
  awayTotal = 0;
  for (int slot = 0; slot < slotCount; ++slot) {
    int unit = placement->unit(groups.rank, slot);
    for (int peer = 0; peer < groups.ranks; ++peer) {
      RowRange &range = awayRanges[int64_t(slot) * groups.ranks + peer];
      range.begin = awayTotal;
      if (unit >= 0 && meets(peer, groups.rank) &&
          placement->holderFor(unit, peer) == Place{groups.rank, slot})
        range.rows = part(count(peer, placement->expertOf(unit)), unit).rows;
      awayTotal += range.rows;
    }
  }
  return Status();
}

int64_t ExchangeLayout::beginInWhole(int64_t rows) const {
  return schedule == MOIRA_SCHEDULE_GROUPS ? 0 : cut(rows, chunk, chunks).begin;
}

int64_t ExchangeLayout::slotRows(int slot) const {
  const RowRange &last = away(slot, groups.ranks - 1);
  return last.begin + last.rows - away(slot, 0).begin;
}

int64_t ExchangeLayout::rowsBetween(int source, int holder) const {
  if (!meets(source, holder))
    return 0;
  int64_t rows = 0;
  for (int slot = 0; slot < slotCount; ++slot) {
    int unit = placement->unit(holder, slot);
    if (unit >= 0 && placement->holderFor(unit, source) == Place{holder, slot})
      rows += part(count(source, placement->expertOf(unit)), unit).rows;
  }
  return rows;
}
