// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bodies of linalg ops, and bodies of their gradients.

#ifndef MOIRA_LIB_AUTODIFF_LINALGBODY_H
#define MOIRA_LIB_AUTODIFF_LINALGBODY_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <memory>

namespace mlir::moe::detail {

/// A linalg op, named or not, as linalg.generic would say it.
struct LinalgView {
  explicit LinalgView(linalg::LinalgOp op);

  bool isReduction() const { return llvm::is_contained(loops, kReduction); }
  bool isInput(unsigned i) const { return i < numInputs; }
  /// The body's argument for operand i; null where there is none.
  BlockArgument getArgument(unsigned i) const;
  /// What the body yields for result i.
  Value getYielded(unsigned i) const {
    return body->getTerminator()->getOperand(i);
  }
  static constexpr auto kReduction = utils::IteratorType::reduction;

  linalg::LinalgOp op;
  Block *body;
  SmallVector<Value> operands; ///< inputs, then what results start from
  SmallVector<AffineMap> maps;
  SmallVector<utils::IteratorType> loops;
  unsigned numInputs;
};

/// A linalg.generic that is yet to be built: inputs with their maps and a body
/// with one argument for each, whose end yields a value of element type
/// `element`, to be added up where `sums` says so.
class Recipe {
public:
  using Input = std::pair<Value, AffineMap>;

  /// A body that begins as a copy of `view`'s, with `first` and then `view`'s
  /// operands as inputs.
  Recipe(const LinalgView &view, ArrayRef<Input> first);

  /// The argument that stands for one of the first inputs.
  Value getFirst(unsigned i) { return body->front().getArgument(i); }
  /// The copy of a value of `view`'s body; values from outside are their own.
  Value lookup(Value value) { return mapping.lookupOrDefault(value); }
  /// Where ops of the body are built.
  OpBuilder getBuilder();
  /// The copied ops, in order.
  ArrayRef<Operation *> getOps() const { return ops; }

  /// Ends the body: it yields `value` at the places of `map`, whose dims are
  /// loops of `view`; other loops add up. Inputs that the value does not need
  /// go away, and loops take the order of the map.
  void finish(Value value, AffineMap map);

  /// Whether several values are added to one.
  bool isSum() const { return numSums != 0; }
  /// The input that the op would return as it is, null if it does anything.
  Value getSameInput() const;
  /// Builds the op: elements of type `element`, sizes as given. Sums go on from
  /// `start`, or from zeros where it is null.
  Value build(OpBuilder &builder, Location loc, ArrayRef<OpFoldResult> sizes,
              Type element, Value start) const;

private:
  Value addInput(Value tensor, AffineMap map);
  void permuteLoops(AffineMap map);
  void dropInputs();
  void coverLoops();

  Location loc;
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  std::shared_ptr<Region> body;
  IRMapping mapping;
  SmallVector<Operation *> ops;
  unsigned numLoops = 0, numSums = 0;
  Value yielded;
  AffineMap resultMap;
  /// Tensors that have the loops, for those that no input has.
  SmallVector<Input> shapes;
};

/// Reverse mode over a recipe's body: the gradient of one value of it, or of a
/// scalar from outside.
class BodyReverse {
public:
  BodyReverse(Recipe &recipe, Value target);

  /// Adds to the gradient of a value that depends on the target; of any other,
  /// does nothing.
  void add(Value value, Value gradient);
  LogicalResult run();
  /// The target's gradient, null where it is zero. Of a 16-bit target it may be
  /// in f32, to be rounded where it is used.
  Value get() const { return gradients.lookup(target); }

private:
  Recipe &recipe;
  OpBuilder builder;
  Value target;
  DenseSet<Value> varied;
  DenseMap<Value, Value> gradients;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_LINALGBODY_H
