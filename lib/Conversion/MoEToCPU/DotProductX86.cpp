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

/// vcvtneps2bf16 takes denormal numbers, which sums are not, as zero, and keeps
/// bits of a NaN, of which arith.truncf has one.
Value mlir::moe::detail::emitRoundSums(LoopBuilder &b, Value sums) {
  auto type = cast<VectorType>(sums.getType()).clone(b.builder.getBF16Type());
  Value rounded = callBF16(b, "cvtneps2bf16", type, sums);
  Value isNaN = b.compare(arith::CmpFPredicate::UNO, sums, sums);
  auto nan = APFloat::getNaN(APFloat::BFloat());
  return b.select(isNaN, b.constant(DenseElementsAttr::get(type, nan)),
                  rounded);
}
