// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that the verifiers of several op families share.

#ifndef MOIRA_LIB_DIALECT_MOE_IR_VERIFY_H
#define MOIRA_LIB_DIALECT_MOE_IR_VERIFY_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe::detail {

/// Checks that dim `dim` of `type` is `size`, unless one of them is dynamic.
LogicalResult verifyDim(Operation *op, StringRef what, ShapedType type,
                        int64_t dim, int64_t size);

/// Checks that `type` has the shape `shape` (dynamic sizes match anything).
LogicalResult verifyShape(Operation *op, StringRef what, ShapedType type,
                          ArrayRef<int64_t> shape);

/// Checks that the op is wholly in tensor form with `numResults` results, or
/// wholly in buffer form with as many `outs` of that kind.
LogicalResult verifyForm(Operation *op, ValueRange outs, unsigned numDest,
                         unsigned numResults);

/// Checks that `whole` is what `moe.gather_weights` makes of `shards`.
LogicalResult verifyShards(Operation *op, ShapedType shards, ShapedType whole,
                           std::optional<uint64_t> dim, int64_t parts,
                           PlacementAttr placement);

/// Adds the effects of a compute op: reads of memref operands, writes of
/// `outs`.
void addEffects(
    Operation *op, MutableOperandRange outs,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects);

/// The size of dim `dim` of `value`, an attribute where it is static.
OpFoldResult getDim(OpBuilder &builder, Location loc, Value value, int64_t dim);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_IR_VERIFY_H
