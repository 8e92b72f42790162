// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may be done to a sum over an expert's rows.

#ifndef MOIRA_LIB_DIALECT_MOE_IR_LINEARSUMS_H
#define MOIRA_LIB_DIALECT_MOE_IR_LINEARSUMS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::moe::detail {

/// Whether `value` is a tensor of zeros, filled or constant.
bool isZeroTensor(Value value);

/// Whether result `i` of `op` is its accumulator plus what does not depend on
/// any accumulator.
bool addsToAccumulator(linalg::LinalgOp op, unsigned i);

/// Whether all results of `op` are linear in its operands that `isLinearValue`
/// accepts, so that zeros give zeros.
bool isLinear(Operation &op, llvm::function_ref<bool(Value)> isLinearValue);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_IR_LINEARSUMS_H
