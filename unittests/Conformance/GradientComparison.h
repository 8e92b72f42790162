// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What gradients of several ranks are compared by.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_GRADIENTCOMPARISON_H
#define MOIRA_UNITTESTS_CONFORMANCE_GRADIENTCOMPARISON_H

#include "Conformance/GradientLayer.h"

namespace moira::conformance {

/// The layer that a grid is tested with.
GradientLayer layerFor(const GradientGrid &grid, bool integers);

/// The unit at a place of a slot table, which may be empty; -1: none.
int unitAt(const GradientGrid &grid, const std::vector<int32_t> &table,
           int place);

/// Tokens of each rank: even, uneven, on one rank only, none.
std::vector<std::vector<int32_t>> tokenCases(int ranks);

/// The first difference of all gradients of all ranks from those of one rank,
/// in words; nothing where all are within `tolerance`, relative to the larger
/// of 1 and the expected one.
std::string compareAll(const GradientGrid &grid,
                       const std::vector<int32_t> &table,
                       const GradientLayer &layer, const GradientStep &expected,
                       const std::vector<GradientStep> &got, double tolerance);

/// Which gradient of experts differs in some bit, wherever units stand.
std::string sameUnits(const GradientGrid &grid,
                      const std::vector<int32_t> &oneTable,
                      const std::vector<GradientStep> &one,
                      const std::vector<int32_t> &otherTable,
                      const std::vector<GradientStep> &other);

/// What differs in some bit on some rank, but without `sameSlots` for gradients
/// of experts.
std::string sameBits(const std::vector<GradientStep> &one,
                     const std::vector<GradientStep> &other, bool sameSlots);

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_GRADIENTCOMPARISON_H
