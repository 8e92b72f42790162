// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Grouped matmuls that are not packed: weights in nk or kn, and the contraction
// over ragged rows. Plain loops, one chain per element.

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"

#include "Groups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::moe;

namespace {

Value constantIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

//===----------------------------------------------------------------------===//
// Weights that are not packed
//===----------------------------------------------------------------------===//

/// Work items: one per expert and column (or row) of the result.
Value emitItems(ImplicitLocOpBuilder &b, GroupedMatmulOp op, Value perExpert) {
  return arith::MulIOp::create(b, constantIndex(b, op.getNumExperts()),
                               perExpert);
}

/// Inlines the scalar epilogue.
SmallVector<Value> inlineEpilogue(ImplicitLocOpBuilder &b, Block &block,
                                  ArrayRef<Value> arguments) {
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator())
    b.clone(op, mapping);
  SmallVector<Value> results;
  for (Value yielded : block.getTerminator()->getOperands())
    results.push_back(mapping.lookup(yielded));
  return results;
}

Value widenScalar(ImplicitLocOpBuilder &b, Value value, Type accumulator) {
  if (value.getType() == accumulator)
    return value;
  return arith::ExtFOp::create(b, accumulator, value);
}

/// The indices of element [column, k] of one expert in the op's panels.
SmallVector<Value> findInPanels(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                                Value expert, Value column, Value k) {
  PanelForm form = op.getForm();
  int64_t columns = op.getN(), steps = op.getK();
  if (op.getLayout() == WeightLayout::TransposedPanels) {
    std::swap(column, k);
    std::swap(columns, steps);
  }
  Value first = constantIndex(b, 0);
  auto enterBlock = [&](Value &index, int64_t size, int64_t blocks) {
    if (blocks == 1)
      return;
    Value length = constantIndex(b, size / blocks);
    first =
        arith::MulIOp::create(b, arith::DivUIOp::create(b, index, length),
                              constantIndex(b, form.panelsPerBlock(columns)));
    index = arith::RemUIOp::create(b, index, length);
  };
  enterBlock(column, columns, form.blocksOfN);
  enterBlock(k, steps, form.blocksOfK);
  Value width = constantIndex(b, form.width);
  Value panel = arith::DivUIOp::create(b, column, width);
  SmallVector<Value> at{expert, arith::AddIOp::create(b, first, panel), k,
                        arith::RemUIOp::create(b, column, width)};
  if (form.pairs) {
    Value two = constantIndex(b, 2), one = constantIndex(b, 1);
    at[2] = arith::DivUIOp::create(b, k, two);
    Value second = arith::RemUIOp::create(b, k, two);
    at.push_back(arith::SubIOp::create(b, one, second));
  }
  return at;
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
    FlatOperands flat = flattenOperands(b, op);
    Groups groups = emitGroups(b, op);
    Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
    Value n = b.createOrFold<memref::DimOp>(flat.results.front(), 1);
    Value k = b.createOrFold<memref::DimOp>(flat.rows.front(), 1);
    scf::ParallelOp::create(
        b, zero, emitItems(b, op, n), one,
        [&](OpBuilder &inner, Location loc, ValueRange ivs) {
          ImplicitLocOpBuilder body(loc, inner);
          Value expert = arith::DivSIOp::create(body, ivs[0], n);
          Value column = arith::RemSIOp::create(body, ivs[0], n);
          Value first = memref::LoadOp::create(body, groups.offsets, expert);
          Value size = loadSize(body, op, expert);
          scf::ForOp::create(
              body, zero, size, one, ValueRange{},
              [&](OpBuilder &inner, Location loc, Value r, ValueRange) {
                ImplicitLocOpBuilder rowBody(loc, inner);
                Value row = arith::AddIOp::create(rowBody, first, r);
                emitElement(rowBody, op, flat, expert, row, column, k);
                scf::YieldOp::create(rowBody);
              });
        });
    rewriter.eraseOp(op);
    return success();
  }

private:
  static void emitElement(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                          const FlatOperands &flat, Value expert, Value row,
                          Value column, Value k) {
    Type accumulator = op.getAccumulatorType();
    Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
    Value source = row;
    if (op.getGather()) {
      source = memref::LoadOp::create(b, op.getGather(), row);
      source = arith::IndexCastOp::create(b, b.getIndexType(), source);
      source = arith::MaxSIOp::create(b, source, zero);
    }
    // The chain of one weight over the indices `from` to `to - 1`.
    auto emitChain = [&](unsigned i, Value from, Value to, Value start) {
      Value rows = op.getChained() ? flat.rows[i] : flat.rows.front();
      Value weight = op.getWeights()[i];
      return scf::ForOp::create(
                 b, from, to, one, start,
                 [&](OpBuilder &inner, Location loc, Value kk, ValueRange acc) {
                   ImplicitLocOpBuilder body(loc, inner);
                   SmallVector<Value> at{expert, column, kk};
                   if (op.getLayout() == WeightLayout::KN)
                     std::swap(at[1], at[2]);
                   if (op.hasPanels())
                     at = findInPanels(body, op, expert, column, kk);
                   Value x =
                       widenScalar(body,
                                   memref::LoadOp::create(
                                       body, rows, ValueRange{source, kk}),
                                   accumulator);
                   Value w = widenScalar(
                       body, memref::LoadOp::create(body, weight, at),
                       accumulator);
                   Value next = math::FmaOp::create(body, x, w, acc[0]);
                   scf::YieldOp::create(body, next);
                 })
          .getResult(0);
    };
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(accumulator));
    auto startOf = [&](unsigned i) -> Value {
      if (op.getBias().empty())
        return none;
      return widenScalar(b,
                         memref::LoadOp::create(b, op.getBias()[i],
                                                ValueRange{expert, column}),
                         accumulator);
    };
    SmallVector<Value> arguments;
    int64_t blocks = op.getBlocks(HiddenDim::K);
    unsigned terms = op.getChained() ? op.getWeights().size() : 1;
    for (unsigned i = 0; i < op.getWeights().size(); i += terms) {
      // One chain per hidden block, and their results added in pairs.
      SmallVector<Value> sums;
      Value size = arith::DivUIOp::create(b, k, constantIndex(b, blocks)),
            from = zero;
      for (int64_t block = 0; block < blocks; ++block) {
        Value to = arith::AddIOp::create(b, from, size);
        Value sum = block == 0 ? startOf(i) : none;
        for (unsigned term = i; term < i + terms; ++term)
          sum = emitChain(term, from, to, sum);
        sums.push_back(sum);
        from = to;
      }
      for (; sums.size() % 2 == 0; sums.truncate(sums.size() / 2))
        for (size_t j = 0; 2 * j < sums.size(); ++j)
          sums[j] = arith::AddFOp::create(b, sums[2 * j], sums[2 * j + 1]);
      Value total = sums.front();
      for (Value sum : llvm::drop_begin(sums))
        total = arith::AddFOp::create(b, total, sum);
      arguments.push_back(total);
    }
    for (Value operand : op.getVectors())
      arguments.push_back(
          memref::LoadOp::create(b, operand, ValueRange{expert, column}));
    for (Value operand : flat.elements)
      arguments.push_back(
          memref::LoadOp::create(b, operand, ValueRange{row, column}));
    for (Value operand : flat.scalars)
      arguments.push_back(memref::LoadOp::create(b, operand, row));
    SmallVector<Value> values =
        inlineEpilogue(b, op.getEpilogue().front(), arguments);
    for (auto [value, result] : llvm::zip(values, flat.results))
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
        b, zero, emitItems(b, op, n), one,
        [&](OpBuilder &inner, Location loc, ValueRange ivs) {
          ImplicitLocOpBuilder body(loc, inner);
          Value expert = arith::DivSIOp::create(body, ivs[0], n);
          Value row = arith::RemSIOp::create(body, ivs[0], n);
          Value first = memref::LoadOp::create(body, groups.offsets, expert);
          Value last =
              arith::AddIOp::create(body, first, loadSize(body, op, expert));
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
                      Value x = widenScalar(
                          step,
                          memref::LoadOp::create(step, lhs, ValueRange{r, row}),
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
                                        ValueRange{expert, row, kk});
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
  populatePanelsToTilesPatterns(patterns, options);
  populateTransposedToTilesPatterns(patterns, options);
  populateContractionToTilesPatterns(patterns, options);
  populateUnpackedToLoopsPatterns(patterns);
}

void mlir::moe::populateUnpackedToLoopsPatterns(RewritePatternSet &patterns) {
  patterns.add<UnpackedToLoops, ContractionToLoops>(patterns.getContext());
}
