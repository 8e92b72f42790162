// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance cases as data: layers with inputs and the published or
// derived values of their results. The interpreter is checked against them,
// and so is compiled code, from the same list.

#ifndef MOIRA_UNITTESTS_REFERENCE_CASES_H
#define MOIRA_UNITTESTS_REFERENCE_CASES_H

#include "Layer.h"

#include <utility>

namespace moira::reference {

/// Expected values; an empty member is not checked.
struct Expected {
  std::optional<int64_t> capacity;
  Counts counts, sizes;
  Ids ids, slots, places;
  /// Slot tables of padded layers, [E, C].
  Ids tokenOfSlot, choiceOfSlot;
  std::optional<std::vector<std::pair<int, int>>> dropped;
  Reals weights;
  std::vector<double> firstColumn; ///< y[:, 0]
  Reals y;
};

struct Case {
  std::string name;
  Layer layer;
  LayerInputs inputs;
  Expected expected;
  /// Absolute and relative bound on weights and results: the precision to
  /// which the expected values are printed. 0 asks for equal bits.
  double tolerance = 1e-6;
};

/// Every one-rank case that is a layer, in a fixed order with unique names.
std::vector<Case> conformanceCases();

/// The first difference between what a case expects and `result`, in words;
/// empty when all agree. Of `result` only ids, weights, counts, slots, sizes
/// and y are needed; capacity and places are compared when present.
std::string mismatch(const Case &testCase, const LayerResult &result);

/// Six tokens on four experts, the common input of the routing cases: expert e
/// computes (e + 1) * relu(x) + bias, token t is the row [t + 1, 10 (t + 1)].
Case sixTokens(std::string name, int64_t k, std::optional<double> factor,
               double bias = 0);

/// A layer that shows what a router does: token rows of 1 and experts that
/// return their row.
Case routerCase(std::string name, Reals logits, Router router);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_CASES_H
