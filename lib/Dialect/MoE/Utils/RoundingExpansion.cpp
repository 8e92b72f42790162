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
} // namespace

void mlir::moe::populateRoundingPatterns(RewritePatternSet &patterns) {
  patterns.add<RoundToBF16, RoundWideToHalf>(patterns.getContext());
}
