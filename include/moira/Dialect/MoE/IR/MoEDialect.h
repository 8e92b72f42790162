// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moe dialect: everything that a user of its ops includes.

#ifndef MOIRA_DIALECT_MOE_IR_MOEDIALECT_H
#define MOIRA_DIALECT_MOE_IR_MOEDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "moira/Dialect/MoE/IR/PanelForm.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h.inc"
#include "moira/Dialect/MoE/IR/MoEEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "moira/Dialect/MoE/IR/MoEAttrs.h.inc"

#define GET_OP_CLASSES
#include "moira/Dialect/MoE/IR/MoEOps.h.inc"

namespace mlir {
class RewriterBase;
}

namespace mlir::moe {

/// Name of the argument attribute that marks a parameter (`moe.param`).
inline constexpr llvm::StringLiteral kParamAttrName = "moe.param";

/// Name of the argument attribute that says what a rank holds of a parameter of
/// experts (ShardAttr).
inline constexpr llvm::StringLiteral kShardAttrName = "moe.shard";

/// Name of the argument attribute (UnitAttr) of the input that says how many
/// tokens each block has, `tensor<Bxi32>`.
inline constexpr llvm::StringLiteral kBlocksAttrName = "moe.blocks";

/// Name of the argument attribute that says how a parameter is packed, a
/// dictionary of `logical` (the argument's type in the program), `slices` (how
/// many tensors of the checkpoint it is made of), `source` (the type of one of
/// them) and `function` (the symbol that packs one).
inline constexpr llvm::StringLiteral kPackingAttrName = "moe.packing";
/// Numerics class of a function's code (StringAttr), where it is not that of
/// plain chains of fused multiply-adds; the manifest names it.
inline constexpr llvm::StringLiteral kNumericsAttrName = "moe.numerics";

/// Attributes of an entry that has a way back (docs/gradients.md): the function
/// that computes gradients (FlatSymbolRefAttr), and how many of the entry's
/// results, the last ones, are for it alone (I64).
inline constexpr llvm::StringLiteral kBackwardAttrName = "moe.backward";
inline constexpr llvm::StringLiteral kResidualsAttrName = "moe.residuals";
/// How many results before those are the routing that was made visible (I64).
inline constexpr llvm::StringLiteral kRoutingAttrName = "moe.routing";
/// Attributes of that function's results: the name of the parameter whose
/// gradient it is (StringAttr), or the number of the input (I64).
inline constexpr llvm::StringLiteral kGradientAttrName = "moe.gradient";
inline constexpr llvm::StringLiteral kGradientOfAttrName = "moe.gradient_of";
/// Result attribute (UnitAttr) beside `moe.gradient`: the gradient is packed as
/// its parameter is.
inline constexpr llvm::StringLiteral kPackedGradientAttrName =
    "moe.packed_gradient";

/// Attribute of a sharded function: what times and memory of its experts depend
/// on beside their placement, an array with a dictionary for each expert:
/// `layer` (I64), bytes of a row (I64: `row_bytes` to experts, `result_bytes`
/// and `partial_bytes` back, whole and as sums to add; `result_gradient_bytes`
/// and `row_gradient_bytes` on the way back; `hidden_bytes` inside) and
/// `weights` (an array of ParamAttr).
inline constexpr llvm::StringLiteral kCostsAttrName = "moe.costs";

/// Attribute of ops of a schedule: which queue of the rank runs the op,
/// "compute" or "communication" (StringAttr).
inline constexpr llvm::StringLiteral kQueueAttrName = "moe.queue";
/// Attribute of ops of a schedule: the op's place in its chunk (I64). Ops of
/// one stage of all chunks precede those of the next in their queue.
inline constexpr llvm::StringLiteral kStageAttrName = "moe.stage";

/// Returns whether `op` stands in buffer form: it writes `outs` and has no
/// tensor results.
bool hasBufferForm(Operation *op);

/// Whether all ranks must run `op` together, in one order: the collectives and
/// the wait for one. Not `moe.rank` and the like, which each rank answers by
/// itself.
bool isCollective(Operation *op);

/// Returns the type of destination `i` of a compute op: that of result `i` in
/// tensor form, of `outs[i]` in buffer form; null when there is none.
ShapedType getDestinationType(Operation *op, ValueRange outs, unsigned i);

/// Replaces a gate in tensor form whose K is more than E by one with K = E,
/// with a warning; the choices from E on are unused. Fails on other gates.
LogicalResult clipChoices(GateOp gate, RewriterBase &rewriter);

/// Checks that the block `body` treats its first `numRowArgs` arguments, whose
/// dim 0 counts rows, row by row: every value that depends on rows keeps them
/// in one parallel dimension. Reports the first op that does not.
LogicalResult verifyRowIndependence(Block &body, unsigned numRowArgs);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_IR_MOEDIALECT_H
