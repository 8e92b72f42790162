// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mode contraction: gradients of weights. The rows of a group are the steps;
// a work item is a block of rows times a range of columns of one result.

#include "Groups.h"
#include "Staging.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Rows and panels of a work item: a copied panel serves many rows, and copied
/// rows all panels. Fewer rows where there would be few items.
static constexpr int64_t kMostRows = 512, kFewRows = 192, kPanels = 4;
static constexpr int64_t kManyItems = 64;

namespace {
struct ContractionToTiles : TilePattern {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;
};

/// Rounds sums to the result: rows of it and columns, or with packed results
/// rows of panels and what stands in them.
class ResultWriter {
public:
  ResultWriter(LoopBuilder &b, const TileFormat &format, GroupedMatmulOp op)
      : b(b), format(format), result(op.getOuts().front()),
        type(cast<MemRefType>(result.getType())) {
    if (!op.hasPanels())
      return;
    form = op.getForm();
    panels = form->panelsPerBlock(op.getN());
    steps = form->steps(op.getK());
    rows = op.getK();
  }

  /// Columns that are written.
  int64_t countColumns() const {
    return form ? panels * form->width : type.getDimSize(2);
  }
  /// Whether the kernel can write the results itself: all columns of a panel
  /// exist, and all rows that share a row of results.
  bool isDirect() const {
    if (countColumns() % format.width != 0)
      return false;
    // Two vectors of a row may be rounded together.
    if (form)
      return llvm::isPowerOf2_64(form->width) &&
             (form->pairs ? rows % 2 == 0
                          : !format.pairs || form->width >= 2 * format.lanes);
    return type.hasStaticShape() && type.getLayout().isIdentity();
  }
  int64_t resultRows() const { return form && form->pairs ? 2 : 1; }
  /// Prepares results that the kernel writes.
  void begin();
  /// Where it writes rows from `row` on of a panel from `column` on.
  TileResult findPlace(Value expert, Value row, Value column);
  /// Brings them in order with what follows.
  void end() {
    b.when(streams, [&] { b.orderStreams(); });
  }
  /// Writes `rows` rows of sums otherwise.
  void emit(Value expert, Value row, Value rows, Value column, Value sums,
            Value offset);

private:
  Value round(Value sum) { return b.toReal(type.getElementType(), sum); }
  Value loadSums(Value sums, Value at) {
    return b.make<vector::LoadOp>(
        VectorType::get({format.lanes}, format.accumulator), sums,
        ValueRange{at});
  }
  void emitRows(Value expert, Value row, Value rows, Value column, Value sums,
                Value offset);
  void emitPanels(Value expert, Value row, Value rows, Value column, Value sums,
                  Value offset);

  LoopBuilder &b;
  const TileFormat &format;
  Value result;
  MemRefType type;
  /// Of packed results: the form, panels and steps of an expert, and rows.
  std::optional<PanelForm> form;
  int64_t panels = 0, steps = 0, rows = 0;
  /// Whether the result is large and every vector of it aligned (i1): then it
  /// goes past the caches, which need not read it first.
  Value streams;
};
} // namespace

void ResultWriter::begin() {
  int64_t elementBytes = type.getElementTypeBitWidth() / 8;
  if (type.getNumElements() * elementBytes < kStreamBytes) {
    streams = b.integer(b.builder.getI1Type(), 0);
  } else {
    Value address = b.make<memref::ExtractAlignedPointerAsIndexOp>(result);
    Value rest = b.make<arith::RemUIOp>(address, b.index(kCacheLine));
    streams = b.compare(arith::CmpIPredicate::eq, rest, b.index(0));
  }
  result = flatten(b, result);
}

TileResult ResultWriter::findPlace(Value expert, Value row, Value column) {
  TileResult place;
  place.memref = result;
  place.streams = streams;
  if (form) {
    int64_t factors = resultRows(), width = form->width;
    int64_t shift = llvm::Log2_64(width);
    Value panel = b.add(b.mul(expert, b.index(panels)),
                        b.make<arith::ShRUIOp>(column, b.index(shift)));
    Value lane = b.make<arith::AndIOp>(column, b.index(width - 1));
    Value step =
        b.add(b.mul(panel, b.index(steps)), b.div(row, b.index(factors)));
    place.offset =
        b.mul(b.add(b.mul(step, b.index(width)), lane), b.index(factors));
    place.stride = b.index(width * factors);
    place.runShift = b.index(shift);
    place.runStride = b.index(steps * width * factors);
    return place;
  }
  Value matrixRow = b.add(b.mul(expert, b.index(type.getDimSize(1))), row);
  place.offset = b.add(b.mul(matrixRow, b.index(type.getDimSize(2))), column);
  place.stride = b.index(type.getDimSize(2));
  place.runShift = b.index(kOneRun);
  place.runStride = b.index(0);
  return place;
}

void ResultWriter::emitRows(Value expert, Value row, Value rows, Value column,
                            Value sums, Value offset) {
  b.loop(b.index(0), rows, [&](Value r) {
    Value from = b.add(offset, b.mul(r, b.index(format.rowSums())));
    Row to{result, {expert, b.add(row, r)}};
    auto storeVector = [&](Value c) {
      Value sum = loadSums(sums, b.add(from, c));
      b.storeLanes(round(sum), to, b.add(column, c), format.lanes);
    };
    Value end = b.minimum(b.sub(b.index(type.getDimSize(2)), column),
                          b.index(format.width));
    Value whole =
        b.mul(b.div(end, b.index(format.lanes)), b.index(format.lanes));
    b.loop(b.index(0), whole, storeVector, format.lanes);
    if (type.getDimSize(2) % format.lanes != 0)
      b.loop(whole, end, [&](Value c) {
        b.store(round(b.load(sums, {b.add(from, c)})), to, b.add(column, c));
      });
  });
}

/// A row of sums is a step of several panels; of pairs the later one of two
/// stands first, 0 beyond the last.
void ResultWriter::emitPanels(Value expert, Value row, Value rows, Value column,
                              Value sums, Value offset) {
  int64_t factors = form->pairs ? 2 : 1;
  int64_t stepElements = form->width * factors;
  Value end =
      b.minimum(b.sub(b.index(countColumns()), column), b.index(format.width));
  b.loop(
      b.index(0), end,
      [&](Value c) {
        Value at = b.add(column, c);
        Value panel = b.add(b.mul(expert, b.index(panels)),
                            b.div(at, b.index(form->width)));
        Value lane = b.make<arith::RemUIOp>(at, b.index(form->width));
        Value start = b.add(b.mul(panel, b.index(steps * stepElements)),
                            b.mul(lane, b.index(factors)));
        b.loop(
            b.index(0), rows,
            [&](Value r) {
              auto sumOf = [&](Value r) {
                return loadSums(sums,
                                b.add(b.add(offset, c),
                                      b.mul(r, b.index(format.rowSums()))));
              };
              Value value = round(sumOf(r));
              if (form->pairs) {
                Value next = b.add(r, b.index(1));
                Value exists = b.compare(arith::CmpIPredicate::ult,
                                         b.add(row, next), b.index(this->rows));
                Value none = b.constant(
                    cast<TypedAttr>(b.builder.getZeroAttr(value.getType())));
                Value later = b.choose(
                    exists,
                    [&] { return SmallVector<Value>{round(sumOf(next))}; },
                    [&] { return SmallVector<Value>{none}; })[0];
                value = b.make<vector::InterleaveOp>(later, value);
              }
              Value step = b.div(b.add(row, r), b.index(factors));
              Value to = b.add(start, b.mul(step, b.index(stepElements)));
              b.storeLanes(value, {result, {}}, to, format.lanes * factors);
            },
            factors);
      },
      format.lanes);
}

void ResultWriter::emit(Value expert, Value row, Value rows, Value column,
                        Value sums, Value offset) {
  if (!form)
    return emitRows(expert, row, rows, column, sums, offset);
  result = flatten(b, result);
  emitPanels(expert, row, rows, column, sums, offset);
}

LogicalResult
ContractionToTiles::matchAndRewrite(GroupedMatmulOp op,
                                    PatternRewriter &rewriter) const {
  if (!hasBufferForm(op) || !op.getContraction())
    return rewriter.notifyMatchFailure(op, "expected mode contraction");
  int64_t n = op.getN(), k = op.getK();
  if (ShapedType::isDynamic(n) || ShapedType::isDynamic(k) || n < 1 || k < 1)
    return rewriter.notifyMatchFailure(op, "expected static N and K");
  int64_t lanes = options.vectorBits / op.getAccumulatorType().getWidth();
  if (op.hasPanels() && (op.getForm().width % lanes != 0 ||
                         !cast<MemRefType>(op.getOuts().front().getType())
                              .getLayout()
                              .isIdentity()))
    return rewriter.notifyMatchFailure(op, "expected compact whole vectors");
  ImplicitLocOpBuilder ib(op.getLoc(), rewriter);
  Value lhs = collapseRows(ib, op.getRows()[0], op.isPadded());
  Value rhs = collapseRows(ib, op.getRows()[1], op.isPadded());
  // Packed results have their n in the lanes.
  if (op.hasPanels()) {
    std::swap(lhs, rhs);
    std::swap(n, k);
  }
  FloatType accumulator = op.getAccumulatorType();
  auto isBF16 = [](Value value) {
    return getElementTypeOrSelf(value.getType()).isBF16();
  };
  bool pairs = options.dotBF16 && isBF16(lhs) && isBF16(rhs);
  int64_t width = options.scratchWidth(accumulator);
  TileFormat format = TileFormat::get(
      pairs ? cast<FloatType>(getElementTypeOrSelf(lhs.getType()))
            : accumulator,
      accumulator, /*weights=*/1, width, pairs, options);
  format.ragged = true;
  format.stepsFirst = true;
  if (pairs)
    recordNumerics(op);

  Groups groups = emitGroups(ib, op);
  LoopBuilder b(rewriter, op.getLoc());
  ResultWriter writer(b, format, op);
  if (writer.isDirect()) {
    format.result =
        cast<FloatType>(getElementTypeOrSelf(op.getOuts().front().getType()));
    format.resultRows = writer.resultRows();
  }
  int64_t panels = llvm::divideCeil(writer.countColumns(), width);
  int64_t range = std::min(kPanels, panels);
  int64_t ranges = llvm::divideCeil(panels, range);
  int64_t rowBlocks = llvm::divideCeil(n, kMostRows);
  if (op.getNumExperts() * ranges * rowBlocks < kManyItems)
    rowBlocks = llvm::divideCeil(n, kFewRows);
  // Evenly, in whole vectors, of pairs two.
  int64_t rowBlock = llvm::alignTo(llvm::divideCeil(n, rowBlocks),
                                   format.lanes * (pairs ? 2 : 1));
  rowBlocks = llvm::divideCeil(n, rowBlock);
  Value items = b.index(op.getNumExperts() * rowBlocks * ranges);
  auto loop =
      scf::ParallelOp::create(rewriter, op.getLoc(), ValueRange{b.index(0)},
                              ValueRange{items}, ValueRange{b.index(1)});
  // An item writes its part of the result, whatever the rows.
  loop->setAttr("moe.cost", rewriter.getI64IntegerAttr(std::max<int64_t>(
                                rowBlock * range * width / format.lanes, 1)));
  rewriter.setInsertionPoint(loop.getBody()->getTerminator());
  ib.setInsertionPoint(loop.getBody()->getTerminator());
  Value number = loop.getInductionVars().front();

  Value rangeIndex = b.make<arith::RemUIOp>(number, b.index(ranges));
  Value rest = b.div(number, b.index(ranges));
  Value expert = b.div(rest, b.index(rowBlocks));
  Value row = b.mul(b.make<arith::RemUIOp>(rest, b.index(rowBlocks)),
                    b.index(rowBlock));
  Value first = b.load(groups.offsets, {expert});
  Value size = loadSize(ib, op, expert);

  BlockedProduct product(format, options, ShapedType::kDynamic, rowBlock,
                         range);
  product.scratchBytes = options.copyBytes();
  product.emitScratch(b);
  Value scratch = product.emitPanelScratch(b);
  BlockedProduct::Item item;
  item.rows = b.minimum(b.index(rowBlock), b.sub(b.index(n), row));
  item.begin = b.mul(rangeIndex, b.index(range));
  item.end = b.minimum(b.add(item.begin, b.index(range)), b.index(panels));
  item.steps = pairs ? b.make<arith::CeilDivUIOp>(size, b.index(2)) : size;
  product.stageRows = [&](StepRange part, StagePlace place) {
    emitStageSteps(b, format, {lhs, first, row, size}, item.rows, part,
                   {place.memref, b.index(0), place.stride});
  };
  product.findPanel = [&](Value panel, StepRange part) {
    emitStageSteps(b, format, {rhs, first, b.mul(panel, b.index(width)), size},
                   b.index(width), part,
                   {scratch, b.index(0), b.index(format.stepElements())});
    return PanelPlace{{scratch}, b.index(0)};
  };
  // Flat, for prefetches only.
  if (auto type = cast<MemRefType>(rhs.getType());
      type.getLayout().isIdentity()) {
    Value rows = flatten(b, rhs);
    product.findSource = [&, rows](Value panel, StepRange part) {
      int64_t factors = pairs ? 2 : 1;
      Value step = b.add(first, b.mul(part.begin, b.index(factors)));
      PanelSource source;
      source.memref = rows;
      source.offset =
          b.add(b.mul(step, b.index(k)), b.mul(panel, b.index(width)));
      source.chunks = b.mul(part.steps, b.index(factors));
      source.stride = b.index(k);
      source.shift = b.index(kOneRun);
      source.run = b.index(0);
      return source;
    };
  }
  if (format.result) {
    writer.begin();
    product.findResult = [&](Value panel) {
      return writer.findPlace(expert, row, b.mul(panel, b.index(width)));
    };
  } else {
    product.finishSums = [&](Value panel, Value sums, Value offset) {
      writer.emit(expert, row, item.rows, b.mul(panel, b.index(width)), sums,
                  offset);
    };
  }
  product.emit(b, op, item);
  if (format.result)
    writer.end();
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populateContractionToTilesPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<ContractionToTiles>(patterns.getContext(), options);
}
