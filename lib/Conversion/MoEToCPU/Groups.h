// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the lowerings of moe.grouped_matmul share: where groups begin, and views
// of padded operands as plain rows.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe {

/// First row of every group, and the size of the largest.
struct Groups {
  Value offsets; ///< memref<E x index>
  Value largest; ///< index
};

/// Emits the loop that computes the groups of `op`.
Groups emitGroups(ImplicitLocOpBuilder &b, GroupedMatmulOp op);

/// The rows of group `expert` (index).
Value loadSize(ImplicitLocOpBuilder &b, GroupedMatmulOp op, Value expert);

/// The op's row-shaped operands as [rows, features] or [rows].
struct FlatOperands {
  Value rows, result;
  SmallVector<Value> elements, scalars;
};
FlatOperands flattenOperands(ImplicitLocOpBuilder &b, GroupedMatmulOp op);

/// `memref` [E, P, ...] as [E*P, ...] when `padded`, else itself.
Value collapseRows(ImplicitLocOpBuilder &b, Value memref, bool padded);

/// Adds the patterns for what is not packed.
void populateUnpackedToLoopsPatterns(RewritePatternSet &patterns);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H
