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
    Tokens,     ///< A row, or `rows`, in dim `dim` per token of this rank.
    Count,      ///< The number of such rows.
    Local       ///< Something else that depends on this rank's tokens.
  };
  Kind kind = Replicated;
  int64_t dim = 0;
  /// Rows per token of the inputs (Tokens, Count): more than one where a
  /// sequence of so many positions is a token.
  int64_t rows = 1;

  /// Rows do not count: equal shapes have equal rows.
  bool operator==(const RankDistribution &other) const {
    return kind == other.kind && (kind != Tokens || dim == other.dim);
  }
  bool operator!=(const RankDistribution &other) const {
    return !(*this == other);
  }
};

/// Follows the token dimension through a function. Dim 0 of every tensor
/// argument that is no parameter and has a dynamic dim 0 counts tokens. `run`
/// reports the first op that does not treat tokens independently. A reduction
/// over tokens that adds gives a replicated value, once the ranks' sums are
/// added: see `getSums`.
class TokenAnalysis {
public:
  LogicalResult run(func::FuncOp function);

  RankDistribution get(Value value) const { return known.lookup(value); }
  bool isReplicated(Value value) const {
    return get(value).kind == RankDistribution::Replicated;
  }

  /// The reductions over tokens, in order.
  ArrayRef<linalg::LinalgOp> getSums() const { return sums; }

private:
  LogicalResult visit(Block &block);
  LogicalResult visit(Operation &op);
  LogicalResult visitMoE(Operation &op);
  LogicalResult visitAssign(AssignOp op);
  LogicalResult expectSameCapacity(Operation &op, Value capacity);
  LogicalResult visitLinalg(linalg::LinalgOp op);
  LogicalResult visitSum(linalg::LinalgOp op);
  /// A number times or by a constant; false for all else.
  bool visitScale(Operation &op);
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
  InFlightDiagnostic mixes(Operation &op, const Twine &how);
  /// Says where a local value comes from.
  void explain(InFlightDiagnostic &error, Value value);
  void set(Operation &op, RankDistribution distribution);
  void setLocal(Operation &op);
  bool isTokens(Value value) const {
    return get(value).kind == RankDistribution::Tokens;
  }

  /// Values that are not here are replicated.
  llvm::DenseMap<Value, RankDistribution> known;
  /// The op that made a local value of tokens.
  llvm::DenseMap<Value, Operation *> origins;
  SmallVector<linalg::LinalgOp> sums;
};

} // namespace mlir::moe

#endif // MOIRA_SHARDING_TOKENPARALLEL_H
