// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Split.h"

#include "Roundings.h"
#include "Sizes.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Operands of `op` and values that its regions read from outside.
static SmallVector<Value> getInputs(Operation *op) {
  llvm::SetVector<Value> inputs(op->getOperands().begin(),
                                op->getOperands().end());
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  return inputs.takeVector();
}

std::optional<Split::Size> Split::getSizeOf(Value value) const {
  auto dim = value.getDefiningOp<tensor::DimOp>();
  if (!dim || !dim.getConstantIndex())
    return std::nullopt;
  return Size{reverse.resolve(dim.getSource()), *dim.getConstantIndex()};
}

void Split::need(Value root) {
  Value value = reverse.resolve(root);
  if (!seen.insert(value).second)
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (!provided.contains(argument))
      kept.insert(argument);
    return;
  }
  // Whether a size is kept depends on whether its tensor is.
  if (std::optional<Size> size = getSizeOf(value)) {
    sizes.insert({*size, value});
    return;
  }
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  if (reverse.isForward(op) && !op->hasTrait<OpTrait::ConstantLike>() &&
      choose(result) == Choice::Keep) {
    keep(result);
    return;
  }
  for (Value input : getInputs(op))
    need(input);
}

void Split::keep(OpResult result) {
  Type type = getReadType(result);
  if (!type) {
    kept.insert(result);
    return;
  }
  OpBuilder builder(result.getContext());
  builder.setInsertionPointAfter(result.getOwner());
  Value narrow = castElements(builder, result.getLoc(), result, type);
  rounded[result] = narrow;
  kept.insert(narrow);
}

bool Split::isThere(Value value) const {
  auto argument = dyn_cast<BlockArgument>(value);
  return kept.contains(value) || (argument && provided.contains(argument));
}

SmallVector<Value> Split::getKept() const {
  SmallVector<Value> values(kept.begin(), kept.end());
  for (auto [size, value] : sizes)
    if (!sizesKnown && !isThere(size.first))
      values.push_back(value);
  llvm::sort(values, [](Value l, Value r) {
    auto a = dyn_cast<BlockArgument>(l), b = dyn_cast<BlockArgument>(r);
    if (a && b)
      return a.getArgNumber() < b.getArgNumber();
    if (a || b)
      return static_cast<bool>(a);
    auto x = cast<OpResult>(l), y = cast<OpResult>(r);
    if (x.getOwner() == y.getOwner())
      return x.getResultNumber() < y.getResultNumber();
    return x.getOwner()->isBeforeInBlock(y.getOwner());
  });
  return values;
}

Value Split::build(OpBuilder &builder, Value root, IRMapping &mapping) const {
  if (Value known = mapping.lookupOrNull(root))
    return known;
  Value value = reverse.resolve(root);
  if (std::optional<Size> size = getSizeOf(value))
    if (auto it = sizes.find(*size); it != sizes.end())
      value = it->second;
  Value built = mapping.lookupOrNull(value);
  if (!built) {
    Operation *op = value.getDefiningOp();
    auto findRounded = [&](Value input) {
      return rounded.lookup(reverse.resolve(input));
    };
    for (Value input : getInputs(op))
      if (!findRounded(input))
        mapping.map(input, build(builder, input, mapping));
    Operation *clone = builder.clone(*op, mapping);
    for (OpOperand &operand : op->getOpOperands())
      if (Value narrow = findRounded(operand.get()))
        readRounded(cast<linalg::GenericOp>(clone), operand.getOperandNumber(),
                    build(builder, narrow, mapping));
    built = mapping.lookup(value);
  }
  mapping.map(root, built);
  return built;
}

SmallVector<Value> mlir::moe::detail::cloneNeeded(OpBuilder &builder,
                                                  const Reverse &reverse,
                                                  Block &block,
                                                  ValueRange roots,
                                                  IRMapping &mapping) {
  DenseSet<Operation *> needed;
  SmallVector<Value> worklist(roots);
  // The record of a layer is wanted even where nobody reads the matrix.
  for (auto counts : block.getOps<GatherCountsOp>())
    if (reverse.isForward(counts))
      llvm::append_range(worklist, counts->getResults());
  while (!worklist.empty()) {
    Operation *op = reverse.resolve(worklist.pop_back_val()).getDefiningOp();
    if (op && needed.insert(op).second)
      llvm::append_range(worklist, getInputs(op));
  }
  for (Operation &op : block) {
    if (!needed.contains(&op))
      continue;
    for (Value input : getInputs(&op))
      mapping.map(input, mapping.lookup(reverse.resolve(input)));
    builder.clone(op, mapping);
  }
  SmallVector<Value> results;
  for (Value root : roots)
    results.push_back(mapping.lookup(reverse.resolve(root)));
  return results;
}
