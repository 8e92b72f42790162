// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who has what when every rank runs a function on its own tokens.

#ifndef MOIRA_SHARDING_TOKENPARALLEL_H
#define MOIRA_SHARDING_TOKENPARALLEL_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::moe {

/// How a value relates to the values of the other ranks.
struct RankDistribution {
  enum Kind {
    Replicated, ///< The same on all ranks.
    Tokens,     ///< A row, in dim `dim`, per token of this rank.
    Count,      ///< The number of this rank's tokens.
    Local       ///< Something else that depends on this rank's tokens.
  };
  Kind kind = Replicated;
  int64_t dim = 0;

  bool operator==(const RankDistribution &other) const {
    return kind == other.kind && (kind != Tokens || dim == other.dim);
  }
  bool operator!=(const RankDistribution &other) const {
    return !(*this == other);
  }
};

/// Follows the token dimension through a function. Dim 0 of every tensor
/// argument that is no parameter and has a dynamic dim 0 counts tokens. `run`
/// reports the first op that does not treat tokens independently.
class TokenAnalysis {
public:
  LogicalResult run(func::FuncOp function);

  RankDistribution get(Value value) const { return known.lookup(value); }
  bool isReplicated(Value value) const {
    return get(value).kind == RankDistribution::Replicated;
  }

private:
  LogicalResult visit(Block &block);
  LogicalResult visit(Operation &op);
  LogicalResult visitMoE(Operation &op);
  LogicalResult visitAssign(AssignOp op);
  LogicalResult visitLinalg(linalg::LinalgOp op);
  LogicalResult visitTensor(Operation &op);
  LogicalResult visitDim(tensor::DimOp op);
  LogicalResult visitEmpty(tensor::EmptyOp op);
  LogicalResult visitSlice(Operation &op, Value whole, RankedTensorType slice,
                           ArrayRef<OpFoldResult> offsets,
                           ArrayRef<OpFoldResult> sizes,
                           ArrayRef<OpFoldResult> strides);
  LogicalResult visitReshape(Operation &op,
                             ArrayRef<ReassociationIndices> groups,
                             bool expand);
  LogicalResult visitSameDims(Operation &op);
  LogicalResult visitFor(scf::ForOp op);
  LogicalResult visitIf(scf::IfOp op);
  LogicalResult visitReturn(func::ReturnOp op);

  /// Checks that row `t` of `value` belongs to token t.
  LogicalResult expectTokens(Operation &op, Value value, StringRef name);
  LogicalResult expectReplicated(Operation &op, Value value, StringRef name);
  LogicalResult mixes(Operation &op, const Twine &how);
  void set(Operation &op, RankDistribution distribution);
  void setLocal(Operation &op);
  bool isTokens(Value value) const {
    return get(value).kind == RankDistribution::Tokens;
  }

  /// Values that are not here are replicated.
  llvm::DenseMap<Value, RankDistribution> known;
  /// The op that made a local value of tokens.
  llvm::DenseMap<Value, Operation *> origins;
};

} // namespace mlir::moe

#endif // MOIRA_SHARDING_TOKENPARALLEL_H
