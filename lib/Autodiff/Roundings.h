// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that all their readers round: what is rounded is as good to keep, and
// half as large.

#ifndef MOIRA_LIB_AUTODIFF_ROUNDINGS_H
#define MOIRA_LIB_AUTODIFF_ROUNDINGS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::moe::detail {

/// The element type to which every reader of a tensor rounds each element
/// before anything else; null where there is no such type.
Type getReadType(Value tensor);

/// Gives a reader, a copy that has been made of one, the rounded tensor in the
/// place of operand `number`.
void readRounded(linalg::GenericOp reader, unsigned number, Value rounded);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_ROUNDINGS_H
