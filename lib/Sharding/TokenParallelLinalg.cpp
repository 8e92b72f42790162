// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The distribution of what linalg ops give.

#include "moira/Sharding/TokenParallel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::moe;

LogicalResult TokenAnalysis::visitLinalg(linalg::LinalgOp op) {
  std::optional<unsigned> loop;
  int64_t rows = 1;
  Value local;
  for (OpOperand &operand : op->getOpOperands()) {
    RankDistribution given = get(operand.get());
    if (given.kind == RankDistribution::Local ||
        given.kind == RankDistribution::Count)
      local = operand.get();
    if (given.kind != RankDistribution::Tokens)
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    auto dim = dyn_cast<AffineDimExpr>(map.getResult(given.dim));
    if (!dim || (loop && *loop != dim.getPosition()) ||
        map.dropResult(given.dim).isFunctionOfDim(dim.getPosition()))
      return mixes(*op, "one that indexes tokens in two ways");
    loop = dim.getPosition();
    rows = std::max(rows, given.rows);
  }
  WalkResult captures = op->walk([&](Operation *inner) {
    if (inner == op.getOperation())
      return WalkResult::advance();
    if (auto index = dyn_cast<linalg::IndexOp>(inner);
        index && loop && index.getDim() == *loop)
      return WalkResult::interrupt();
    for (Value operand : inner->getOperands()) {
      if (isTokens(operand))
        return WalkResult::interrupt();
      if (!isReplicated(operand))
        local = operand;
    }
    return WalkResult::advance();
  });
  if (captures.wasInterrupted())
    return mixes(*op, "a body that reads tokens by their number");
  if (!loop) {
    if (local)
      setLocal(*op);
    return success();
  }
  if (local) {
    InFlightDiagnostic error =
        mixes(*op, "one that computes with values of a rank's tokens");
    explain(error, local);
    return error;
  }
  for (OpOperand &operand : op->getOpOperands())
    if (!isTokens(operand.get()) &&
        op.getMatchingIndexingMap(&operand).isFunctionOfDim(*loop))
      return mixes(*op, "one that reads operand #" +
                            Twine(operand.getOperandNumber()) +
                            " by the number of a token");
  if (op.getIteratorTypesArray()[*loop] != utils::IteratorType::parallel)
    return visitSum(op);
  for (OpResult result : op->getResults()) {
    AffineMap map = op.getMatchingIndexingMap(op.getTiedOpOperand(result));
    known[result] = {
        RankDistribution::Tokens,
        *map.getResultPosition(getAffineDimExpr(*loop, op->getContext())),
        rows};
  }
  return success();
}

/// Whether `result`, yielded by the body of a reduction, is what was there and
/// something more.
static bool isSum(Value result, BlockArgument before) {
  Operation *add = result.getDefiningOp();
  return isa_and_nonnull<arith::AddFOp, arith::AddIOp>(add) &&
         before.hasOneUse() && llvm::is_contained(add->getOperands(), before);
}

LogicalResult TokenAnalysis::visitSum(linalg::LinalgOp op) {
  Block *body = op.getBlock();
  for (auto [yielded, before] : llvm::zip(body->getTerminator()->getOperands(),
                                          op.getRegionOutputArgs()))
    if (!isSum(yielded, before))
      return mixes(*op,
                   "a reduction over tokens that is no sum; ranks can add, "
                   "and nothing else");
  for (Value result : op->getResults()) {
    Type element = getElementTypeOrSelf(result.getType());
    if (!isa<FloatType>(element) && !element.isInteger(32) &&
        !element.isInteger(64))
      return mixes(*op, "a sum over tokens of ") << element;
  }
  sums.push_back(op);
  return success();
}
