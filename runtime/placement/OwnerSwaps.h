// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lasting tables for layers whose hottest experts are shadowed step by step:
// experts change owners, spare slots stay free (docs/placement.md).

#ifndef MOIRA_RUNTIME_PLACEMENT_OWNERSWAPS_H
#define MOIRA_RUNTIME_PLACEMENT_OWNERSWAPS_H

#include "collective/Placement.h"

#include <vector>

namespace moira::runtime {

/// Two experts that change places.
struct OwnerSwap {
  Place first, second;
};

/// Rows that each rank computes where the `shadows` experts with most rows are
/// everywhere. counts[ranks, experts], of experts that one rank holds whole.
std::vector<int64_t> rowsBesideShadows(const Placement &placement,
                                       const int32_t *counts, int shadows);

/// Swaps experts of the fullest rank with others, at most `most` pairs, each
/// time the one that leaves the fuller of both ranks with the fewest rows, of
/// equal ones the first places. Experts with several holders stay. Every swap
/// takes rows from the fullest rank. Writes the table that comes out, [ranks,
/// slots].
std::vector<OwnerSwap> swapOwners(const Placement &placement,
                                  const int32_t *counts, int shadows, int most,
                                  std::vector<int32_t> &table);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_PLACEMENT_OWNERSWAPS_H
