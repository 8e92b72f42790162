// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What no kernel of an expert computes.

#include "FormKernelsMatcher.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

bool ExpertMatcher::readsRowScalar(Value value) {
  auto [known, isNew] = rowScalarReaders.try_emplace(value, false);
  if (!isNew)
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!op || products.contains(op) || isa<tensor::DimOp>(op))
    return false;
  bool reads = llvm::any_of(op->getOperands(), [&](Value operand) {
    if (!isStored(operand))
      return readsRowScalar(operand);
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    return type && type.getRank() == 2 && type.getDimSize(1) == 1;
  });
  rowScalarReaders[value] = reads;
  return reads;
}

bool ExpertMatcher::isRemainder(Value result) {
  if (!result.getDefiningOp() || products.contains(result.getDefiningOp()))
    return false;
  return isDisabled(Fusions::Activation) ||
         (isDisabled(Fusions::PairWeights) && readsRowScalar(result));
}

ExpertMatcher::Plan
ExpertMatcher::addInputs(Remainder &remainder, Operation *op,
                         SmallVectorImpl<Operation *> &pending) {
  llvm::SetVector<Value> operands(op->operand_begin(), op->operand_end());
  // Payloads capture constants.
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (operand.getParentBlock() == &body)
        operands.insert(operand);
  });
  for (Value operand : operands) {
    Operation *source = operand.getDefiningOp();
    if (isRows(operand) || stored.contains(operand)) {
      remainder.rows.insert(operand);
      continue;
    }
    if (!source) {
      (isShared(operand) ? remainder.shared : remainder.perExpert)
          .insert(operand);
      continue;
    }
    llvm::SetVector<Operation *> reached;
    collectProducts(operand, reached);
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    // What a kernel may still compute is stored where its type allows it.
    bool fused = !isDisabled(Fusions::Activation) && !reached.empty() &&
                 !readsRowScalar(operand) && type && type.getRank() == 2 &&
                 type.isDynamicDim(0) && !type.isDynamicDim(1) &&
                 isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
                     type.getElementType());
    if (fused || products.contains(source)) {
      stored.insert(operand);
      return Plan::Again;
    }
    pending.push_back(source);
  }
  return Plan::Done;
}

ExpertMatcher::Plan ExpertMatcher::planRemainder(Value result) {
  Remainder &remainder = planned.remainders[result];
  remainder.result = result;
  llvm::SmallPtrSet<Operation *, 16> seen;
  SmallVector<Operation *> pending{result.getDefiningOp()};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    // All rows are as many, so that none is read for its number only.
    if (auto dim = dyn_cast<tensor::DimOp>(op);
        dim && isStored(dim.getSource()) && dim.getConstantIndex() == 0) {
      remainder.dims.push_back(dim);
      continue;
    }
    Plan done = addInputs(remainder, op, pending);
    if (done != Plan::Done)
      return done;
    remainder.ops.push_back(op);
  }
  if (remainder.rows.empty()) {
    if (!isSum(result))
      return refuse(result.getDefiningOp(), "rows that depend on no rows");
    // Zeros: the loop is still one over groups.
    remainder.rows.insert(expert.getRowArgs().front());
  }
  llvm::sort(remainder.ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return Plan::Done;
}
