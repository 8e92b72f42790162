// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels of other compilers: what their LLVM IR says by intrinsics and inline
// PTX, as ops of the NVVM dialect, which the emulated device knows.

#ifndef MOIRA_LIB_CONVERSION_LLVMTONVVM_RAISE_H
#define MOIRA_LIB_CONVERSION_LLVMTONVVM_RAISE_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::moe::detail {

/// Builds in front of one op.
class Raise {
public:
  explicit Raise(Operation *op)
      : op(op), b(op), loc(op->getLoc()), i32(b.getI32Type()),
        f32(b.getF32Type()) {}

  /// Replaces a call of an intrinsic `llvm.nvvm.*`; fails for one that it does
  /// not know.
  LogicalResult raise(LLVM::CallIntrinsicOp call);
  /// Replaces inline PTX; says what it does not understand.
  LogicalResult raise(LLVM::InlineAsmOp assembly);

  // One instruction each. Null or a failure for what has no form here; names
  // are those of PTX.
  Value shuffle(StringRef mode, Value mask, Value value, Value offset,
                Value clamp, bool isPair = false);
  Value vote(StringRef mode, Value mask, Value isSet);
  /// An i32 for one matrix, else a struct of them.
  Value ldmatrix(Value address, int64_t count, bool isTransposed);
  /// m16n8k16 with sums in f32; operands of 32 bits each, A, B, C.
  Value mma(bool isBF16, ValueRange operands);
  LogicalResult cpAsync(Value to, Value from, int64_t size, bool isGlobal,
                        Value bytes);
  /// An f32 function of one or two operands: "ex2.approx", "div.full".
  Value function(StringRef name, ValueRange operands);
  /// Two f32 as a pair of 16 bits, the second in the lower half.
  Value packHalves(Type element, Value high, Value low);

  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, loc, type,
                                    b.getIntegerAttr(type, value));
  }
  Value real(double value) {
    return LLVM::ConstantOp::create(b, loc, f32, b.getF32FloatAttr(value));
  }
  /// A value of the same width as another type; pointers by conversion.
  Value cast(Value value, Type type);
  /// The number of a constant.
  static std::optional<int64_t> numberOf(Value value);

  Operation *op;
  OpBuilder b;
  Location loc;
  Type i32, f32;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_LLVMTONVVM_RAISE_H
