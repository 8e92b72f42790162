// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ranks tell each other in every layer (docs/ranks.md, "The record").

#ifndef MOIRA_RUNTIME_COLLECTIVE_RECORD_H
#define MOIRA_RUNTIME_COLLECTIVE_RECORD_H

#include "collective/Transport.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

/// One rank's part, but for its counts. 48 bytes travel as they are.
struct RankRecord {
  // What ranks must agree on:
  uint64_t program = 0; ///< hash of the program and its entry
  uint64_t plan = 0;    ///< hash of the layer's plan with its slot table
  uint64_t shapes = 0;  ///< hash of input shapes without token dims
  int32_t layer = -1;
  // What they may use:
  int32_t stale = 0;     ///< 1: its weights have changed since they were shared
  double seconds = 0;    ///< of its last step; infinity: not known
  uint64_t variants = 0; ///< bit i: it may run variant i
};

/// Nothing, or the first rank that differs from rank 0, and in what.
std::optional<Failure> findDisagreement(const std::vector<RankRecord> &records);

/// What all ranks can decide from: the variants that all may run, and the
/// longest of the last steps.
struct SharedRecord {
  uint64_t variants = 0;
  double seconds = 0;
};
SharedRecord combineRecords(const std::vector<RankRecord> &records);

/// A hash of a plan as it is compared, [ranks, slots] of its table included.
uint64_t hashPlan(const moira_plan &plan, int ranks);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_RECORD_H
