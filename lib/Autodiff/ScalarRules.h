// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Derivatives of scalar operations.

#ifndef MOIRA_LIB_AUTODIFF_SCALARRULES_H
#define MOIRA_LIB_AUTODIFF_SCALARRULES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace mlir::moe::detail {

/// Where the rules of one operation put what they find.
struct ScalarGradients {
  /// Whether the gradient of an operand is wanted.
  llvm::function_ref<bool(Value)> isWanted;
  /// Takes the part of an operand's gradient that this operation brings.
  llvm::function_ref<void(Value operand, Value gradient)> add;
};

/// Builds the gradients of the wanted operands of `op`, a scalar operation of
/// one result with the gradient `d`; its operands and its result must be
/// visible at the builder's place. Reports an operation without a rule.
LogicalResult differentiateScalar(OpBuilder &builder, Operation *op, Value d,
                                  const ScalarGradients &gradients);

/// A float constant.
Value createFloat(OpBuilder &builder, Location loc, Type type, double value);

/// `type`, but f32 for f16 and bf16: what sums are made in.
FloatType getWideType(Type type);

/// Converts a scalar between float types.
Value convertFloat(OpBuilder &builder, Location loc, Value value, Type type);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_SCALARRULES_H
