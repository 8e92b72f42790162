// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small values that ranks compute together.

#ifndef MOIRA_LIB_SHARDING_COLLECTIVES_H
#define MOIRA_LIB_SHARDING_COLLECTIVES_H

#include "mlir/IR/Builders.h"

namespace mlir::moe::detail {

/// `tensor<W x 1 x i64>`: the index `mine` of every rank.
Value gatherIndex(OpBuilder &builder, Location loc, Value mine, int64_t ranks);

/// `tensor<W x N>`: the vector `mine` of every rank.
Value gatherVector(OpBuilder &builder, Location loc, Value mine, int64_t ranks);

/// The largest element over dim 0 of an integer tensor `[W, N]`, for each n.
Value maxOverRows(OpBuilder &builder, Location loc, Value all);

/// The only element of an i64 or i32 tensor `[1]`, as index.
Value extractIndex(OpBuilder &builder, Location loc, Value vector);

/// The sum of `all[p, 0]` over the ranks p below this one.
Value sumOfLowerRanks(OpBuilder &builder, Location loc, Value all);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SHARDING_COLLECTIVES_H
