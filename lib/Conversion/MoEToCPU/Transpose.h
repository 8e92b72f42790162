// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Squares of vectors, transposed in registers.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_TRANSPOSE_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_TRANSPOSE_H

#include "LoopUtils.h"

namespace mlir::moe::detail {

/// Transposes a square of vectors: lane j of vector i becomes lane i of j.
SmallVector<Value> emitTranspose(LoopBuilder &b, SmallVector<Value> rows);

/// Transposes rows of words that are pairs of columns into rows of words that
/// are pairs of rows: `rows[i]` has columns of a step of packed weights, its
/// lanes, and two indices of the contraction, its halves; in the results, two
/// for each pair of columns, halves are columns and lanes both indices of every
/// row. As many rows as lanes; in all pairs the later one stands first.
SmallVector<Value> emitPairTranspose(LoopBuilder &b, ArrayRef<Value> rows);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_TRANSPOSE_H
