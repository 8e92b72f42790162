// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Experts as loops over groups, and contractions in the order that all targets
// sum in. The oracle uses both; the product does where it has no kernel.

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_DECOMPOSEEXPERT_H
#define MOIRA_DIALECT_MOE_TRANSFORMS_DECOMPOSEEXPERT_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/IR/PatternMatch.h"

namespace mlir::moe {

/// Replaces `op` by a loop over the experts: it slices the rows of the expert
/// and its per-expert operands, runs the body on them, and inserts what the
/// body yields into the results. Rows outside the groups stay undefined.
void lowerExpertToLoops(RewriterBase &rewriter, ExpertOp op);

/// Rewrites every contraction under `root` whose accumulator is f32 or f64 to a
/// linalg.generic with the loops (batch, rows of the left, contracted, columns
/// of the right) and a fused multiply-add: one chain in increasing k per
/// element, from the element's initial value. A right operand whose columns
/// are not its last dim is transposed first, so that the innermost loop reads
/// consecutive elements; no sum depends on that.
void orderContractions(RewriterBase &rewriter, Operation *root);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_DECOMPOSEEXPERT_H
