// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Least squares with coefficients of at least 0, for tens of unknowns.

#ifndef MOIRA_RUNTIME_COST_LEASTSQUARES_H
#define MOIRA_RUNTIME_COST_LEASTSQUARES_H

#include <vector>

namespace moira::runtime {

/// x >= 0 that makes |A x - b| least, for A[rows, columns] row by row: the
/// active sets of Lawson and Hanson (Solving Least Squares Problems, chapter
/// 23). Deterministic.
std::vector<double> solveNonNegative(const std::vector<double> &matrix,
                                     const std::vector<double> &wanted,
                                     int columns);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LEASTSQUARES_H
