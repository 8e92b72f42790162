// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H

#include "DecomposeBuilder.h"

namespace mlir::moe::detail {

/// Builds a stable merge sort: returns `order` (1-D, i32) with the numbers
/// begin..end-1 in its elements begin..end-1, by descending `keyOf(number)`;
/// NaN counts as -inf, ties go to the lower number. `scratch` is as long as
/// `order`. Other elements are those of `order`.
Value buildDescendingOrder(DecomposeBuilder &b, Value order, Value scratch,
                           Value begin, Value end,
                           llvm::function_ref<Value(Value)> keyOf);

/// The same for what stands in `order[begin..end]` already.
Value buildStableSort(DecomposeBuilder &b, Value order, Value scratch,
                      Value begin, Value end,
                      llvm::function_ref<Value(Value)> keyOf);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESORT_H
