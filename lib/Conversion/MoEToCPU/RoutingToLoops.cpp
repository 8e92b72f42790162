// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// count, capacity and noise.

#include "moira/Conversion/MoEToCPU/Routing.h"

#include "LoopUtils.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

//===----------------------------------------------------------------------===//
// Count
//===----------------------------------------------------------------------===//

namespace {
struct CountToLoops : OpRewritePattern<CountOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CountOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Value ids = op.getIds(), counts = op.getOuts()[0];
    Type i32 = rewriter.getI32Type();
    Value experts = b.dim(counts, 0);
    b.loop(b.index(0), experts,
           [&](Value e) { b.store(b.integer(i32, 0), counts, e); });
    b.loop(b.index(0), b.dim(ids, 0), [&](Value t) {
      b.loop(b.index(0), b.dim(ids, 1), [&](Value j) {
        Value e = b.toIndex(b.load(ids, {t, j}));
        b.when(b.inRange(e, experts), [&] {
          Value next = b.add(b.load(counts, e), b.integer(i32, 1));
          b.store(next, counts, e);
        });
      });
    });
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Capacity
//===----------------------------------------------------------------------===//

/// Truncates to an index; NaN and what is below 0 become 0, what is too large
/// for any buffer the largest i32.
static Value truncate(LoopBuilder &b, Value value) {
  Type f64 = value.getType();
  Value zero = b.real(f64, 0), limit = b.real(f64, 2147483647);
  Value positive = b.compare(CmpFPredicate::OGT, value, zero);
  Value known = b.select(positive, value, zero);
  Value large = b.compare(CmpFPredicate::OGT, known, limit);
  known = b.select(large, limit, known);
  return b.toIndex(b.make<arith::FPToSIOp>(b.builder.getI64Type(), known));
}

/// `index`, which is not negative, as f64.
static Value toF64(LoopBuilder &b, Value index) {
  Value integer = b.fromIndex(b.builder.getI64Type(), index);
  return b.make<arith::SIToFPOp>(b.builder.getF64Type(), integer);
}

static Value largestCount(LoopBuilder &b, Value counts) {
  Value zero = b.index(0);
  return b.loop(zero, b.dim(counts, 0), zero,
                [&](Value e, ValueRange most) -> SmallVector<Value> {
                  return {b.maximum(most[0], b.toIndex(b.load(counts, e)))};
                })[0];
}

/// The formula of the rule, before minimum and alignment.
static Value capacityByRule(LoopBuilder &b, CapacityOp op) {
  Value f = op.getFactor(), k = op.getTopK(), tokens = op.getTokens();
  Value experts = b.index(op.getExperts());
  switch (op.getRule()) {
  case CapacityRule::Fixed:
    return truncate(b, f);
  case CapacityRule::GShard: {
    Value rows = b.make<math::CeilOp>(b.mul(f, toF64(b, tokens)));
    Value pairs = b.mul(truncate(b, rows), b.maximum(k, b.index(0)));
    return b.div(pairs, experts);
  }
  case CapacityRule::Switch: {
    Value pairs = b.mul(b.mul(f, toF64(b, k)), toF64(b, tokens));
    Value share = b.div(pairs, toF64(b, experts));
    return truncate(b, b.make<math::CeilOp>(share));
  }
  case CapacityRule::Tutel:
    break;
  }
  Value share = b.make<arith::CeilDivUIOp>(tokens, experts);
  Value size = b.make<math::AbsFOp>(f);
  Value limit = b.mul(k, truncate(b, b.mul(size, toF64(b, share))));
  // Without counts the factor is a constant above 0.
  if (!op.getCounts())
    return limit;
  Value zero = b.real(f.getType(), 0);
  Value most = largestCount(b, op.getCounts());
  Value capped = b.select(b.compare(CmpFPredicate::OLT, f, zero),
                          b.minimum(most, limit), limit);
  return b.select(b.compare(CmpFPredicate::OEQ, f, zero), most, capped);
}

namespace {
struct CapacityToLoops : OpRewritePattern<CapacityOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CapacityOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getCounts() && !hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    int64_t minimum = op.getMinimum(), alignment = op.getAlignment();
    Value capacity = b.maximum(capacityByRule(b, op), b.index(minimum));
    if (alignment != 1)
      capacity = b.mul(b.make<arith::CeilDivUIOp>(capacity, b.index(alignment)),
                       b.index(alignment));
    rewriter.replaceOp(op, capacity);
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

/// Ten rounds of Philox4x32 (Salmon et al., SC11): four words for a counter.
static SmallVector<Value> philox(LoopBuilder &b, SmallVector<Value> counter,
                                 Value key0, Value key1) {
  Type i32 = b.builder.getI32Type();
  // One literal per constant of the paper, as i32 bit patterns.
  auto word = [&](uint32_t value) {
    return b.integer(i32, static_cast<int32_t>(value));
  };
  auto product = [&](Value value, uint32_t factor) {
    auto op =
        arith::MulUIExtendedOp::create(b.builder, b.loc, value, word(factor));
    return std::make_pair(op.getLow(), op.getHigh());
  };
  auto mix = [&](Value high, Value other, Value key) {
    return b.make<arith::XOrIOp>(b.make<arith::XOrIOp>(high, other), key);
  };
  for (int round = 0; round < 10; ++round) {
    auto [lowLeft, highLeft] = product(counter[0], 0xD2511F53);
    auto [lowRight, highRight] = product(counter[2], 0xCD9E8D57);
    counter = {mix(highRight, counter[1], key0), lowRight,
               mix(highLeft, counter[3], key1), lowLeft};
    key0 = b.add(key0, word(0x9E3779B9));
    key1 = b.add(key1, word(0xBB67AE85));
  }
  return counter;
}

/// A word as one of 2^23 equally spaced values in (0, 1), exact in f32.
static Value uniform(LoopBuilder &b, Value word) {
  Type f64 = b.builder.getF64Type();
  Value high = b.make<arith::ShRUIOp>(word, b.integer(word.getType(), 9));
  Value number = b.make<arith::UIToFPOp>(f64, high);
  return b.mul(b.add(number, b.real(f64, 0.5)), b.real(f64, 0x1p-23));
}

/// Box-Muller.
static Value normal(LoopBuilder &b, ValueRange words) {
  Type f64 = b.builder.getF64Type();
  Value log = b.make<math::LogOp>(uniform(b, words[0]));
  Value radius = b.make<math::SqrtOp>(b.mul(b.real(f64, -2), log));
  Value angle = b.mul(b.real(f64, 6.283185307179586476925286766559),
                      uniform(b, words[1]));
  return b.mul(radius, b.make<math::CosOp>(angle));
}

namespace {
struct NoiseToLoops : OpRewritePattern<NoiseOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(NoiseOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getOuts().empty())
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    Value out = op.getOuts()[0];
    Type i32 = rewriter.getI32Type(), i64 = rewriter.getI64Type();
    auto low = [&](Value wide) { return b.make<arith::TruncIOp>(i32, wide); };
    auto high = [&](Value wide) {
      return low(b.make<arith::ShRUIOp>(wide, b.integer(i64, 32)));
    };
    uint32_t layer = static_cast<uint32_t>(op.getLayer()) * 0x9E3779B9u;
    Value key0 = low(op.getSeed());
    Value key1 = b.make<arith::XOrIOp>(
        high(op.getSeed()), b.integer(i32, static_cast<int32_t>(layer)));
    Value step = low(op.getStep());
    b.parallel(b.dim(out, 0), [&](Value t) {
      Value token = b.fromIndex(i64, b.add(op.getFirst(), t));
      Value tokenLow = low(token), tokenHigh = high(token);
      b.loop(b.index(0), b.dim(out, 1), [&](Value n) {
        SmallVector<Value> words = philox(
            b, {tokenLow, tokenHigh, b.fromIndex(i32, n), step}, key0, key1);
        Value number = op.getDistribution() == Distribution::Normal
                           ? normal(b, words)
                           : uniform(b, words[0]);
        b.store(b.toReal(rewriter.getF32Type(), number), out, {t, n});
      });
    });
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void moe::populateRoutingToLoopsPatterns(RewritePatternSet &patterns) {
  patterns.add<CountToLoops, CapacityToLoops, NoiseToLoops>(
      patterns.getContext());
  populateGatePatterns(patterns);
  populateAssignPatterns(patterns);
  populateMovementPatterns(patterns);
  populatePackPatterns(patterns);
  populateGateGradientPatterns(patterns);
  populatePairDotPatterns(patterns);
}
