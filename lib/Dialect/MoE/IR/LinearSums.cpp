// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LinearSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::moe::detail;

bool mlir::moe::detail::isZeroTensor(Value value) {
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return matchPattern(fill.getInputs().front(), m_AnyZeroFloat());
  return isa<TensorType>(value.getType()) &&
         matchPattern(value, m_AnyZeroFloat());
}

bool mlir::moe::detail::addsToAccumulator(linalg::LinalgOp op, unsigned i) {
  Block &body = *op.getBlock();
  Value accumulator = op.getMatchingBlockArgument(op.getDpsInitOperand(i));
  if (!accumulator.hasOneUse())
    return false;
  Operation *sum = body.getTerminator()->getOperand(i).getDefiningOp();
  if (!sum || *accumulator.user_begin() != sum)
    return false;
  if (auto fma = dyn_cast<math::FmaOp>(sum))
    return fma.getC() == accumulator;
  return isa<arith::AddFOp>(sum);
}

/// Whether the results of a scalar or elementwise `op` are linear in the
/// operands that `isLinearValue` accepts.
static bool isLinearArithmetic(Operation &op,
                               llvm::function_ref<bool(Value)> isLinearValue) {
  auto linear = [&](unsigned i) { return isLinearValue(op.getOperand(i)); };
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::NegFOp>(op))
    return linear(0);
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return linear(0) && linear(1);
  if (isa<arith::MulFOp>(op))
    return linear(0) != linear(1);
  if (isa<arith::DivFOp>(op))
    return linear(0) && !linear(1);
  if (isa<math::FmaOp>(op))
    return linear(0) != linear(1) && linear(2);
  return false;
}

/// Whether the body gives what is linear in the operands that are.
static bool isLinearBody(linalg::LinalgOp op,
                         llvm::function_ref<bool(Value)> isLinearValue) {
  llvm::DenseSet<Value> linear;
  for (OpOperand &operand : op->getOpOperands())
    if (isLinearValue(operand.get()))
      linear.insert(op.getMatchingBlockArgument(&operand));
  auto isInside = [&](Value value) { return linear.contains(value); };
  for (Operation &inner : op.getBlock()->without_terminator()) {
    for (Region &region : inner.getRegions())
      if (!region.empty())
        return false;
    if (!llvm::any_of(inner.getOperands(), isInside))
      continue;
    if (!isLinearArithmetic(inner, isInside))
      return false;
    linear.insert_range(inner.getResults());
  }
  return llvm::all_of(op.getBlock()->getTerminator()->getOperands(), isInside);
}

bool mlir::moe::detail::isLinear(
    Operation &op, llvm::function_ref<bool(Value)> isLinearValue) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return isLinearBody(linalgOp, isLinearValue);
  if (isa<tensor::CastOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp,
          tensor::CollapseShapeOp>(op))
    return isLinearValue(op.getOperand(0));
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return isLinearValue(insert.getSource()) && isLinearValue(insert.getDest());
  return isLinearArithmetic(op, isLinearValue);
}
