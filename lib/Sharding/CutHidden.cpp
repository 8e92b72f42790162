// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"

#include "moira/Sharding/Passes.h"
#include "moira/Sharding/Separability.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CUTHIDDENPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Places `begin` .. `begin + size` of dim `dim`.
static Value sliceDim(OpBuilder &builder, Location loc, Value tensor,
                      int64_t dim, int64_t begin, int64_t size) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0)),
      strides(sizes.size(), builder.getIndexAttr(1));
  offsets[dim] = builder.getIndexAttr(begin);
  sizes[dim] = builder.getIndexAttr(size);
  return tensor::ExtractSliceOp::create(builder, loc, tensor, offsets, sizes,
                                        strides);
}

static Value createZeros(OpBuilder &builder, Location loc, Value like) {
  auto type = cast<RankedTensorType>(like.getType());
  Value empty = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, like),
      type.getElementType());
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(type.getElementType()));
  return linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
}

/// Replaces the product by the sum of one product per block.
static void cutProduct(RewriterBase &rewriter, const LastProduct &product,
                       int64_t hidden, int64_t blocks) {
  linalg::LinalgOp op = product.op;
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  int64_t size = hidden / blocks;
  SmallVector<Value> sums;
  for (int64_t block = 0; block < blocks; ++block) {
    IRMapping mapping;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      AffineMap map = op.getMatchingIndexingMap(operand);
      std::optional<unsigned> dim = map.getResultPosition(
          getAffineDimExpr(product.loop, op.getContext()));
      mapping.map(operand->get(), sliceDim(rewriter, loc, operand->get(), *dim,
                                           block * size, size));
    }
    Value init = op.getDpsInits()[0];
    if (block > 0)
      mapping.map(init, createZeros(rewriter, loc, init));
    sums.push_back(rewriter.clone(*op, mapping)->getResult(0));
  }
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(rewriter, loc, op.getDpsInits()[0]);
  rewriter.replaceOp(op, addInPairs(rewriter, loc, sums, sizes));
}

namespace {

struct CutHidden : public moe::impl::CutHiddenPassBase<CutHidden> {
  using CutHiddenPassBase::CutHiddenPassBase;

  void runOnOperation() override {
    if (blocks < 1) {
      getOperation().emitError("expected at least one hidden block, got ")
          << blocks.getValue();
      return signalPassFailure();
    }
    if (blocks == 1)
      return;
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](ExpertOp expert) {
      Separability separability(expert);
      int64_t hidden = separability.getHiddenSize();
      if (!separability.isSeparable())
        return report(separability.getObstacle(), separability.getReason());
      if (hidden % blocks != 0)
        return report(expert, "a hidden dimension of " + Twine(hidden) +
                                  " has no " + Twine(blocks) + " equal blocks");
      for (LastProduct product : separability.getLastProducts()) {
        cutProduct(rewriter, product, hidden, blocks);
        ++numCut;
      }
    });
  }

private:
  void report(Operation *op, const Twine &reason) {
    remark::missed(op->getLoc(), remark::RemarkOpts::name("CutHidden")
                                     .category(getArgument())
                                     .function(getOperation().getName()))
        << remark::add("'{0}' stays: {1}", op->getName().getStringRef().str(),
                       reason.str());
  }
};

} // namespace
