// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the gradients of a block out of it: which of the block's values are
// kept for them, and the ops that compute them from those.

#ifndef MOIRA_LIB_AUTODIFF_SPLIT_H
#define MOIRA_LIB_AUTODIFF_SPLIT_H

#include "Reverse.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <functional>

namespace mlir::moe::detail {

class Split {
public:
  /// What to do with a value that the program computes.
  enum class Choice { Keep, Compute };

  /// `choose` is asked for values of the program that have no better rule; the
  /// values of the gradient are always computed.
  Split(const Reverse &reverse, std::function<Choice(OpResult)> choose)
      : reverse(reverse), choose(std::move(choose)) {}

  /// A block argument that needs not be kept: it is there anyway.
  void provide(BlockArgument argument) { provided.insert(argument); }

  /// Says that sizes can always be had from arguments.
  void setSizesKnown() { sizesKnown = true; }

  /// Finds what `root` needs.
  void need(Value root);
  /// The values to keep, in the order of the block: arguments, then results.
  SmallVector<Value> getKept() const;

  /// Builds `root` from the kept and the provided values, which `mapping` has,
  /// each op just before it is used first.
  Value build(OpBuilder &builder, Value root, IRMapping &mapping) const;

private:
  /// A tensor and a dim.
  using Size = std::pair<Value, int64_t>;

  std::optional<Size> getSizeOf(Value value) const;
  bool isThere(Value value) const;
  void keep(OpResult result);

  const Reverse &reverse;
  std::function<Choice(OpResult)> choose;
  llvm::SetVector<Value> kept;
  /// What is kept in the place of values that are only read rounded.
  DenseMap<Value, Value> rounded;
  /// The first value that is this size.
  llvm::MapVector<Size, Value> sizes;
  DenseSet<Value> seen, provided;
  bool sizesKnown = false;
};

/// Builds `roots` in another place by copying what computes them, and what
/// ranks tell each other, in the order of the block. `mapping` has the block's
/// arguments.
SmallVector<Value> cloneNeeded(OpBuilder &builder, const Reverse &reverse,
                               Block &block, ValueRange roots,
                               IRMapping &mapping);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_SPLIT_H
