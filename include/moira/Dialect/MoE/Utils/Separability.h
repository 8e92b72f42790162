// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether an expert can be cut along its hidden dimension: the dimension that
// its last product contracts over, followed back to the first products through
// ops that treat it element by element.

#ifndef MOIRA_DIALECT_MOE_UTILS_SEPARABILITY_H
#define MOIRA_DIALECT_MOE_UTILS_SEPARABILITY_H

#include "moira/Dialect/MoE/IR/HiddenPlaces.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::moe {

/// A sum over the whole hidden dimension that gives rows: an expert's last
/// product, or of a way back what gives gradients of rows.
struct LastProduct {
  linalg::LinalgOp op;
  /// Its loop over the hidden dimension.
  unsigned loop = 0;
  /// What its sums start from: null for zero, else the argument of the body
  /// that they copy.
  BlockArgument start;
};

/// What is known of an expert's body; valid as long as the body stands.
class Separability {
public:
  /// Finds the hidden dimension from what the body yields; where the op says
  /// which dims of its weights have it (`moe.hidden_places`), from those.
  explicit Separability(ExpertOp expert);

  /// Whether the hidden dimension can be cut.
  bool isSeparable() const { return !obstacle; }
  /// The op that is in the way, and why; null where nothing is.
  Operation *getObstacle() const { return obstacle; }
  StringRef getReason() const { return reason; }

  /// Whether sums over a part of the hidden dimension can be added where the
  /// tokens are: what follows the last products needs no expert's parameters.
  bool canAddCopies() const { return !obstacle && !copyObstacle; }
  Operation *getCopyObstacle() const { return copyObstacle; }
  StringRef getCopyReason() const { return copyReason; }

  int64_t getHiddenSize() const { return hidden; }
  ArrayRef<LastProduct> getLastProducts() const { return last; }
  /// The place of the hidden dimension in a value of the body, if it has one.
  std::optional<HiddenPlace> getPlace(Value value) const {
    auto it = places.find(value);
    if (it == places.end())
      return std::nullopt;
    return it->second;
  }
  /// The place of the hidden dimension in an operand of a value that has none
  /// of its own: one of equal or undefined elements, which other ops may read
  /// at other places.
  std::optional<HiddenPlace> getUniformPlace(OpOperand &operand) const {
    auto it = uniformUses.find(&operand);
    if (it == uniformUses.end())
      return std::nullopt;
    return it->second;
  }
  /// Ops after the last products, in any order.
  const llvm::SetVector<Operation *> &getTail() const { return tail; }

  /// For tests and debugging: one line per argument, product and obstacle.
  void print(raw_ostream &os) const;

private:
  void findLastProducts(Value value);
  /// Begins with what the op says.
  void startFrom(ArrayRef<std::optional<HiddenPlace>> known);
  /// Notes a sum over the hidden dimension of a body whose places are known.
  void addSum(linalg::LinalgOp op, unsigned loop, HiddenPlace place);
  bool isProduct(linalg::LinalgOp op) const;
  void startFrom(linalg::LinalgOp op);
  void traceStart(LastProduct &product);
  /// Notes that `value` has the hidden dimension at `place`.
  void mark(Value value, HiddenPlace place, Operation *by);
  void markOperand(OpOperand &operand, HiddenPlace place);
  void follow(Value value);
  /// Spreads the place of `value` through `op`, which defines it, or uses it as
  /// `operand`.
  void visit(Operation *op, Value value, OpOperand *operand);
  void visitLinalg(linalg::LinalgOp op, unsigned loop, HiddenPlace place);
  void block(Operation *op, const Twine &why);
  void blockCopies(Operation *op, const Twine &why);

  ExpertOp expert;
  /// What values depend on.
  llvm::DenseSet<Value> onRows, onExperts;
  SmallVector<LastProduct> last;
  llvm::SetVector<Operation *> tail;
  llvm::MapVector<Value, HiddenPlace> places;
  DenseMap<OpOperand *, HiddenPlace> uniformUses;
  SmallVector<Value> worklist;
  int64_t hidden = 0;
  /// Whether the op said where the hidden dimension is: the body may yield it,
  /// and rows may have it.
  bool isKnown = false;
  Operation *obstacle = nullptr, *copyObstacle = nullptr;
  std::string reason, copyReason;
};

/// Whether all elements of a tensor are one number, or undefined.
bool isUniform(Value value);

/// `type` with a hidden dimension of `size` at `place`.
RankedTensorType resizeHidden(Type type, HiddenPlace place, int64_t size);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_SEPARABILITY_H
