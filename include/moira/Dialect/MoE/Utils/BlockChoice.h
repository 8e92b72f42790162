// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gates whose experts choose among the tokens of a block.

#ifndef MOIRA_DIALECT_MOE_UTILS_BLOCKCHOICE_H
#define MOIRA_DIALECT_MOE_UTILS_BLOCKCHOICE_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe {

/// A unit attribute on both gates that moe-token-blocks makes of one with
/// `expert_choice`: the one in a loop over blocks chooses ids, the one after
/// the loop replays them for the weights. The latter is the layer's gate.
inline constexpr llvm::StringLiteral kBlockChoiceAttrName = "moe.block_choice";

/// Whether `op` is the gate in the loop: it has no layer and no routing that
/// anybody but the layer's gate asks for.
inline bool choosesInBlock(Operation *op) {
  auto gate = dyn_cast<GateOp>(op);
  return gate && gate->hasAttr(kBlockChoiceAttrName) &&
         gate.getRouter().getExpertChoice();
}

/// Whether `gate` gets its ids from gates of blocks, not from elsewhere.
inline bool replaysBlocks(GateOp gate) {
  return gate->hasAttr(kBlockChoiceAttrName) &&
         !gate.getRouter().getExpertChoice();
}

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_BLOCKCHOICE_H
