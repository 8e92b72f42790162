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
struct TransposedToTiles : TilePattern {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;
};
} // namespace

LogicalResult
TransposedToTiles::matchAndRewrite(GroupedMatmulOp op,
                                   PatternRewriter &rewriter) const {
  if (!hasBufferForm(op) || op.getContraction() ||
      op.getLayout() != WeightLayout::TransposedPanels)
    return rewriter.notifyMatchFailure(op, "expected transposed panels");
  auto type = cast<MemRefType>(op.getWeights().front().getType());
  PanelForm form = op.getForm();
  int64_t k = op.getK(), n = op.getN();
  auto isCompact = [](Value weight) {
    return cast<MemRefType>(weight.getType()).getLayout().isIdentity();
  };
  if (ShapedType::isDynamic(k) || !llvm::isPowerOf2_64(form.width) || n < 1 ||
      k < 1 || !llvm::all_of(op.getWeights(), isCompact))
    return rewriter.notifyMatchFailure(op, "expected compact whole vectors");
  FloatType accumulator = op.getAccumulatorType();
  int64_t width = options.scratchWidth(accumulator);
  TileFormat format = TileFormat::get(
      form.pairs ? cast<FloatType>(type.getElementType()) : accumulator,
      accumulator, /*weights=*/1, width, form.pairs, options);
  if (form.width % format.lanes != 0)
    return rewriter.notifyMatchFailure(op, "expected whole vectors per panel");
  int64_t stepsOfChain = GroupedProduct::countSteps(op, form.pairs);
  format.ragged = stepsOfChain % TileFormat::kUnroll != 0;

  GroupedProduct product(rewriter, op, format, options);
  LoopBuilder &b = product.b;
  SmallVector<Value> panels;
  for (Value weight : op.getWeights())
    panels.push_back(flatten(b, weight));
  int64_t expertElements = type.getNumElements() / op.getNumExperts();
  product.begin();
  product.blocks.scratchBytes = options.transposeBytes();
  product.blocks.emitScratch(b);
  Value scratch = product.blocks.emitPanelScratch(b);
  // The packed matrix is [k, n]: its panels hold columns of k, its steps are
  // columns of the result.
  int64_t steps = form.steps(n), blockPanels = form.panelsPerBlock(k);
  int64_t blockElements =
      blockPanels * steps * form.width * (form.pairs ? 2 : 1);
  product.blocks.findPanel = [&](Value panel, StepRange range) {
    PanelPlace place{{scratch}, b.index(0)};
    Value base = b.mul(product.block.expert, b.index(expertElements));
    // Of the hidden block of k or of n, whichever is cut.
    Value block = form.blocksOfN > 1 ? product.partOf(range.chain)
                                     : product.blockOf(panel);
    base = b.add(base, b.mul(block, b.index(blockElements)));
    Value source = product.chooseOf(range.chain, panels);
    emitTransposedPanel(b, format, source, base, steps, form.width,
                        product.columnInBlock(panel), range, place);
    return place;
  };
  // Of each packed panel `format.width` columns are consecutive.
  int64_t elementBytes = type.getElementTypeBitWidth() / 8;
  int64_t runBytes = format.width * form.width * elementBytes;
  int64_t shift =
      llvm::Log2_64_Ceil(std::max<int64_t>(runBytes / kPrefetchBytes, 1));
  product.blocks.findSource = [&](Value panel, StepRange range) {
    int64_t factors = form.pairs ? 2 : 1;
    PanelSource source;
    source.memref = product.chooseOf(range.chain, panels);
    Value base = b.mul(product.block.expert, b.index(expertElements));
    Value block = form.blocksOfN > 1 ? product.partOf(range.chain)
                                     : product.blockOf(panel);
    base = b.add(base, b.mul(block, b.index(blockElements)));
    Value first =
        b.div(b.mul(range.begin, b.index(factors)), b.index(form.width));
    int64_t panelElements = steps * form.width * factors;
    source.offset =
        b.add(b.add(base, b.mul(first, b.index(panelElements))),
              b.mul(product.columnInBlock(panel), b.index(form.width)));
    source.stride = b.index(kPrefetchBytes / elementBytes);
    source.shift = b.index(shift);
    source.run = b.index(panelElements);
    Value runs = b.make<arith::CeilDivUIOp>(
        b.mul(range.steps, b.index(factors)), b.index(form.width));
    source.chunks = b.make<arith::ShLIOp>(runs, b.index(shift));
    return source;
  };
  product.finish(std::nullopt);
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populateTransposedToTilesPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<TransposedToTiles>(patterns.getContext(), options);
}
