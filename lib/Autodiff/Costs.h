// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a way back computes again, and what it keeps.

#ifndef MOIRA_LIB_AUTODIFF_COSTS_H
#define MOIRA_LIB_AUTODIFF_COSTS_H

#include "mlir/IR/Operation.h"

namespace mlir::moe::detail {

/// Whether `op` is always kept: decisions and what came from other ranks.
bool isDecision(Operation *op);

/// Whether `op` is worth keeping: products, sums, experts; and roundings, whose
/// results are half as large as what they round.
bool isCostly(Operation *op);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_COSTS_H
