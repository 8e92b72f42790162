// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shadowing (FasterMoE, PPoPP 2022, section 4.1) as slot tables for one step:
// docs/placement.md.

#ifndef MOIRA_RUNTIME_PLACEMENT_SHADOWING_H
#define MOIRA_RUNTIME_PLACEMENT_SHADOWING_H

#include "collective/Placement.h"

#include <functional>
#include <vector>

namespace moira::runtime {

/// The `count` experts (fewer where there are fewer) with most rows, in
/// descending order, of equal ones the lower id first. counts[ranks, experts].
/// Allocates nothing once `loads` and `order` have had these sizes.
void orderByLoad(const int32_t *counts, int ranks, int experts, int count,
                 std::vector<int64_t> &loads, std::vector<int32_t> &order);

/// In which order shadows relieve the ranks most: again and again the expert
/// with most rows on the rank that has most of them then. Where each rank has
/// one expert, that is FasterMoE's order. Keeps its memory.
class ShadowOrder {
public:
  /// At most `count` experts, none twice. counts[ranks, experts] and their sums
  /// over ranks.
  const std::vector<int32_t> &find(const Placement &placement,
                                   const int32_t *counts,
                                   const std::vector<int64_t> &loads,
                                   int count);

private:
  std::vector<int32_t> order;
  std::vector<int64_t> rows; ///< of each rank, times shards
  std::vector<char> taken;
};

/// FasterMoE's algorithm 1, for any number of experts on a rank: takes experts
/// in descending order of load while that lowers the cost, and stops at the
/// first that does not. The cost is a function of how many are shadowed and of
/// the rows that each rank computes then. At most `most`.
using ShadowCost =
    std::function<double(int shadows, const std::vector<double> &rows)>;
std::vector<int32_t> selectShadows(const Placement &placement,
                                   const int32_t *counts, int most,
                                   const ShadowCost &cost);

/// Writes [ranks, slots] with all of `experts` (distinct) on all ranks: into
/// free slots, from the lowest on, experts in their order, shards in theirs.
/// What a rank holds anyway takes no slot. Fails where a rank has too few.
Status writeShadowTable(const Placement &base, const int32_t *experts,
                        int count, std::vector<int32_t> &table);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_PLACEMENT_SHADOWING_H
