// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the lowerings of moe.grouped_matmul share: where groups begin, and views
// of padded operands as plain rows.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe {

/// First row of every group.
struct Groups {
  Value offsets; ///< memref<E x index>
};

/// Emits the loop that computes the groups of `op`.
Groups emitGroups(ImplicitLocOpBuilder &b, GroupedMatmulOp op);

/// The rows of group `expert` (index).
Value loadSize(ImplicitLocOpBuilder &b, GroupedMatmulOp op, Value expert);

/// Blocks of at most `rowBlock` rows, group by group; groups without rows have
/// none. The rows of a group are dealt evenly over its blocks.
struct RowBlocks {
  Value count;  ///< index
  Value expert; ///< memref<?xindex>: the group of each block
  Value begin;  ///< memref<Exindex>: the first block of each group
  int64_t rowBlock;
};
RowBlocks emitRowBlocks(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                        int64_t rowBlock);

/// Block `index` of the blocks: its group, first row in the flat rows, rows.
struct RowBlock {
  Value expert, first, rows;
};
RowBlock emitRowBlock(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                      const Groups &groups, const RowBlocks &blocks,
                      Value index);

/// The op's row-shaped operands as [rows, features] or [rows].
struct FlatOperands {
  SmallVector<Value> rows, results, elements, scalars;
};
FlatOperands flattenOperands(ImplicitLocOpBuilder &b, GroupedMatmulOp op);

/// `memref` [E, P, ...] as [E*P, ...] when `padded`, else itself.
Value collapseRows(ImplicitLocOpBuilder &b, Value memref, bool padded);

/// Notes that the function around `op` uses the dot product of pairs, whose
/// results are those of fused multiply-adds but for denormal numbers.
void recordNumerics(GroupedMatmulOp op);

/// A pattern that makes tiles, of the given kind, of a grouped matmul. It goes
/// before the one that makes plain loops of what is left.
struct TilePattern : OpRewritePattern<GroupedMatmulOp> {
  TilePattern(MLIRContext *context, const CPUTileOptions &options)
      : OpRewritePattern(context, /*benefit=*/2), options(options) {}

  CPUTileOptions options;
};

/// The patterns of `populateGroupedMatmulToCPUPatterns`: both directions of
/// panels, the contraction over rows, and what is left.
void populatePanelsToTilesPatterns(RewritePatternSet &patterns,
                                   const CPUTileOptions &options);
void populateTransposedToTilesPatterns(RewritePatternSet &patterns,
                                       const CPUTileOptions &options);
void populateContractionToTilesPatterns(RewritePatternSet &patterns,
                                        const CPUTileOptions &options);
void populateUnpackedToLoopsPatterns(RewritePatternSet &patterns);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_GROUPS_H
