// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reverse mode over one block: gradients of values, op after op from the last
// to the first.

#ifndef MOIRA_LIB_AUTODIFF_REVERSE_H
#define MOIRA_LIB_AUTODIFF_REVERSE_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace mlir::moe::detail {

/// What a pass over a program decides once.
struct ReverseOptions {
  /// Products are computed again on the way back.
  bool recompute = false;
};

/// The gradients of the values of `block`. They are built at the end of the
/// block, before its terminator, from the block's values; Split takes them
/// apart later.
///
/// A value that several ops use gets the sum of what they bring, in the order
/// of the ops; 16-bit gradients are added in f32 and rounded once. Where two
/// contractions follow one another in that sum, the second goes on where the
/// first ends: one chain of multiply-adds.
class Reverse {
public:
  /// Builds a contribution that may go on from `start`, of the sum's own (wide)
  /// type; null for zeros.
  using Chain = std::function<Value(OpBuilder &, Value start)>;

  Reverse(Block &block, const ReverseOptions &options);

  OpBuilder &getBuilder() { return builder; }
  const ReverseOptions &getOptions() const { return options; }
  Block &getBlock() { return block; }

  /// Says that the gradient of a block argument is wanted.
  void want(BlockArgument argument) { varied.insert(argument); }
  /// Finds the values that depend on wanted arguments in a way that has a
  /// derivative: their gradients are wanted too.
  void analyse();
  /// Goes through the ops backwards, from gradients that were added before.
  LogicalResult run();

  /// Whether the gradient of a value is wanted.
  bool isWanted(Value value) const { return varied.contains(value); }
  /// The slots by which the rows of a value were placed, where it has rows that
  /// no slot names: those hold anything. Null where it has none.
  Value getSlots(Value value) const;

  /// Adds to the gradient of a wanted value; of any other, does nothing. The
  /// gradient has the value's shape, and its element type or the wide one; of a
  /// scalar it may be a tensor of rank 0.
  void add(Value value, Value gradient);
  void addChain(Value value, Chain chain);
  /// The gradient of a value, of its type; null where it is zero. Nothing may
  /// be added later.
  Value get(Value value);
  /// The same with zeros.
  Value getOrZeros(Value value);
  /// The gradient of a scalar as a tensor of rank 0.
  Value getAsTensor(Value scalar);

  /// Ops of the program, not of its gradient.
  bool isForward(Operation *op) const { return forward.contains(op); }
  /// Puts `op`, of the program too, in the place of values that it also
  /// computes. The old ones stay until Split.
  void replace(ValueRange old, ValueRange values);
  void addForward(Operation *op) { forward.insert(op); }
  Value resolve(Value value) const;

private:
  struct Contribution {
    Value value;
    Chain chain;
  };

  /// Where the rows of a value stand.
  struct Rows {
    Value slots;
    /// At the experts of this rank, where every row is one of a token.
    bool isAway = false;
  };

  void markVaried(Operation *op);
  void markRows(Operation *op);
  LogicalResult differentiate(Operation *op);
  Value sum(Value value, ArrayRef<Contribution> parts, bool asTensor);

  Block &block;
  ReverseOptions options;
  OpBuilder builder;
  DenseSet<Value> varied;
  DenseMap<Value, Rows> rows;
  DenseMap<Value, SmallVector<Contribution, 2>> parts;
  DenseMap<Value, Value> finished;
  DenseMap<Value, Value> replacements;
  DenseSet<Operation *> forward;
};

// The rules of op families. Each adds to the gradients of an op's operands.

LogicalResult differentiateLinalg(Reverse &reverse, linalg::LinalgOp op);
LogicalResult differentiateSoftmax(Reverse &reverse, linalg::SoftmaxOp op);
/// Whether `op` is of the family, and then what its rule says.
std::optional<LogicalResult> differentiateTensor(Reverse &reverse,
                                                 Operation *op);
std::optional<LogicalResult> differentiateMoE(Reverse &reverse, Operation *op);
LogicalResult differentiateExpert(Reverse &reverse, ExpertOp op);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_REVERSE_H
