// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mode rows over transposed panels: gradients of rows, from the panels of the
// forward product. Blocks of panels are transposed into a scratch panel that
// serves all rows of a work item.

#include "GroupedProduct.h"
#include "Staging.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
struct TransposedToTiles : public OpRewritePattern<GroupedMatmulOp> {
  TransposedToTiles(MLIRContext *context, const CPUTileOptions &options)
      : OpRewritePattern(context, /*benefit=*/2), options(options) {}

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;

private:
  CPUTileOptions options;
};
} // namespace

LogicalResult
TransposedToTiles::matchAndRewrite(GroupedMatmulOp op,
                                   PatternRewriter &rewriter) const {
  if (!hasBufferForm(op) || op.getContraction() ||
      op.getLayout() != WeightLayout::TransposedPanels)
    return rewriter.notifyMatchFailure(op, "expected transposed panels");
  auto type = cast<MemRefType>(op.getWeights().front().getType());
  PanelShape shape(type);
  int64_t k = op.getK(), n = op.getN();
  if (ShapedType::isDynamic(k) || !llvm::isPowerOf2_64(shape.width) ||
      shape.steps < 1 || n < 1 || k < 1 || !type.getLayout().isIdentity())
    return rewriter.notifyMatchFailure(op, "expected compact whole vectors");
  FloatType accumulator = op.getAccumulatorType();
  int64_t width = options.scratchWidth(accumulator);
  TileFormat format = TileFormat::get(
      shape.pairs ? cast<FloatType>(type.getElementType()) : accumulator,
      accumulator, /*weights=*/1, width, shape.pairs, options);
  if (shape.width % format.lanes != 0)
    return rewriter.notifyMatchFailure(op, "expected whole vectors per panel");
  int64_t steps = llvm::divideCeil(k, shape.pairs ? 2 : 1);
  format.ragged = steps % TileFormat::kUnroll != 0;

  GroupedProduct product(rewriter, op, format, steps,
                         llvm::divideCeil(n, width));
  LoopBuilder &b = product.b;
  Value panels = flatten(b, op.getWeights().front());
  int64_t expertElements = type.getNumElements() / op.getNumExperts();
  product.begin();
  product.blocks.makesPanels = true;
  product.blocks.emitScratch(b);
  Value scratch = product.blocks.emitPanelScratch(b);
  product.blocks.findPanel = [&](Value panel, StepRange range) {
    PanelPlace place{{scratch}, b.index(0)};
    Value base = b.mul(product.block.expert, b.index(expertElements));
    emitTransposedPanel(b, format, panels, base, shape.steps, shape.width,
                        b.mul(panel, b.index(width)), range, place);
    return place;
  };
  product.finish(std::nullopt);
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populateTransposedToTilesPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<TransposedToTiles>(patterns.getContext(), options);
}
