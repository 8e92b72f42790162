// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rows go where in an exchange (docs/ranks.md, "The order of rows").

#ifndef MOIRA_RUNTIME_COLLECTIVE_EXCHANGELAYOUT_H
#define MOIRA_RUNTIME_COLLECTIVE_EXCHANGELAYOUT_H

#include "collective/Placement.h"
#include "collective/RankGroups.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

struct RowRange {
  int64_t begin = 0;
  int64_t rows = 0;
};

/// The rows of one exchange, chunk by chunk, as one rank sees them. Only
/// integers: no data is read. Setting it again allocates nothing where sizes
/// do not grow. Between a rank with tokens and a slot of a rank with experts
/// there is one range, contiguous on both sides.
class ExchangeLayout {
public:
  /// `placement` stays as it is while the layout is used; so do
  /// exchange.counts. Of `exchange`, the data pointers are not read.
  Status set(const moira_exchange &exchange, const Placement &placement,
             const RankGroups &groups);

  /// This rank's rows that go to (or come from) a slot of `peer`. Begins are
  /// counted over all copies where the direction is MOIRA_TO_TOKENS.
  const RowRange &home(int peer, int slot) const {
    return homeRanges[int64_t(peer) * slotCount + slot];
  }
  /// The rows of this rank's `slot` that come from (or go to) `peer`.
  const RowRange &away(int slot, int peer) const {
    return awayRanges[int64_t(slot) * groups.ranks + peer];
  }
  /// Where the rows of `away(slot, peer)` begin among those that one chunk
  /// would bring from there, of which there are `rows`.
  int64_t beginInWhole(int64_t rows) const;
  int slots() const { return slotCount; }
  /// Rows of this chunk at this rank's experts, and by slot.
  int64_t awayRows() const { return awayTotal; }
  int64_t slotRows(int slot) const;

  /// Rows of this chunk that rank `source` has for the experts of `holder`.
  int64_t rowsBetween(int source, int holder) const;

private:
  Status check(const moira_exchange &exchange) const;
  int64_t count(int source, int expert) const {
    return counts[int64_t(source) * placement->experts() + expert];
  }
  /// The part of a segment of n rows that a unit's holder gets in this chunk.
  RowRange part(int64_t n, int unit) const;
  /// Whether rows go from `source` to `holder` in this chunk.
  bool meets(int source, int holder) const;

  const Placement *placement = nullptr;
  const int32_t *counts = nullptr;
  RankGroups groups;
  int slotCount = 0;
  int32_t pieces = 1; ///< of a copy of a segment: shards / copies
  int32_t schedule = 0;
  int64_t chunk = 0;
  int64_t chunks = 1;
  std::vector<RowRange> homeRanges; ///< [ranks, slots]
  std::vector<RowRange> awayRanges; ///< [slots, ranks]
  std::vector<int64_t> segments;    ///< [experts]: begins at home
  int64_t awayTotal = 0;
};

/// Chunks of a layer's exchanges under a schedule (moira_api.chunks).
int64_t chunkCount(int32_t degree, int64_t schedule, const RankGroups &groups);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_EXCHANGELAYOUT_H
