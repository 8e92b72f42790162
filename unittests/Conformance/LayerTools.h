// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inputs made from other inputs, and bounds of comparisons.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_LAYERTOOLS_H
#define MOIRA_UNITTESTS_CONFORMANCE_LAYERTOOLS_H

#include "Conformance/Harness.h"

namespace moira::conformance {

/// The same layer on some of its tokens, in the given order (repetitions are
/// fine). The layer must have one token block.
reference::LayerInputs takeTokens(const reference::LayerInputs &inputs,
                                  const std::vector<int64_t> &tokens);

/// Rows of an output [T, ...] in the given order.
Output takeRows(const Output &output, const std::vector<int64_t> &rows);

/// How far results may be from the interpreter's where the logarithm of a
/// score is not pinned: a few units in the last place of the rows' type, on
/// the scale of the largest result.
double looseTolerance(const reference::Layer &layer,
                      const reference::LayerResult &result);

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_LAYERTOOLS_H
