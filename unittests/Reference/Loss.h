// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Auxiliary losses of routers by their formulas (docs/losses.md), in f64.

#ifndef MOIRA_UNITTESTS_REFERENCE_LOSS_H
#define MOIRA_UNITTESTS_REFERENCE_LOSS_H

#include <cstdint>
#include <vector>

namespace moira::reference {

/// A loss and what it is computed from.
struct Loss {
  enum Kind { GShard, Switch, Sequence, Z, LoadImportance } kind = Switch;
  enum Scope { Rank, Block, Global } scope = Rank;
  bool sigmoid = false, compareLogits = false;
  double noise = 1;

  int64_t experts = 1, choices = 1;
  std::vector<double> logits{}, noisy{}; ///< [T, E]; noisy may be empty
  std::vector<int32_t> ids{};            ///< [T, K]
  std::vector<bool> mask{};              ///< [T], or empty
  /// Rows of each block; empty: one of all rows.
  std::vector<int64_t> blocks{};

  int64_t tokens() const { return int64_t(logits.size()) / experts; }
};

double evaluate(const Loss &loss);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_LOSS_H
