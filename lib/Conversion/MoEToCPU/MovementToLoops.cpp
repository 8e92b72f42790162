// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// dispatch and combine: O(T K D), and sources: O(T K). Parallel over tokens.

#include "SlotRows.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
int64_t elementBytes(Value memref) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

/// Whether every row of a buffer begins a cache line: the arena's allocations
/// do.
bool hasAlignedRows(Value rows) {
  auto type = cast<MemRefType>(rows.getType());
  int64_t features = type.getShape().back();
  return rows.getDefiningOp<memref::AllocOp>() &&
         type.getLayout().isIdentity() && !ShapedType::isDynamic(features) &&
         features * elementBytes(rows) % kCacheLine == 0;
}

struct DispatchToLoops : OpRewritePattern<DispatchOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DispatchOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Value x = op.getX(), slots = op.getSlots();
    SlotRows rows(b, op.getOuts()[0]);
    Value features = b.dim(x, 1), choices = b.dim(slots, 1);
    Value tokens = b.dim(slots, 0);
    Value isLarge;
    if (hasAlignedRows(op.getOuts()[0])) {
      Value bytes = b.mul(b.mul(tokens, choices),
                          b.mul(features, b.index(elementBytes(x))));
      isLarge =
          b.compare(arith::CmpIPredicate::uge, bytes, b.index(kStreamBytes));
    }
    b.parallel(tokens, [&](Value t) {
      b.loop(b.index(0), choices, [&](Value j) {
        Value slot = b.toIndex(b.load(slots, {t, j}));
        b.when(rows.isRow(slot), [&] {
          Value weight =
              op.getWeights() ? b.load(op.getWeights(), {t, j}) : Value();
          auto copy = [&](bool streams) {
            copyRow(b, {x, {t}}, rows[slot], features, weight, streams);
          };
          if (!isLarge)
            return copy(false);
          b.when(isLarge, [&] { copy(true); }, [&] { copy(false); });
        });
      });
      if (isLarge)
        b.when(isLarge, [&] { b.orderStreams(); });
    });
    rewriter.eraseOp(op);
    return success();
  }

  /// Copies a row, times `weight` if there is one.
  static void copyRow(LoopBuilder &b, const Row &from, const Row &to,
                      Value size, Value weight, bool streams) {
    bool scalarOnly = !from.isContiguous() || !to.isContiguous();
    b.overLanes(size, scalarOnly, [&](Value i, int64_t lanes) {
      Value value = b.loadLanes(from, i, lanes);
      if (weight)
        value = b.toReal(to.getElementType(),
                         b.mul(b.spread(weight, lanes), b.widen(value)));
      if (streams && lanes > 1)
        b.streamLanes(value, to, i);
      else
        b.storeLanes(value, to, i, lanes);
    });
  }
};

struct CombineToLoops : OpRewritePattern<CombineOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CombineOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Value y = op.getOuts()[0], slots = op.getSlots();
    SlotRows rows(b, op.getRows());
    Value choices = b.dim(slots, 1), features = b.dim(y, 1);
    bool scalarOnly =
        !Row{y, {}}.isContiguous() || !Row{op.getRows(), {}}.isContiguous();
    Type element = Row{y, {}}.getElementType();
    Type sumType = element.isF64() ? element : rewriter.getF32Type();
    Value zero = b.real(sumType, 0);
    Value lastToken = b.sub(b.dim(slots, 0), b.index(1));

    /// One more choice of token t on lanes from d.
    auto step = [&](Value t, Value d, int64_t lanes, Value j, Value sum) {
      Value slot = b.toIndex(b.load(slots, {t, j}));
      // The rows of the next token are elsewhere; their loads would wait.
      Value next = b.minimum(b.add(t, b.index(1)), lastToken);
      Value ahead = b.maximum(b.toIndex(b.load(slots, {next, j})), b.index(0));
      if (lanes > 1)
        b.prefetchLanes(rows[ahead], d, lanes, /*locality=*/1);
      auto accumulate = [&]() -> SmallVector<Value> {
        Value row = b.widen(b.loadLanes(rows[slot], d, lanes));
        if (!op.getWeights())
          return {b.add(sum, row)};
        Value weight = b.spread(b.load(op.getWeights(), {t, j}), lanes);
        return {b.make<math::FmaOp>(weight, row, sum)};
      };
      return b.choose(rows.isRow(slot), accumulate,
                      [&]() -> SmallVector<Value> { return {sum}; });
    };
    b.parallel(b.dim(slots, 0), [&](Value t) {
      // Lanes outside, choices inside: sums stay in registers.
      b.overLanes(features, scalarOnly, [&](Value d, int64_t lanes) {
        Value sum = b.loop(b.index(0), choices, b.spread(zero, lanes),
                           [&](Value j, ValueRange sums) {
                             return step(t, d, lanes, j, sums[0]);
                           })[0];
        b.storeLanes(b.toReal(element, sum), Row{y, {t}}, d, lanes);
      });
    });
    rewriter.eraseOp(op);
    return success();
  }
};

struct SourcesToLoops : OpRewritePattern<SourcesOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SourcesOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Row sources{op.getOuts()[0], {}};
    Value slots = op.getSlots(), bound = b.dim(sources.memref, 0);
    Type i32 = rewriter.getI32Type();
    Value none = b.integer(i32, -1);
    b.overLanes(bound, !sources.isContiguous(), [&](Value i, int64_t lanes) {
      b.storeLanes(b.spread(none, lanes), sources, i, lanes);
    });
    Value choices = b.dim(slots, 1);
    b.parallel(b.dim(slots, 0), [&](Value t) {
      Value token = b.fromIndex(i32, t);
      b.loop(b.index(0), choices, [&](Value j) {
        Value slot = b.toIndex(b.load(slots, {t, j}));
        b.when(b.inRange(slot, bound), [&] { b.store(token, sources, slot); });
      });
    });
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populateMovementPatterns(RewritePatternSet &patterns) {
  patterns.add<CombineToLoops, DispatchToLoops, SourcesToLoops>(
      patterns.getContext());
}
