// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// AVX512_BF16, the only x86 of this room. vdpbf16ps adds the odd product first
// and then the even one, rounding to nearest after each, whatever the mode;
// denormal factors and sums count as zero.

#include "DotProduct.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::moe::detail;

static Value callBF16(LoopBuilder &b, StringRef name, VectorType type,
                      ValueRange operands) {
  auto sums = cast<VectorType>(operands.front().getType());
  int64_t bits = sums.getNumElements() * sums.getElementTypeBitWidth();
  return LLVM::CallIntrinsicOp::create(
             b.builder, b.loc, type,
             b.builder.getStringAttr("llvm.x86.avx512bf16." + name + "." +
                                     Twine(bits)),
             operands)
      .getResult(0);
}

Value mlir::moe::detail::emitPairDot(LoopBuilder &b, Value sums, Value words,
                                     Value panel) {
  Value pairs = b.make<vector::BitCastOp>(panel.getType(), words);
  return callBF16(b, "dpbf16ps", cast<VectorType>(sums.getType()),
                  {sums, pairs, panel});
}

/// vcvtne2ps2bf16 takes denormal numbers, which sums are not, as zero, and
/// keeps bits of a NaN, of which arith.truncf has one.
Value mlir::moe::detail::emitRoundSums(LoopBuilder &b, Value low, Value high) {
  auto half = cast<VectorType>(low.getType());
  int64_t lanes = half.getNumElements();
  auto type = VectorType::get({2 * lanes}, b.builder.getBF16Type());
  Value rounded = callBF16(b, "cvtne2ps2bf16", type, {high, low});
  // A NaN is above infinity but for its sign.
  auto bits = type.clone(b.builder.getI16Type());
  auto all = [&](int64_t value) {
    return b.constant(DenseElementsAttr::get(
        bits, b.builder.getIntegerAttr(bits.getElementType(), value)));
  };
  Value size = b.make<arith::AndIOp>(b.make<arith::BitcastOp>(bits, rounded),
                                     all(0x7fff));
  Value isNaN = b.compare(arith::CmpIPredicate::ugt, size, all(0x7f80));
  auto nan = APFloat::getNaN(APFloat::BFloat());
  return b.select(isNaN, b.constant(DenseElementsAttr::get(type, nan)),
                  rounded);
}
