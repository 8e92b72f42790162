// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two halves of an expert whose rows travel several times: what gives sums
// over a part of the hidden dimension, and what follows where tokens are.

#ifndef MOIRA_LIB_SHARDING_SHARDBODY_H
#define MOIRA_LIB_SHARDING_SHARDBODY_H

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::moe::detail {

/// Clones, at the builder's place, all of the body up to the last products, for
/// a hidden dimension of `size`; `mapping` has the arguments of the body, and
/// `starts` what the sums of each product with a bias start from in its place.
/// Returns the products' results.
SmallVector<Value> clonePartialBody(OpBuilder &builder, ExpertOp expert,
                                    const Separability &separability,
                                    int64_t size, IRMapping &mapping,
                                    const DenseMap<Value, Value> &starts);

/// Clones, at the builder's place, what follows the last products; `mapping`
/// has their results and the arguments for rows and shared operands, `rows` is
/// the number of rows. Returns what the body yields.
SmallVector<Value> cloneTail(OpBuilder &builder, ExpertOp expert,
                             const Separability &separability, Value rows,
                             IRMapping &mapping);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SHARDING_SHARDBODY_H
