// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rounding to 16-bit types with the same bits on every processor: those that
// have an instruction for bf16 flush denormals, the others call a library.

#include "moira/Dialect/MoE/Utils/MathExpansion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using arith::CmpFPredicate;

/// `like` with another element type.
static Type withElement(Type like, Type element) {
  auto vector = dyn_cast<VectorType>(like);
  return vector ? Type(vector.clone(element)) : element;
}

static Value integer(ImplicitLocOpBuilder &b, Type like, int32_t value) {
  TypedAttr attribute = b.getI32IntegerAttr(value);
  if (auto vector = dyn_cast<VectorType>(like))
    attribute = SplatElementsAttr::get(vector.clone(b.getI32Type()),
                                       Attribute(attribute));
  return arith::ConstantOp::create(b, attribute);
}

namespace {
/// f32 to bf16 in integers: to nearest, ties to even, any NaN to 0x7fc0.
struct RoundToBF16 : public OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    if (!getElementTypeOrSelf(x).isF32() || !getElementTypeOrSelf(op).isBF16())
      return rewriter.notifyMatchFailure(op, "expected f32 to bf16");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type words = withElement(x.getType(), b.getI32Type());
    Type halves = withElement(x.getType(), b.getI16Type());
    Value bits = arith::BitcastOp::create(b, words, x);
    Value sixteen = integer(b, words, 16);
    Value odd = arith::AndIOp::create(
        b, arith::ShRUIOp::create(b, bits, sixteen), integer(b, words, 1));
    Value carry = arith::AddIOp::create(b, odd, integer(b, words, 0x7fff));
    Value rounded = arith::ShRUIOp::create(
        b, arith::AddIOp::create(b, bits, carry), sixteen);
    Value isNaN = arith::CmpFOp::create(b, CmpFPredicate::UNO, x, x);
    rounded =
        arith::SelectOp::create(b, isNaN, integer(b, words, 0x7fc0), rounded);
    rewriter.replaceOpWithNewOp<arith::BitcastOp>(
        op, op.getType(), arith::TruncIOp::create(b, halves, rounded));
    return success();
  }
};

/// f64 to 16 bits by way of f32, which is rounded to odd, so that the second
/// rounding sees on which side of a tie the number was.
struct RoundWideToHalf : public OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    if (!getElementTypeOrSelf(x).isF64() ||
        getElementTypeOrSelf(op).getIntOrFloatBitWidth() != 16)
      return rewriter.notifyMatchFailure(op, "expected f64 to 16 bits");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type single = withElement(x.getType(), b.getF32Type());
    Type words = withElement(x.getType(), b.getI32Type());
    Value nearest = arith::TruncFOp::create(b, single, x);
    Value back = arith::ExtFOp::create(b, x.getType(), nearest);
    Value isInexact = arith::CmpFOp::create(b, CmpFPredicate::ONE, back, x);
    Value isAway = arith::CmpFOp::create(b, CmpFPredicate::OGT,
                                         math::AbsFOp::create(b, back),
                                         math::AbsFOp::create(b, x));
    Value bits = arith::BitcastOp::create(b, words, nearest);
    Value one = integer(b, words, 1);
    Value below = arith::SubIOp::create(b, bits, one);
    Value odd = arith::OrIOp::create(
        b, arith::SelectOp::create(b, isAway, below, bits), one);
    bits = arith::SelectOp::create(b, isInexact, odd, bits);
    Value toOdd = arith::BitcastOp::create(b, single, bits);
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), toOdd);
    return success();
  }
};

/// f16 to f32 in integers and one exact product; a NaN becomes a quiet one.
struct WidenF16 : public OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    if (!getElementTypeOrSelf(x).isF16())
      return rewriter.notifyMatchFailure(op, "expected f16");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type words = withElement(x.getType(), b.getI32Type());
    Type halves = withElement(x.getType(), b.getI16Type());
    Type single = withElement(x.getType(), b.getF32Type());
    Value bits = arith::ExtUIOp::create(b, words,
                                        arith::BitcastOp::create(b, halves, x));
    auto masked = [&](int32_t mask) -> Value {
      return arith::AndIOp::create(b, bits, integer(b, words, mask));
    };
    auto shifted = [&](Value value, int32_t amount) -> Value {
      return arith::ShLIOp::create(b, value, integer(b, words, amount));
    };
    Value sign = shifted(masked(0x8000), 16),
          rest = shifted(masked(0x7fff), 13);
    // The exponents' biases differ by 112; denormals become normal on the way.
    Value power = arith::BitcastOp::create(
        b, single, integer(b, words, (112 + 127) << 23));
    Value number = arith::BitcastOp::create(
        b, words,
        arith::MulFOp::create(b, arith::BitcastOp::create(b, single, rest),
                              power));
    // Infinities and NaN have the largest exponent in both types.
    Value special =
        arith::AddIOp::create(b, rest, integer(b, words, (255 - 31) << 23));
    Value isNaN = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, rest,
                                        integer(b, words, 31 << 23));
    Value quiet = arith::OrIOp::create(b, special, integer(b, words, 1 << 22));
    special = arith::SelectOp::create(b, isNaN, quiet, special);
    Value isSpecial = arith::CmpIOp::create(b, arith::CmpIPredicate::uge, rest,
                                            integer(b, words, 31 << 23));
    number = arith::SelectOp::create(b, isSpecial, special, number);
    Value wide = arith::BitcastOp::create(
        b, single, arith::OrIOp::create(b, number, sign));
    if (single != op.getType())
      wide = arith::ExtFOp::create(b, op.getType(), wide);
    rewriter.replaceOp(op, wide);
    return success();
  }
};

/// f32 to f16: to nearest, ties to even; a NaN becomes a quiet one.
struct RoundToF16 : public OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    if (!getElementTypeOrSelf(x).isF32() || !getElementTypeOrSelf(op).isF16())
      return rewriter.notifyMatchFailure(op, "expected f32 to f16");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type words = withElement(x.getType(), b.getI32Type());
    Type halves = withElement(x.getType(), b.getI16Type());
    auto constant = [&](int32_t value) { return integer(b, words, value); };
    auto shifted = [&](Value value, int32_t amount) -> Value {
      return arith::ShRUIOp::create(b, value, constant(amount));
    };
    auto below = [&](Value value, int32_t bound) -> Value {
      return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                                   constant(bound));
    };
    Value bits = arith::BitcastOp::create(b, words, x);
    Value size = arith::AndIOp::create(b, bits, constant(0x7fffffff));
    Value sign = arith::AndIOp::create(b, shifted(bits, 16), constant(0x8000));
    // Half of what is lost, and one more where what stays is odd.
    Value odd = arith::AndIOp::create(b, shifted(size, 13), constant(1));
    Value normal =
        arith::AddIOp::create(b, size, constant(-(112 << 23) + 0xfff));
    normal = shifted(arith::AddIOp::create(b, normal, odd), 13);
    // The last place of 0.5 is the least denormal: adding it rounds there.
    Value half = constant(126 << 23);
    Value sum =
        arith::AddFOp::create(b, arith::BitcastOp::create(b, x.getType(), size),
                              arith::BitcastOp::create(b, x.getType(), half));
    Value denormal =
        arith::SubIOp::create(b, arith::BitcastOp::create(b, words, sum), half);
    Value payload =
        arith::AndIOp::create(b, shifted(size, 13), constant(0x3ff));
    Value quiet = arith::OrIOp::create(b, payload, constant(0x7e00));
    Value isNumber = below(size, (255 << 23) + 1);
    Value special =
        arith::SelectOp::create(b, isNumber, constant(0x7c00), quiet);
    Value result =
        arith::SelectOp::create(b, below(size, 113 << 23), denormal, normal);
    result =
        arith::SelectOp::create(b, below(size, 143 << 23), result, special);
    result = arith::OrIOp::create(b, result, sign);
    rewriter.replaceOpWithNewOp<arith::BitcastOp>(
        op, op.getType(), arith::TruncIOp::create(b, halves, result));
    return success();
  }
};
} // namespace

void mlir::moe::populateHalfPatterns(RewritePatternSet &patterns) {
  patterns.add<WidenF16, RoundToF16>(patterns.getContext());
}

void mlir::moe::populateRoundingPatterns(RewritePatternSet &patterns) {
  patterns.add<RoundToBF16, RoundWideToHalf>(patterns.getContext());
}
