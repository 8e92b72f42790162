// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H

#include "DecomposeBuilder.h"

namespace mlir::moe::detail {

/// The 1-D i32 tensors of a sort, of one length.
struct SortBuffers {
  Value order, scratch;
};

/// Builds a stable merge sort of the numbers in order[begin..end] by descending
/// `keyOf(number)`; NaN counts as -inf. Returns the next value of both buffers.
SortBuffers buildStableSort(DecomposeBuilder &b, SortBuffers buffers,
                            Value begin, Value end,
                            llvm::function_ref<Value(Value)> keyOf);

/// The same for the numbers begin..end-1: ties go to the lower number.
SortBuffers buildDescendingOrder(DecomposeBuilder &b, SortBuffers buffers,
                                 Value begin, Value end,
                                 llvm::function_ref<Value(Value)> keyOf);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H
