// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Canonicalisations of collectives: with one rank nothing moves.

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::moe;

/// Whether all units stand on one rank, in their order: there a slot table has
/// nothing to say.
static bool isAlone(PlacementAttr placement) {
  return placement.getRanks() == 1 && placement.getShards() == 1 &&
         placement.getSlots() == placement.getExperts();
}

/// Replaces the only result by `value`, cast to the result's type.
static LogicalResult replaceByCast(PatternRewriter &rewriter, Operation *op,
                                   Value value) {
  Type type = op->getResult(0).getType();
  if (value.getType() != type)
    value = tensor::CastOp::create(rewriter, op->getLoc(), type, value);
  rewriter.replaceOp(op, value);
  return success();
}

/// `[N]` of the only rank as `[1, N]`.
static LogicalResult foldGather(PatternRewriter &rewriter, Operation *op,
                                Value mine) {
  if (op->getNumResults() == 0)
    return failure();
  auto all = cast<RankedTensorType>(op->getResult(0).getType());
  if (all.getDimSize(0) != 1)
    return failure();
  rewriter.replaceOpWithNewOp<tensor::ExpandShapeOp>(
      op, all, mine, ArrayRef<ReassociationIndices>{{0, 1}});
  return success();
}

static LogicalResult foldReceiveSizes(ReceiveSizesOp op,
                                      PatternRewriter &rewriter) {
  // The bound of one rank's rows is at home, so that it has no use here.
  if (hasBufferForm(op) || !isAlone(op.getPlacement()) || op.getChunk() ||
      !op->getResult(1).use_empty())
    return failure();
  Value groups =
      tensor::CollapseShapeOp::create(rewriter, op.getLoc(), op.getMatrix(),
                                      ArrayRef<ReassociationIndices>{{0, 1}});
  rewriter.replaceAllUsesWith(op->getResult(0), groups);
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult foldExchange(ExchangeOp op, PatternRewriter &rewriter) {
  if (op->getNumResults() == 0 || !isAlone(op.getPlacement()) || op.getChunk())
    return failure();
  return replaceByCast(rewriter, op, op.getRows());
}

/// Whether every slot of `op` has what it needs, and nobody else needs the
/// same: neither weights nor their gradients travel.
template <typename OpTy> static bool isLocal(OpTy op) {
  PlacementAttr placement = op.getPlacement();
  if (isAlone(placement))
    return true;
  // Spare slots may hold replicas, whose gradients are one sum.
  int64_t places = placement.getRanks() * placement.getSlots();
  bool isOnce = places == placement.getExperts() * placement.getShards() &&
                (op.getDim() || placement.getShards() == 1);
  return placement.getCopies() != 0 && placement.getPartsPerGroup() == 1 &&
         isOnce;
}

static LogicalResult foldGatherWeights(GatherWeightsOp op,
                                       PatternRewriter &rewriter) {
  if (op->getNumResults() == 0 || !isLocal(op))
    return failure();
  return replaceByCast(rewriter, op, op.getWeights());
}

static LogicalResult foldReduceWeights(ReduceWeightsOp op,
                                       PatternRewriter &rewriter) {
  if (op->getNumResults() == 0 || !isLocal(op))
    return failure();
  return replaceByCast(rewriter, op, op.getWhole());
}

void AllGatherOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                              MLIRContext *) {
  patterns.add(+[](AllGatherOp op, PatternRewriter &rewriter) {
    return foldGather(rewriter, op, op.getMine());
  });
}

void GatherCountsOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                 MLIRContext *) {
  patterns.add(+[](GatherCountsOp op, PatternRewriter &rewriter) {
    return foldGather(rewriter, op, op.getSizes());
  });
}

void ReceiveSizesOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                 MLIRContext *) {
  patterns.add(foldReceiveSizes);
}

void ExchangeOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                             MLIRContext *) {
  patterns.add(foldExchange);
}

void GatherWeightsOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *) {
  patterns.add(foldGatherWeights);
}

void ReduceWeightsOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *) {
  patterns.add(foldReduceWeights);
}
