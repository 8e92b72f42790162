// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// pair_dot: O(T K D), parallel over blocks of pairs. Each dot product is one
// chain, so several pairs go side by side to keep the multipliers busy.

#include "SlotRows.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Pairs side by side: as many chains as a multiply-add has cycles, twice.
static constexpr int64_t kPairs = 8;

namespace {
struct PairDotToLoops : OpRewritePattern<PairDotOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(PairDotOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Value dots = op.getOuts()[0], slots = op.getSlots();
    Type real = cast<MemRefType>(dots.getType()).getElementType();
    Value zero = b.real(real, 0);
    SlotRows rows(b, op.getRows());
    Value choices = b.dim(slots, 1), features = b.dim(op.getX(), 1);
    Value pairs = b.mul(b.dim(slots, 0), choices);

    struct Pair {
      Value token, choice, slot;
    };
    auto pairOf = [&](Value number) {
      Pair pair;
      pair.token = b.div(number, choices);
      pair.choice = b.make<arith::RemUIOp>(number, choices);
      pair.slot = b.toIndex(b.load(slots, {pair.token, pair.choice}));
      return pair;
    };
    // All pairs have rows.
    auto multiply = [&](ArrayRef<Pair> block) {
      SmallVector<Value> zeros(block.size(), zero);
      return b.loop(b.index(0), features, zeros, [&](Value d, ValueRange sums) {
        SmallVector<Value> next;
        for (auto [pair, sum] : llvm::zip(block, sums)) {
          Value left = b.toReal(real, b.load(rows[pair.slot], d));
          Value right = b.toReal(real, b.load(op.getX(), {pair.token, d}));
          next.push_back(b.make<math::FmaOp>(left, right, sum));
        }
        return next;
      });
    };
    auto one = [&](Value number) {
      Pair pair = pairOf(number);
      Value dot = b.choose(
          rows.isRow(pair.slot), [&] { return multiply(pair); },
          [&]() -> SmallVector<Value> { return {zero}; })[0];
      b.store(dot, dots, {pair.token, pair.choice});
    };
    b.parallel(b.make<arith::CeilDivUIOp>(pairs, b.index(kPairs)),
               [&](Value i) {
                 Value first = b.mul(i, b.index(kPairs));
                 Value end = b.minimum(b.add(first, b.index(kPairs)), pairs);
                 auto oneByOne = [&] { b.loop(first, end, one); };
                 Value isWhole = b.compare(arith::CmpIPredicate::eq,
                                           b.sub(end, first), b.index(kPairs));
                 b.when(
                     isWhole,
                     [&] {
                       SmallVector<Pair> block;
                       Value all;
                       for (int64_t p = 0; p < kPairs; ++p) {
                         block.push_back(pairOf(b.add(first, b.index(p))));
                         Value isRow = rows.isRow(block.back().slot);
                         all = all ? b.make<arith::AndIOp>(all, isRow) : isRow;
                       }
                       b.when(
                           all,
                           [&] {
                             SmallVector<Value> sums = multiply(block);
                             for (auto [pair, sum] : llvm::zip(block, sums))
                               b.store(sum, dots, {pair.token, pair.choice});
                           },
                           oneByOne);
                     },
                     oneByOne);
               });
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populatePairDotPatterns(RewritePatternSet &patterns) {
  patterns.add<PairDotToLoops>(patterns.getContext());
}
