// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of sums over an expert's hidden dimension (docs/ranks.md).

#ifndef MOIRA_DIALECT_MOE_UTILS_HIDDENBLOCKS_H
#define MOIRA_DIALECT_MOE_UTILS_HIDDENBLOCKS_H

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "mlir/IR/PatternMatch.h"

namespace mlir::moe {

/// Adds float tensors of one type and shape `sizes` in pairs: neighbours while
/// their number is even, what is left in order. One op, the sums are in its
/// body.
Value addInPairs(OpBuilder &builder, Location loc, ValueRange parts,
                 ArrayRef<OpFoldResult> sizes);

/// Whether the sum over `group` neighbours of `blocks` is a subtree of the sum
/// over all.
bool isSubtree(int64_t blocks, int64_t group);

/// Replaces each last product, or chain of them, by the sum of one per block;
/// `blocks` divide the hidden dimension.
void cutLastProducts(RewriterBase &rewriter, const Separability &separability,
                     int64_t blocks);

/// The blocks of an expert of `function` whose parameters are shards of one
/// with `blocks` blocks: those of the shards that it has or puts together.
int64_t countHiddenBlocks(ExpertOp expert, const Separability &separability,
                          int64_t blocks);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_HIDDENBLOCKS_H
