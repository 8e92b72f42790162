// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One expert of a program and what a rank makes of it.

#ifndef MOIRA_LIB_SHARDING_SHARDEXPERT_H
#define MOIRA_LIB_SHARDING_SHARDEXPERT_H

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::moe::detail {

/// What the user asks for.
struct ShardingOptions {
  int64_t ranks = 1;
  int64_t copies = 1;
  int64_t spare = 0;
};

/// An expert and where its parts go. Made before anything changes.
struct ShardedExpert {
  ExpertOp op;
  PlacementAttr placement;
  /// How each per-expert operand, an argument of the function, is held.
  SmallVector<ShardAttr> shards;
  /// Where an expert is cut.
  std::optional<Separability> separability;

  bool isCut() const { return placement.getShards() > 1; }
  /// Whether rows travel several times and come back as parts of sums.
  bool isPartial() const { return placement.getCopies() > 1; }
};

/// Decides how `expert` is spread over the ranks, or reports why it cannot.
FailureOr<ShardedExpert> planExpert(ExpertOp expert,
                                    const ShardingOptions &options);

/// What times and memory of the expert's layer depend on beside its placement,
/// for `moe.costs`: bytes of rows before anything is cut, and its parameters.
DictionaryAttr describeCost(const ShardedExpert &expert);

/// Counts of all ranks by the sizes they were gathered of: once per layer.
using Matrices = DenseMap<Value, Value>;

/// Replaces the expert, whose parameters have the types of `shards` already.
void rewriteExpert(RewriterBase &rewriter, ShardedExpert &expert,
                   Matrices &matrices);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SHARDING_SHARDEXPERT_H
