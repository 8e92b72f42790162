// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who holds which shard of which expert (docs/ranks.md, "Who holds what").

#ifndef MOIRA_RUNTIME_COLLECTIVE_PLACEMENT_H
#define MOIRA_RUNTIME_COLLECTIVE_PLACEMENT_H

#include "base/Status.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

/// A weight slot of a rank.
struct Place {
  int32_t rank = -1;
  int32_t slot = -1;

  bool operator==(const Place &other) const {
    return rank == other.rank && slot == other.slot;
  }
};

/// A slot table with its inverse. Unit u is the shard u % shards of the expert
/// u / shards. Setting it again allocates nothing where sizes do not grow.
class Placement {
public:
  /// Takes the table of a plan, [ranks, slots]; null: identity. Fails where
  /// constants or entries are out of range or a unit stands nowhere; then the
  /// placement is unusable until the next success.
  Status set(const moira_placement &constants, const int32_t *table, int ranks);
  /// The same with the constants against the plan's own number of slots.
  Status set(const moira_placement &constants, const moira_plan &plan,
             int ranks);

  const moira_placement &constants() const { return shape; }
  int ranks() const { return rankCount; }
  int slots() const { return shape.slots; }
  int experts() const { return shape.experts; }
  int shards() const { return shape.shards; }
  int units() const { return shape.experts * shape.shards; }

  /// The unit in a slot; -1: none.
  int unit(int rank, int slot) const {
    return table[static_cast<int64_t>(rank) * shape.slots + slot];
  }
  int expertOf(int unit) const { return unit / shape.shards; }

  /// How many ranks hold a unit, at least 1.
  int holders(int unit) const {
    return firstHolder[unit + 1] - firstHolder[unit];
  }
  /// The i-th of them in ascending order; its slot is the lowest that has the
  /// unit.
  Place holder(int unit, int i) const { return places[firstHolder[unit] + i]; }

  /// Where rank `source` finds the unit: with itself if it holds it, else with
  /// holder number source mod holders.
  Place holderFor(int unit, int source) const;

private:
  Status invert();

  moira_placement shape{};
  int rankCount = 0;
  std::vector<int32_t> table;       ///< [ranks, slots]
  std::vector<int32_t> firstHolder; ///< [units + 1], into places
  std::vector<Place> places;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_PLACEMENT_H
