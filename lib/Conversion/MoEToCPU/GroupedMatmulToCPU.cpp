// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"

#include "RegisterTile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;

namespace {

/// Rows of a work item. Decode variants have few rows and never cut them;
/// prefill cuts so that one hot expert still fills many workers while a panel
/// (K * width elements) is read from cache for enough rows.
constexpr int64_t kPrefillRowBlock = 192;

/// Nanoseconds that a core needs for a multiply-add step of one vector.
constexpr double kVectorStepNs = 0.15;

Value constantIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

/// [E, P, D] -> [E*P, D], [E, P] -> [E*P]; other memrefs unchanged.
Value collapseRows(ImplicitLocOpBuilder &b, Value memref, bool padded) {
  if (!padded)
    return memref;
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<ReassociationIndices> groups{{0, 1}};
  for (int64_t d = 2; d < type.getRank(); ++d)
    groups.push_back({d});
  return memref::CollapseShapeOp::create(b, memref, groups);
}

/// First row of every group, and the largest group.
struct Groups {
  Value offsets; ///< memref<E x index>
  Value largest; ///< index
};

Value loadSize(ImplicitLocOpBuilder &b, GroupedMatmulOp op, Value expert) {
  Value size = memref::LoadOp::create(b, op.getSizes(), expert);
  return arith::IndexCastOp::create(b, b.getIndexType(), size);
}

Groups emitGroups(ImplicitLocOpBuilder &b, GroupedMatmulOp op) {
  int64_t experts = op.getNumExperts();
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  Value offsets =
      memref::AllocOp::create(b, MemRefType::get({experts}, b.getIndexType()));
  Value stride;
  if (op.isPadded())
    stride = b.createOrFold<memref::DimOp>(op.getRows().front(), 1);
  auto loop = scf::ForOp::create(
      b, zero, constantIndex(b, experts), one, ValueRange{zero, zero},
      [&](OpBuilder &inner, Location loc, Value e, ValueRange args) {
        ImplicitLocOpBuilder body(loc, inner);
        memref::StoreOp::create(body, args[0], offsets, e);
        Value size = loadSize(body, op, e);
        Value next =
            arith::AddIOp::create(body, args[0], stride ? stride : size);
        Value largest = arith::MaxSIOp::create(body, args[1], size);
        scf::YieldOp::create(body, ValueRange{next, largest});
      });
  return {offsets, loop.getResult(1)};
}

//===----------------------------------------------------------------------===//
// Panels
//===----------------------------------------------------------------------===//

struct PanelsToTiles : public OpRewritePattern<GroupedMatmulOp> {
  PanelsToTiles(MLIRContext *context, const CPUTileOptions &options)
      : OpRewritePattern(context, /*benefit=*/2), options(options) {}

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;

private:
  CPUTileOptions options;
};

/// Everything a work item needs to know about its op.
struct PanelWork {
  GroupedMatmulOp op;
  RegisterTile tile;
  int64_t width;   ///< columns of a panel
  int64_t rowTile; ///< rows of a full register tile
};

/// Emits register tiles over the columns of one panel for `numRows` rows.
void emitPanelColumns(ImplicitLocOpBuilder &b, PanelWork &work,
                      TilePosition position, int64_t numRows) {
  int64_t n = work.op.getN(), step = work.tile.columns();
  auto emitAll = [&](ImplicitLocOpBuilder &b, bool masked) {
    for (int64_t c = 0; c < work.width; c += step) {
      TilePosition at = position;
      at.panelColumn = constantIndex(b, c);
      at.column = arith::AddIOp::create(b, position.column, at.panelColumn);
      if (!masked || c == 0) {
        work.tile.emit(b, at, numRows, masked);
        continue;
      }
      // A tile wholly beyond N has nothing to do.
      Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                           at.column, constantIndex(b, n));
      scf::IfOp::create(b, inside, [&](OpBuilder &inner, Location loc) {
        ImplicitLocOpBuilder body(loc, inner);
        work.tile.emit(body, at, numRows, masked);
        scf::YieldOp::create(body);
      });
    }
  };
  if (n % work.width == 0)
    return emitAll(b, /*masked=*/false);
  if (n < work.width)
    return emitAll(b, /*masked=*/true);
  Value last = constantIndex(b, n / work.width);
  Value full =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, position.panel, last);
  auto branch = [&](bool masked) {
    return [&, masked](OpBuilder &inner, Location loc) {
      ImplicitLocOpBuilder body(loc, inner);
      emitAll(body, masked);
      scf::YieldOp::create(body);
    };
  };
  scf::IfOp::create(b, full, branch(false), branch(true));
}

/// Emits the tiles of `numRows` (dynamic) rows from `row` on: balanced tiles of
/// at most `rowTile` rows, so that no tile is much smaller than the others.
void emitRowTiles(ImplicitLocOpBuilder &b, PanelWork &work,
                  TilePosition position, Value firstRow, Value numRows) {
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  Value tiles =
      arith::CeilDivSIOp::create(b, numRows, constantIndex(b, work.rowTile));
  Value base = arith::DivSIOp::create(b, numRows, tiles);
  Value longer = arith::RemSIOp::create(b, numRows, tiles);
  scf::ForOp::create(
      b, zero, tiles, one, ValueRange{},
      [&](OpBuilder &inner, Location loc, Value t, ValueRange) {
        ImplicitLocOpBuilder body(loc, inner);
        Value isLonger =
            arith::CmpIOp::create(body, arith::CmpIPredicate::slt, t, longer);
        Value extra =
            arith::IndexCastUIOp::create(body, body.getIndexType(), isLonger);
        Value rows = arith::AddIOp::create(body, base, extra);
        Value start =
            arith::AddIOp::create(body, arith::MulIOp::create(body, t, base),
                                  arith::MinSIOp::create(body, t, longer));
        TilePosition at = position;
        at.row = arith::AddIOp::create(body, firstRow, start);
        SmallVector<int64_t> cases =
            llvm::to_vector(llvm::seq<int64_t>(1, work.rowTile));
        auto select = scf::IndexSwitchOp::create(body, TypeRange{}, rows, cases,
                                                 cases.size());
        auto fill = [&](Region &region, int64_t count) {
          OpBuilder::InsertionGuard guard(body);
          body.createBlock(&region);
          emitPanelColumns(body, work, at, count);
          scf::YieldOp::create(body);
        };
        for (auto [region, count] :
             llvm::zip_equal(select.getCaseRegions(), cases))
          fill(region, count);
        fill(select.getDefaultRegion(), work.rowTile);
        body.setInsertionPointAfter(select);
        scf::YieldOp::create(body);
      });
}

LogicalResult PanelsToTiles::matchAndRewrite(GroupedMatmulOp op,
                                             PatternRewriter &rewriter) const {
  if (!hasBufferForm(op))
    return rewriter.notifyMatchFailure(op, "expected the buffer form");
  if (op.getContraction() || op.getLayout() != WeightLayout::Panels)
    return rewriter.notifyMatchFailure(op, "expected panels in mode rows");
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  bool padded = op.isPadded();
  int64_t weights = op.getWeights().size();
  int64_t n = op.getN(), k = op.getK(), experts = op.getNumExperts();
  int64_t width =
      cast<MemRefType>(op.getWeights().front().getType()).getDimSize(3);
  unsigned accumulatorBits = op.getAccumulatorType().getWidth();
  int64_t lanes =
      std::min<int64_t>(options.vectorBits / accumulatorBits, width);
  if (width % lanes != 0)
    return rewriter.notifyMatchFailure(op, "expected whole vectors per panel");
  int64_t vectors = std::max<int64_t>(options.vectorsPerRow() / weights, 1);
  while (width % (vectors * lanes) != 0)
    --vectors;

  Value rows = collapseRows(b, op.getRows().front(), padded);
  Value result = collapseRows(b, op.getOuts().front(), padded);
  SmallVector<Value> elements, scalars;
  for (Value operand : op.getElements())
    elements.push_back(collapseRows(b, operand, padded));
  for (Value operand : op.getScalars())
    scalars.push_back(collapseRows(b, operand, padded));
  PanelWork work{
      op, RegisterTile(op, rows, result, elements, scalars, lanes, vectors),
      width, options.rowTile()};

  Groups groups = emitGroups(b, op);
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  int64_t panels = llvm::divideCeil(n, width);
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto rowClass = function
                      ? function->getAttrOfType<RowClassAttr>("moe.row_class")
                      : RowClassAttr();
  bool decode = rowClass && rowClass.getValue() == RowClass::Decode;
  Value rowBlock =
      decode ? arith::MaxSIOp::create(b, groups.largest, one).getResult()
             : constantIndex(b, kPrefillRowBlock);
  Value blocks = arith::CeilDivSIOp::create(b, groups.largest, rowBlock);
  Value perExpert = arith::MulIOp::create(b, blocks, constantIndex(b, panels));
  Value items = arith::MulIOp::create(b, perExpert, constantIndex(b, experts));
  // A panel is read once whatever the rows: the least an active item costs.
  int64_t cost = std::max<int64_t>(
      1, static_cast<int64_t>(kVectorStepNs * k * weights * width / lanes));

  auto loop = scf::ParallelOp::create(
      b, zero, items, one, [&](OpBuilder &inner, Location loc, ValueRange ivs) {
        ImplicitLocOpBuilder body(loc, inner);
        Value expert = arith::DivSIOp::create(body, ivs[0], perExpert);
        Value inExpert = arith::RemSIOp::create(body, ivs[0], perExpert);
        Value panelCount = constantIndex(body, panels);
        Value block = arith::DivSIOp::create(body, inExpert, panelCount);
        TilePosition position;
        position.expert = expert;
        position.panel = arith::RemSIOp::create(body, inExpert, panelCount);
        position.column = arith::MulIOp::create(body, position.panel,
                                                constantIndex(body, width));
        Value start = arith::MulIOp::create(body, block, rowBlock);
        Value left =
            arith::SubIOp::create(body, loadSize(body, op, expert), start);
        Value count = arith::MinSIOp::create(body, left, rowBlock);
        Value some =
            arith::CmpIOp::create(body, arith::CmpIPredicate::sgt, count, zero);
        scf::IfOp::create(body, some, [&](OpBuilder &innermost, Location loc) {
          ImplicitLocOpBuilder then(loc, innermost);
          Value first = memref::LoadOp::create(then, groups.offsets, expert);
          first = arith::AddIOp::create(then, first, start);
          emitRowTiles(then, work, position, first, count);
          scf::YieldOp::create(then);
        });
      });
  loop->setAttr("moe.cost", b.getI64IntegerAttr(cost));
  rewriter.eraseOp(op);
  return success();
}

//===----------------------------------------------------------------------===//
// Weights that are not packed
//===----------------------------------------------------------------------===//

/// Inlines the scalar epilogue.
Value inlineEpilogue(ImplicitLocOpBuilder &b, Block &block,
                     ArrayRef<Value> arguments) {
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator())
    b.clone(op, mapping);
  return mapping.lookup(block.getTerminator()->getOperand(0));
}

Value widenScalar(ImplicitLocOpBuilder &b, Value value, Type accumulator) {
  if (value.getType() == accumulator)
    return value;
  return arith::ExtFOp::create(b, accumulator, value);
}

/// Plain loops over the rows of every group, in parallel over (expert, column).
struct UnpackedToLoops : public OpRewritePattern<GroupedMatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    if (op.getContraction())
      return rewriter.notifyMatchFailure(op, "expected mode rows");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    bool padded = op.isPadded();
    Value rows = collapseRows(b, op.getRows().front(), padded);
    Value result = collapseRows(b, op.getOuts().front(), padded);
    SmallVector<Value> elements, scalars;
    for (Value operand : op.getElements())
      elements.push_back(collapseRows(b, operand, padded));
    for (Value operand : op.getScalars())
      scalars.push_back(collapseRows(b, operand, padded));
    Groups groups = emitGroups(b, op);
    Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
    Value n = b.createOrFold<memref::DimOp>(result, 1);
    Value k = b.createOrFold<memref::DimOp>(rows, 1);
    scf::ParallelOp::create(
        b, ValueRange{zero, zero},
        ValueRange{constantIndex(b, op.getNumExperts()), n},
        ValueRange{one, one},
        [&](OpBuilder &inner, Location loc, ValueRange ivs) {
          ImplicitLocOpBuilder body(loc, inner);
          Value first = memref::LoadOp::create(body, groups.offsets, ivs[0]);
          Value size = loadSize(body, op, ivs[0]);
          scf::ForOp::create(
              body, zero, size, one, ValueRange{},
              [&](OpBuilder &inner, Location loc, Value r, ValueRange) {
                ImplicitLocOpBuilder rowBody(loc, inner);
                Value row = arith::AddIOp::create(rowBody, first, r);
                emitElement(rowBody, op, rows, result, elements, scalars,
                            ivs[0], row, ivs[1], k);
                scf::YieldOp::create(rowBody);
              });
        });
    rewriter.eraseOp(op);
    return success();
  }

private:
  static void emitElement(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                          Value rows, Value result, ArrayRef<Value> elements,
                          ArrayRef<Value> scalars, Value expert, Value row,
                          Value column, Value k) {
    Type accumulator = op.getAccumulatorType();
    Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
    Value source = row;
    if (op.getGather()) {
      source = memref::LoadOp::create(b, op.getGather(), row);
      source = arith::IndexCastOp::create(b, b.getIndexType(), source);
      source = arith::MaxSIOp::create(b, source, zero);
    }
    SmallVector<Value> arguments;
    for (auto [i, weight] : llvm::enumerate(op.getWeights())) {
      Value start;
      if (op.getBias().empty())
        start = arith::ConstantOp::create(b, b.getZeroAttr(accumulator));
      else
        start = widenScalar(b,
                            memref::LoadOp::create(b, op.getBias()[i],
                                                   ValueRange{expert, column}),
                            accumulator);
      auto chain = scf::ForOp::create(
          b, zero, k, one, start,
          [&, weight = weight](OpBuilder &inner, Location loc, Value kk,
                               ValueRange acc) {
            ImplicitLocOpBuilder body(loc, inner);
            SmallVector<Value> at{expert, column, kk};
            if (op.getLayout() == WeightLayout::KN)
              std::swap(at[1], at[2]);
            if (op.getLayout() == WeightLayout::Panels) {
              // [E, panel, K, column in panel]
              Value width = b.createOrFold<memref::DimOp>(weight, 3);
              at = {expert, arith::DivSIOp::create(body, column, width), kk,
                    arith::RemSIOp::create(body, column, width)};
            }
            Value x = widenScalar(
                body,
                memref::LoadOp::create(body, rows, ValueRange{source, kk}),
                accumulator);
            Value w = widenScalar(
                body, memref::LoadOp::create(body, weight, at), accumulator);
            Value next = math::FmaOp::create(body, x, w, acc[0]);
            scf::YieldOp::create(body, next);
          });
      arguments.push_back(chain.getResult(0));
    }
    for (Value operand : op.getVectors())
      arguments.push_back(
          memref::LoadOp::create(b, operand, ValueRange{expert, column}));
    for (Value operand : elements)
      arguments.push_back(
          memref::LoadOp::create(b, operand, ValueRange{row, column}));
    for (Value operand : scalars)
      arguments.push_back(memref::LoadOp::create(b, operand, row));
    Value value = inlineEpilogue(b, op.getEpilogue().front(), arguments);
    memref::StoreOp::create(b, value, result, ValueRange{row, column});
  }
};

//===----------------------------------------------------------------------===//
// Contraction over ragged rows
//===----------------------------------------------------------------------===//

/// result[e, n, k] = sum over the group's rows of a[r, n] * b[r, k], one chain
/// per element in increasing r; parallel over (expert, n).
struct ContractionToLoops : public OpRewritePattern<GroupedMatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    if (!op.getContraction())
      return rewriter.notifyMatchFailure(op, "expected mode contraction");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    bool padded = op.isPadded();
    Value lhs = collapseRows(b, op.getRows()[0], padded);
    Value rhs = collapseRows(b, op.getRows()[1], padded);
    Value result = op.getOuts().front();
    Type accumulator = op.getAccumulatorType();
    Type element = getElementTypeOrSelf(result.getType());
    Groups groups = emitGroups(b, op);
    Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
    Value n = b.createOrFold<memref::DimOp>(lhs, 1);
    Value k = b.createOrFold<memref::DimOp>(rhs, 1);
    scf::ParallelOp::create(
        b, ValueRange{zero, zero},
        ValueRange{constantIndex(b, op.getNumExperts()), n},
        ValueRange{one, one},
        [&](OpBuilder &inner, Location loc, ValueRange ivs) {
          ImplicitLocOpBuilder body(loc, inner);
          Value first = memref::LoadOp::create(body, groups.offsets, ivs[0]);
          Value last =
              arith::AddIOp::create(body, first, loadSize(body, op, ivs[0]));
          scf::ForOp::create(
              body, zero, k, one, ValueRange{},
              [&](OpBuilder &inner, Location loc, Value kk, ValueRange) {
                ImplicitLocOpBuilder column(loc, inner);
                Value start = arith::ConstantOp::create(
                    column, column.getZeroAttr(accumulator));
                auto chain = scf::ForOp::create(
                    column, first, last, one, start,
                    [&](OpBuilder &inner, Location loc, Value r,
                        ValueRange acc) {
                      ImplicitLocOpBuilder step(loc, inner);
                      Value x =
                          widenScalar(step,
                                      memref::LoadOp::create(
                                          step, lhs, ValueRange{r, ivs[1]}),
                                      accumulator);
                      Value y = widenScalar(
                          step,
                          memref::LoadOp::create(step, rhs, ValueRange{r, kk}),
                          accumulator);
                      Value next = math::FmaOp::create(step, x, y, acc[0]);
                      scf::YieldOp::create(step, next);
                    });
                Value value = chain.getResult(0);
                if (element != accumulator)
                  value = arith::TruncFOp::create(column, element, value);
                memref::StoreOp::create(column, value, result,
                                        ValueRange{ivs[0], ivs[1], kk});
                scf::YieldOp::create(column);
              });
        });
    rewriter.eraseOp(op);
    return success();
  }
};

} // namespace

void mlir::moe::populateGroupedMatmulToCPUPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<PanelsToTiles>(patterns.getContext(), options);
  patterns.add<UnpackedToLoops, ContractionToLoops>(patterns.getContext());
}
