// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Utils/MathExpansion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/IR/PatternMatch.h"

#include <limits>

using namespace mlir;
using namespace mlir::moe;

namespace {

/// Scalar or vector arithmetic of one shape.
class Arithmetic {
public:
  Arithmetic(OpBuilder &builder, Location loc, Type shape)
      : builder(builder), loc(loc), shape(dyn_cast<VectorType>(shape)) {}

  Type typeOf(Type element) {
    return shape ? Type(shape.clone(element)) : element;
  }
  Value real(float value) { return constant(builder.getF32FloatAttr(value)); }
  Value integer(int32_t value) {
    return constant(builder.getI32IntegerAttr(value));
  }
  Value fma(Value a, Value b, Value c) {
    return math::FmaOp::create(builder, loc, a, b, c);
  }
  Value add(Value a, Value b) {
    return arith::AddFOp::create(builder, loc, a, b);
  }
  Value sub(Value a, Value b) {
    return arith::SubFOp::create(builder, loc, a, b);
  }
  Value mul(Value a, Value b) {
    return arith::MulFOp::create(builder, loc, a, b);
  }
  Value compare(arith::CmpFPredicate predicate, Value a, Value b) {
    return arith::CmpFOp::create(builder, loc, predicate, a, b);
  }
  Value addInt(Value a, Value b) {
    return arith::AddIOp::create(builder, loc, a, b);
  }
  Value subInt(Value a, Value b) {
    return arith::SubIOp::create(builder, loc, a, b);
  }
  Value toInt(Value a) {
    return arith::FPToSIOp::create(builder, loc, typeOf(builder.getI32Type()),
                                   a);
  }
  Value toReal(Value a) {
    return arith::SIToFPOp::create(builder, loc, typeOf(builder.getF32Type()),
                                   a);
  }
  Value bitsOf(Value a) {
    return arith::BitcastOp::create(builder, loc, typeOf(builder.getI32Type()),
                                    a);
  }
  Value realOf(Value bits) {
    return arith::BitcastOp::create(builder, loc, typeOf(builder.getF32Type()),
                                    bits);
  }
  Value select(Value condition, Value a, Value b) {
    return arith::SelectOp::create(builder, loc, condition, a, b);
  }
  /// 2^e for -126 <= e <= 127, built from its bits.
  Value powerOfTwo(Value e) {
    return realOf(arith::ShLIOp::create(builder, loc, addInt(e, integer(127)),
                                        integer(23)));
  }

private:
  Value constant(TypedAttr value) {
    if (shape)
      value = SplatElementsAttr::get(shape.clone(value.getType()), value);
    return arith::ConstantOp::create(builder, loc, value);
  }

  OpBuilder &builder;
  Location loc;
  VectorType shape;
};

/// A function of f32 scalars and vectors.
template <typename OpTy, Value (*build)(OpBuilder &, Location, Value)>
struct ExpandFunction : public OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const final {
    if (!getElementTypeOrSelf(op.getType()).isF32() ||
        isa<TensorType>(op.getType()))
      return rewriter.notifyMatchFailure(op, "not f32 or a vector of f32");
    rewriter.replaceOp(op, build(rewriter, op.getLoc(), op.getOperand()));
    return success();
  }
};

/// f64 log1p through log, which libm has for every target: u = 1 + x rounds,
/// and x / (u - 1) mends what it lost.
struct ExpandLog1pF64 : public OpRewritePattern<math::Log1pOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::Log1pOp op,
                                PatternRewriter &rewriter) const final {
    if (!op.getType().isF64())
      return rewriter.notifyMatchFailure(op, "not f64");
    Location loc = op.getLoc();
    Value x = op.getOperand();
    Value one =
        arith::ConstantOp::create(rewriter, loc, rewriter.getF64FloatAttr(1.0));
    Value u = arith::AddFOp::create(rewriter, loc, one, x);
    Value kept = arith::SubFOp::create(rewriter, loc, u, one);
    Value log = math::LogOp::create(rewriter, loc, u);
    Value mended = arith::MulFOp::create(
        rewriter, loc, log, arith::DivFOp::create(rewriter, loc, x, kept));
    Value isTiny =
        arith::CmpFOp::create(rewriter, loc, arith::CmpFPredicate::OEQ, u, one);
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, isTiny, x, mended);
    return success();
  }
};

} // namespace

Value mlir::moe::buildExp(OpBuilder &builder, Location loc, Value x) {
  Arithmetic a(builder, loc, x.getType());
  Value highest = a.real(0x1.62e43p6f), lowest = a.real(-104.0f);
  // Outside the range, and for NaN, the conversion to an integer has no
  // meaning: compute with 0 there and choose the result at the end.
  Value above = a.compare(arith::CmpFPredicate::OGT, x, highest);
  Value below = a.compare(arith::CmpFPredicate::OLT, x, lowest);
  Value nan = a.compare(arith::CmpFPredicate::UNO, x, x);
  Value outside = arith::OrIOp::create(builder, loc, above, below);
  outside = arith::OrIOp::create(builder, loc, outside, nan);
  Value safe = a.select(outside, a.real(0.0f), x);

  // n = the integer nearest to x / ln 2: adding 1.5 * 2^23 rounds to even.
  Value round = a.real(0x1.8p23f);
  Value n = a.sub(a.add(a.mul(safe, a.real(0x1.715476p0f)), round), round);
  // r = x - n ln 2, with ln 2 in two parts.
  Value r = a.fma(n, a.real(-0x1.62e400p-1f), safe);
  r = a.fma(n, a.real(-0x1.7f7d1cp-20f), r);
  Value p = a.real(0x1.6a2352p-10f);
  for (float coefficient : {0x1.123a6cp-7f, 0x1.5558f4p-5f, 0x1.555490p-3f,
                            0x1.fffffcp-2f, 1.0f, 1.0f})
    p = a.fma(p, r, a.real(coefficient));
  // Two factors keep both powers normal; only the last product can round.
  Value i =
      arith::FPToSIOp::create(builder, loc, a.typeOf(builder.getI32Type()), n);
  Value half = arith::ShRSIOp::create(builder, loc, i, a.integer(1));
  Value rest = a.subInt(i, half);
  p = a.mul(a.mul(p, a.powerOfTwo(half)), a.powerOfTwo(rest));

  p = a.select(above, a.real(std::numeric_limits<float>::infinity()), p);
  p = a.select(below, a.real(0.0f), p);
  return a.select(nan, x, p);
}

Value mlir::moe::buildLog(OpBuilder &builder, Location loc, Value x) {
  Arithmetic a(builder, loc, x.getType());
  Value zero = a.real(0.0f), one = a.real(1.0f);
  // Denormals are scaled into the normal range first.
  Value tiny = a.compare(arith::CmpFPredicate::OLT, x, a.real(0x1p-126f));
  Value scaled = a.select(tiny, a.mul(x, a.real(0x1p25f)), x);
  // scaled = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  Value bits = a.bitsOf(scaled);
  Value e = arith::ShRSIOp::create(
      builder, loc, a.subInt(bits, a.integer(0x3f3504f3)), a.integer(23));
  Value m = a.realOf(
      a.subInt(bits, arith::ShLIOp::create(builder, loc, e, a.integer(23))));
  e = a.subInt(e, a.select(tiny, a.integer(25), a.integer(0)));
  // log m = 2 atanh s = 2 s (1 + z / 3 + z^2 / 5 + ...), s = f / (2 + f).
  Value f = a.sub(m, one);
  Value s = arith::DivFOp::create(builder, loc, f, a.add(f, a.real(2.0f)));
  Value twice = a.add(s, s), z = a.mul(s, s);
  Value p = a.real(1.0f / 11);
  for (float divisor : {9.0f, 7.0f, 5.0f, 3.0f})
    p = a.fma(p, z, a.real(1 / divisor));
  Value n = a.toReal(e);
  // ln 2 in two parts, so that n times the first is exact.
  Value low = a.fma(a.mul(twice, z), p, a.mul(n, a.real(0x1.7f7d1cp-20f)));
  Value result = a.fma(n, a.real(0x1.62e400p-1f), a.add(twice, low));

  Value infinity = a.real(std::numeric_limits<float>::infinity());
  Value nan = a.real(std::numeric_limits<float>::quiet_NaN());
  result =
      a.select(a.compare(arith::CmpFPredicate::OEQ, x, infinity), x, result);
  result = a.select(a.compare(arith::CmpFPredicate::OEQ, x, zero),
                    a.real(-std::numeric_limits<float>::infinity()), result);
  return a.select(a.compare(arith::CmpFPredicate::OGE, x, zero), result, nan);
}

namespace {
/// The upper bound is applied last, as torch.clamp does; NaN stays.
struct ExpandClamp : OpRewritePattern<math::ClampFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ClampFOp op,
                                PatternRewriter &rewriter) const override {
    Value raised = arith::MaximumFOp::create(rewriter, op.getLoc(),
                                             op.getValue(), op.getMin());
    rewriter.replaceOpWithNewOp<arith::MinimumFOp>(op, raised, op.getMax());
    return success();
  }
};
} // namespace

void mlir::moe::populateMathExpansionPatterns(RewritePatternSet &patterns) {
  patterns
      .add<ExpandFunction<math::ExpOp, buildExp>,
           ExpandFunction<math::LogOp, buildLog>, ExpandLog1pF64, ExpandClamp>(
          patterns.getContext());
  // Measured over all f32: tanh and erf within 5 ulp, the others within 3.
  auto isPolynomial = [](StringRef name) {
    return llvm::is_contained(
        {math::TanhOp::getOperationName(), math::ErfOp::getOperationName(),
         math::ErfcOp::getOperationName(), math::Log1pOp::getOperationName(),
         math::ExpM1Op::getOperationName()},
        name);
  };
  populateMathPolynomialApproximationPatterns(patterns, isPolynomial);
  populateMathF32ExpansionPatterns(patterns, [&](StringRef name) {
    return name == math::ExpOp::getOperationName() ||
           name == math::LogOp::getOperationName() || isPolynomial(name);
  });
}
