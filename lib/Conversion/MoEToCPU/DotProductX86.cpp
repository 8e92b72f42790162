// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// vdpbf16ps of AVX512_BF16: adds the odd product first and then the even one,
// rounding to nearest after each, whatever the mode; denormal factors and sums
// count as zero. The only x86 of this room.

#include "DotProduct.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::moe::detail;

Value mlir::moe::detail::emitPairDot(LoopBuilder &b, Value sums, Value words,
                                     Value panel) {
  auto type = cast<VectorType>(sums.getType());
  int64_t bits = type.getNumElements() * type.getElementTypeBitWidth();
  Value pairs = b.make<vector::BitCastOp>(panel.getType(), words);
  return LLVM::CallIntrinsicOp::create(
             b.builder, b.loc, type,
             b.builder.getStringAttr("llvm.x86.avx512bf16.dpbf16ps." +
                                     std::to_string(bits)),
             ValueRange{sums, pairs, panel})
      .getResult(0);
}
