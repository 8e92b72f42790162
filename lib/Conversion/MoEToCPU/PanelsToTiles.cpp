// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mode rows over panels: the forward products.

#include "GroupedProduct.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
struct PanelsToTiles : TilePattern {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;
};
} // namespace

static bool isCompact(Value memref) {
  return cast<MemRefType>(memref.getType()).getLayout().isIdentity();
}

LogicalResult PanelsToTiles::matchAndRewrite(GroupedMatmulOp op,
                                             PatternRewriter &rewriter) const {
  if (!hasBufferForm(op))
    return rewriter.notifyMatchFailure(op, "expected the buffer form");
  if (op.getContraction() || op.getLayout() != WeightLayout::Panels)
    return rewriter.notifyMatchFailure(op, "expected panels in mode rows");
  PanelForm form = op.getForm();
  int64_t n = op.getN(), k = op.getK();
  if (!llvm::isPowerOf2_64(form.width) || ShapedType::isDynamic(k) || k < 1 ||
      n < 1 || !llvm::all_of(op.getWeights(), isCompact))
    return rewriter.notifyMatchFailure(op, "expected compact whole vectors");
  auto element =
      cast<FloatType>(getElementTypeOrSelf(op.getWeights().front().getType()));
  TileFormat format =
      TileFormat::get(element, op.getAccumulatorType(), op.getNumAccumulators(),
                      form.width, form.pairs, options);
  int64_t steps = form.steps(k);
  format.ragged = steps % TileFormat::kUnroll != 0;

  GroupedProduct product(rewriter, op, format, options);
  LoopBuilder &b = product.b;
  SmallVector<Value> panels;
  for (Value weight : op.getWeights())
    panels.push_back(flatten(b, weight));
  product.begin();
  product.blocks.emitScratch(b);
  // Panels of the whole expert, and of one block of the contraction.
  int64_t blockPanels = form.panelsPerBlock(n) * form.blocksOfN;
  int64_t expertPanels = blockPanels * form.blocksOfK;
  auto findPlace = [&](Value expert, Value panel, Value chain, Value step) {
    Value row = b.add(b.mul(expert, b.index(expertPanels)), panel);
    if (form.blocksOfK > 1)
      row = b.add(row, b.mul(product.partOf(chain), b.index(blockPanels)));
    row = b.add(b.mul(row, b.index(steps)), step);
    SmallVector<Value> read(panels);
    if (op.getChained())
      read.assign({product.chooseOf(chain, panels)});
    return PanelPlace{read, b.mul(row, b.index(format.stepElements()))};
  };
  product.blocks.findPanel = [&](Value panel, StepRange part) {
    return findPlace(product.block.expert, panel, part.chain, part.begin);
  };
  product.finish([&](Value expert, Value panel) {
    return findPlace(expert, panel, b.index(0), b.index(0));
  });
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populatePanelsToTilesPatterns(RewritePatternSet &patterns,
                                              const CPUTileOptions &options) {
  patterns.add<PanelsToTiles>(patterns.getContext(), options);
}
