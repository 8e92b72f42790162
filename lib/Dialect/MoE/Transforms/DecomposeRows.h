// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that slots name, in the decompositions of what moves rows.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEROWS_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEROWS_H

#include "DecomposeBuilder.h"

namespace mlir::moe::detail {

/// A flat row of a `[R, D]` or `[E, P, D]` tensor, as a `[1, D]` slice.
struct TensorRow {
  DecomposeBuilder &b;
  Value tensor, slot;

  bool isPadded() const {
    return cast<ShapedType>(tensor.getType()).getRank() == 3;
  }
  Sizes offsets() const;
  Sizes sizes() const;
  Value read() const { return b.slice(tensor, offsets(), sizes(), 2); }
  Value write(Value row) const {
    return b.insertSlice(row, tensor, offsets(), sizes());
  }
};

/// Runs `body(token, choice, slot, carried)` for every pair with a slot, token
/// by token in choice order.
Value forEachSlot(DecomposeBuilder &b, Value slots, Value carried,
                  llvm::function_ref<Value(Value, Value, Value, Value)> body);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEROWS_H
