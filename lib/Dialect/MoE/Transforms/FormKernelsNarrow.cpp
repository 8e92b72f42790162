// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of rounded values are rounded, and widened where others read them.

#include "FormKernelsView.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe::detail;

/// The widening to f32 that gives the result of `op`; null where there is none,
/// or where nothing is computed before it.
static arith::ExtFOp getLastWidening(linalg::GenericOp op) {
  if (!op.hasPureTensorSemantics() || !op.isAllParallelLoops() ||
      op->getNumResults() != 1)
    return {};
  auto ext = op.getBody()
                 ->getTerminator()
                 ->getOperand(0)
                 .getDefiningOp<arith::ExtFOp>();
  if (!ext || !ext.getType().isF32() || !ext.getIn().getDefiningOp() ||
      ext.getIn().getDefiningOp()->getBlock() != op.getBody() ||
      !op.getMatchingBlockArgument(op.getDpsInitOperand(0)).use_empty() ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return {};
  return ext;
}

static void splitWidening(RewriterBase &rewriter, linalg::GenericOp op,
                          arith::ExtFOp ext) {
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  Value init = op.getDpsInitOperand(0)->get();
  Type element = ext.getIn().getType();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, init);
  Value empty = tensor::EmptyOp::create(rewriter, loc, sizes, element);
  auto narrow = linalg::GenericOp::create(
      rewriter, loc, TypeRange(empty.getType()), op.getDpsInputs(),
      ValueRange{empty}, op.getIndexingMapsArray(), op.getIteratorTypesArray());
  rewriter.inlineRegionBefore(op.getRegion(), narrow.getRegion(),
                              narrow.getRegion().end());
  Block *body = narrow.getBody();
  body->getArguments().back().setType(element);
  rewriter.modifyOpInPlace(body->getTerminator(), [&] {
    body->getTerminator()->setOperand(0, ext.getIn());
  });
  if (ext->use_empty())
    rewriter.eraseOp(ext);
  AffineMap identity = rewriter.getMultiDimIdentityMap(sizes.size());
  SmallVector<AffineMap> maps(2, identity);
  SmallVector<utils::IteratorType> kinds(sizes.size(),
                                         utils::IteratorType::parallel);
  auto wide = linalg::GenericOp::create(
      rewriter, loc, TypeRange(init.getType()), narrow.getResult(0), init, maps,
      kinds, [](OpBuilder &builder, Location loc, ValueRange args) {
        Value value =
            arith::ExtFOp::create(builder, loc, args[1].getType(), args[0]);
        linalg::YieldOp::create(builder, loc, value);
      });
  rewriter.replaceOp(op, wide.getResults());
}

void mlir::moe::detail::exposeNarrow(RewriterBase &rewriter, Block &block) {
  OpBuilder::InsertionGuard guard(rewriter);
  for (auto op : llvm::make_early_inc_range(block.getOps<linalg::GenericOp>()))
    if (arith::ExtFOp ext = getLastWidening(op))
      splitWidening(rewriter, op, ext);
}
