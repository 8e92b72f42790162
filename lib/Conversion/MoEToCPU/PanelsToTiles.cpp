// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mode rows over panels: the forward products.

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"

#include "Epilogue.h"
#include "Groups.h"
#include "Staging.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Rows of a work item: few for decode, whose panels come from memory anyway;
/// for prefill enough that a panel is read from cache for many rows, and few
/// enough that one hot expert still fills many workers.
static constexpr int64_t kDecodeRowBlock = 24;
static constexpr int64_t kPrefillRowBlock = 192;

/// Panels of a work item: staged rows serve all of them. Fewer when there would
/// not be this many items to balance.
static constexpr int64_t kDecodePanels = 8, kPrefillPanels = 4;
static constexpr int64_t kWantedItems = 128;

/// Nanoseconds that a core needs for a multiply-add step of one vector.
static constexpr double kVectorStepNs = 0.15;

static bool isDecode(Operation *op) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto rowClass = function
                      ? function->getAttrOfType<RowClassAttr>("moe.row_class")
                      : RowClassAttr();
  return rowClass && rowClass.getValue() == RowClass::Decode;
}

namespace {

/// The panels `[E, ceil(N/w), S, w]` or `[E, ceil(N/w), S, w, 2]` of an op.
struct PanelShape {
  explicit PanelShape(MemRefType type)
      : panels(type.getDimSize(1)), steps(type.getDimSize(2)),
        width(type.getDimSize(3)), pairs(type.getRank() == 5) {}
  int64_t panels, steps, width;
  bool pairs;
};

struct PanelsToTiles : public OpRewritePattern<GroupedMatmulOp> {
  PanelsToTiles(MLIRContext *context, const CPUTileOptions &options)
      : OpRewritePattern(context, /*benefit=*/2), options(options) {}

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;

private:
  CPUTileOptions options;
};

} // namespace

/// Equal to a chain of fused multiply-adds but for denormal numbers.
static void recordNumerics(GroupedMatmulOp op) {
  op->getParentOfType<FunctionOpInterface>()->setAttr(
      kNumericsAttrName, StringAttr::get(op.getContext(), "cpu-dot-bf16"));
}

static bool isCompact(Value memref) {
  return cast<MemRefType>(memref.getType()).getLayout().isIdentity();
}

LogicalResult PanelsToTiles::matchAndRewrite(GroupedMatmulOp op,
                                             PatternRewriter &rewriter) const {
  if (!hasBufferForm(op))
    return rewriter.notifyMatchFailure(op, "expected the buffer form");
  if (op.getContraction() || op.getLayout() != WeightLayout::Panels)
    return rewriter.notifyMatchFailure(op, "expected panels in mode rows");
  auto type = cast<MemRefType>(op.getWeights().front().getType());
  PanelShape shape(type);
  if (!llvm::isPowerOf2_64(shape.width) || shape.steps < 1 || op.getN() < 1 ||
      !llvm::all_of(op.getWeights(), isCompact))
    return rewriter.notifyMatchFailure(op, "expected compact whole vectors");
  int64_t weights = op.getWeights().size();
  TileFormat format = TileFormat::get(
      cast<FloatType>(type.getElementType()), op.getAccumulatorType(), weights,
      shape.width, shape.pairs, options);
  format.ragged = shape.steps % TileFormat::kUnroll != 0;

  if (format.pairs)
    recordNumerics(op);
  int64_t rowBlock = isDecode(op) ? kDecodeRowBlock : kPrefillRowBlock;
  int64_t mostPanels =
      std::min(isDecode(op) ? kDecodePanels : kPrefillPanels, shape.panels);
  ImplicitLocOpBuilder ib(op.getLoc(), rewriter);
  FlatOperands flat = flattenOperands(ib, op);
  Groups groups = emitGroups(ib, op);
  RowBlocks blocks = emitRowBlocks(ib, op, rowBlock);
  LoopBuilder b(rewriter, op.getLoc());
  SmallVector<Value> panels;
  for (Value weight : op.getWeights())
    panels.push_back(flatten(b, weight));
  Value panelCount = b.index(shape.panels);
  Value range = b.div(b.mul(blocks.count, panelCount), b.index(kWantedItems));
  range = b.minimum(b.maximum(range, b.index(1)), b.index(mostPanels));
  Value ranges = b.make<arith::CeilDivUIOp>(panelCount, range);
  Value items = b.mul(blocks.count, ranges);
  Value lastItem = b.sub(items, b.index(1));
  // A panel is read once whatever the rows: the least an item costs.
  int64_t cost = std::max<int64_t>(
      1, static_cast<int64_t>(kVectorStepNs * shape.steps * weights *
                              shape.width / format.lanes));

  auto loop = scf::ParallelOp::create(
      rewriter, op.getLoc(), ValueRange{b.index(0)}, ValueRange{items},
      ValueRange{b.index(1)});
  loop->setAttr("moe.cost", rewriter.getI64IntegerAttr(cost));
  rewriter.setInsertionPoint(loop.getBody()->getTerminator());
  Value number = loop.getInductionVars().front();

  auto firstPanel = [&](Value item) {
    return b.mul(b.make<arith::RemUIOp>(item, ranges), range);
  };
  auto findPlace = [&](Value expert, Value panel, Value step) {
    Value row = b.add(b.mul(expert, panelCount), panel);
    row = b.add(b.mul(row, b.index(shape.steps)), step);
    return PanelPlace{panels, b.mul(row, b.index(format.stepElements()))};
  };
  ib.setInsertionPoint(loop.getBody()->getTerminator());
  RowBlock block =
      emitRowBlock(ib, op, groups, blocks, b.div(number, ranges));
  BlockedProduct product(format, shape.steps, rowBlock, mostPanels);
  product.emitScratch(b);
  product.stageRows = [&](StepRange part, StagePlace place) {
    emitStageRows(
        b, format, flat.rows, block.rows,
        [&](Value r) {
          return emitSourceRow(b, op, b.add(block.first, r));
        },
        part, place);
  };
  product.findPanel = [&](Value panel, StepRange part) {
    return findPlace(block.expert, panel, part.begin);
  };
  Epilogue epilogue(op, flat, format);
  auto columnOf = [&](Value panel) {
    return b.mul(panel, b.index(shape.width));
  };
  if (!op.getBias().empty())
    product.startSums = [&](Value panel, Value sums, Value offset) {
      epilogue.emitStart(b, block.expert, columnOf(panel), block.rows, sums,
                         offset);
    };
  product.finishSums = [&](Value panel, Value sums, Value offset) {
    epilogue.emit(b, block, columnOf(panel), sums, offset);
  };

  BlockedProduct::Item item;
  item.rows = block.rows;
  item.begin = firstPanel(number);
  item.end = b.minimum(b.add(item.begin, range), panelCount);
  item.steps = b.index(shape.steps);
  Value nextItem = b.minimum(b.add(number, b.index(1)), lastItem);
  Value nextExpert = b.load(blocks.expert, {b.div(nextItem, ranges)});
  item.next = findPlace(nextExpert, firstPanel(nextItem), b.index(0));
  product.emit(b, op, item);
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populateGroupedMatmulToCPUPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<PanelsToTiles>(patterns.getContext(), options);
  populateUnpackedToLoopsPatterns(patterns);
}
