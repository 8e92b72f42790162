// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What can be chosen for a layer's step.

#ifndef MOIRA_RUNTIME_SELECTION_CANDIDATE_H
#define MOIRA_RUNTIME_SELECTION_CANDIDATE_H

#include "cost/LayerModel.h"

#include <string>
#include <vector>

namespace moira::runtime {

/// A compiled variant, as far as a choice depends on it.
struct VariantChoice {
  std::string name;
  int copies = 1;       ///< r
  int schedule = 0;     ///< MOIRA_SCHEDULE_EQUAL or MOIRA_SCHEDULE_GROUPS
  std::string numerics; ///< variants of one class give the same bits
  bool cut = true;      ///< a degree cuts its exchanges
};

/// A plan: a variant, and the integers that need no other code.
struct Candidate {
  uint32_t variant = 0;
  LayerPlan plan;

  /// Such as "r=2 degree=4 hierarchical shadow=1".
  std::string describe() const;
  /// As generated code and exchanges read it. With shadows, or over a lasting
  /// table, [ranks, slots] of that; it is not copied.
  moira_plan toPlan(const int32_t *slotTable, int slots) const;
};

/// Where candidates come from.
struct SelectionSpace {
  std::vector<VariantChoice> variants; ///< at most 64
  std::vector<int> degrees = {1, 2, 4, 8};
  bool hierarchical = false; ///< the grid has a hierarchical exchange
  int maxShadows = 0;        ///< experts that fit the spare slots
  /// Only variants with this r shadow experts; -1: all that exchange rows.
  int shadowCopies = -1;

  Status check(const LayerModel &model) const;
  /// All, in one order: by copies, shadows, variant, exchange, degree. Plans
  /// that differ in nothing that runs are listed once.
  std::vector<Candidate> candidates() const;
  /// Differs where candidates do.
  uint64_t hash() const;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SELECTION_CANDIDATE_H
