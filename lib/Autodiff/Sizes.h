// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes of tensors without the tensors: a way back that needs a size only does
// not keep what has it. And small elementwise ops on tensors.

#ifndef MOIRA_LIB_AUTODIFF_SIZES_H
#define MOIRA_LIB_AUTODIFF_SIZES_H

#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/Builders.h"

namespace mlir::moe::detail {

/// The size of a dim: an attribute where it is static, else built from the
/// operands of the ops that the tensor comes from, down to block arguments.
OpFoldResult getSize(OpBuilder &builder, Location loc, Value tensor,
                     int64_t dim);
SmallVector<OpFoldResult> getSizes(OpBuilder &builder, Location loc,
                                   Value tensor);

/// Gives every tensor.dim in `block`, and in blocks inside, such a size.
void resolveDims(Block &block);

/// A tensor of zeros.
Value createZeros(OpBuilder &builder, Location loc,
                  ArrayRef<OpFoldResult> sizes, Type element);

/// Builds `f` of the elements of tensors of one shape, as a tensor of
/// `element`.
Value createElementwise(
    OpBuilder &builder, Location loc, ValueRange tensors, Type element,
    llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> f);

/// Converts the elements of a float tensor. What was widened exactly is taken
/// from where it was narrow.
Value castElements(OpBuilder &builder, Location loc, Value tensor,
                   Type element);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_SIZES_H
