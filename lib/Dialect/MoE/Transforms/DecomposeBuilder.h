// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Short spellings for the loops and scalar arithmetic of decompositions.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEBUILDER_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::moe::detail {

using Values = SmallVector<Value>;
using Sizes = SmallVector<OpFoldResult>;

/// Builds before an op, at its location.
class DecomposeBuilder : public ImplicitLocOpBuilder {
public:
  DecomposeBuilder(const OpBuilder &builder, Operation *op)
      : ImplicitLocOpBuilder(op->getLoc(), builder) {
    setInsertionPoint(op);
  }

  //===--- Scalars --------------------------------------------------------===//

  Value index(int64_t value);
  Value i32(int64_t value);
  Value real(Type type, double value);
  Value infinity(Type type, bool negative);
  Value toIndex(Value integer);
  Value toI32(Value index);
  /// Converts between float types, exactly or with one rounding.
  Value toReal(Value value, Type type);
  Value select(Value condition, Value a, Value b);
  Value compare(arith::CmpIPredicate predicate, Value a, Value b);
  Value compare(arith::CmpFPredicate predicate, Value a, Value b);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value fma(Value a, Value b, Value c);
  Value min(Value a, Value b);
  Value max(Value a, Value b);
  Value isNaN(Value value) {
    return compare(arith::CmpFPredicate::UNO, value, value);
  }

  //===--- Tensors --------------------------------------------------------===//

  OpFoldResult size(Value tensor, int64_t dim);
  Value dim(Value tensor, int64_t dim);
  Value empty(ArrayRef<OpFoldResult> sizes, Type element);
  Value filled(ArrayRef<OpFoldResult> sizes, Value scalar);
  Value extract(Value tensor, ValueRange indices);
  Value insert(Value scalar, Value tensor, ValueRange indices);
  /// `tensor` as a value of `type`, which differs in static sizes at most.
  Value castTo(Value tensor, Type type);
  /// The slice of unit stride; dims of size 1 in front of the last `rank` ones
  /// are dropped.
  Value slice(Value tensor, ArrayRef<OpFoldResult> offsets,
              ArrayRef<OpFoldResult> sizes, int64_t rank);
  Value insertSlice(Value slice, Value tensor, ArrayRef<OpFoldResult> offsets,
                    ArrayRef<OpFoldResult> sizes);

  //===--- Loops ----------------------------------------------------------===//

  /// for i in begin..end, carrying one value or more; the body returns the next
  /// ones.
  Values loop(Value begin, Value end, ValueRange carried,
              llvm::function_ref<Values(Value, ValueRange)> body);
  /// The values of `then` if `condition` holds, else `otherwise`.
  Values when(Value condition, ValueRange otherwise,
              llvm::function_ref<Values()> then);

  /// An operand of `generic` and the loops that index it.
  struct Access {
    Value tensor;
    SmallVector<unsigned> loops;
  };
  /// linalg.generic; `kinds` has a p or r for every loop. The body gets one
  /// element per operand, outs last, and returns the new elements of `outs`.
  Values generic(StringRef kinds, ArrayRef<Access> ins, ArrayRef<Access> outs,
                 llvm::function_ref<Values(ValueRange)> body);
  /// `out[i, j] = body(a[i, j].., out[i, j])`.
  Value map(ValueRange ins, Value out,
            llvm::function_ref<Value(ValueRange)> body);
  /// The number of a loop, inside the body of `generic`.
  Value loopIndex(unsigned loop);
};

/// An empty tensor in front of all scf.for around the insertion point, if its
/// shape is static: the loops then share one buffer. Else at that point.
Value buildHoistedEmpty(OpBuilder &builder, Location loc,
                        ArrayRef<OpFoldResult> sizes, Type element);

/// The type that sums of `element` are accumulated in: f64 for f64, else f32.
FloatType getAccumulatorType(Type element);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEBUILDER_H
