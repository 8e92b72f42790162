// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ShardBody.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// Clones ops of a body with another hidden size.
class BodyCloner {
public:
  BodyCloner(OpBuilder &builder, const Separability &separability, int64_t size,
             IRMapping &mapping)
      : builder(builder), separability(separability), size(size),
        mapping(mapping) {}

  void clone(Operation &op);
  /// Clones the copies from `start` to `value` with another start.
  Value cloneStart(Value value, Value start, Value other);

private:
  /// What takes the place of an operand.
  Value getOperand(OpOperand &operand);
  /// A tensor of the same elements, with the hidden dimension at `place`.
  Value cloneUniform(Value value, HiddenPlace place);
  void cloneSlice(tensor::ExtractSliceOp slice);
  void cloneExpand(tensor::ExpandShapeOp expand);
  Type resize(Value value) {
    std::optional<HiddenPlace> place = separability.getPlace(value);
    return place ? resizeHidden(value.getType(), *place, size)
                 : value.getType();
  }
  SmallVector<OpFoldResult> remap(ArrayRef<OpFoldResult> values) {
    SmallVector<OpFoldResult> result(values);
    for (OpFoldResult &each : result)
      if (auto value = dyn_cast<Value>(each))
        each = mapping.lookup(value);
    return result;
  }

  OpBuilder &builder;
  const Separability &separability;
  int64_t size;
  IRMapping &mapping;
};

void BodyCloner::clone(Operation &op) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return cloneSlice(slice);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return cloneExpand(expand);
  Operation *copy = builder.clone(op, mapping);
  for (auto [from, to] : llvm::zip(op.getOpOperands(), copy->getOpOperands()))
    to.set(getOperand(from));
  for (auto [from, to] : llvm::zip(op.getResults(), copy->getResults()))
    to.setType(resize(from));
}

Value BodyCloner::getOperand(OpOperand &operand) {
  if (auto place = separability.getUniformPlace(operand)) {
    OpBuilder::InsertionGuard guard(builder);
    if (Operation *user = mapping.lookupOrNull(operand.getOwner()))
      builder.setInsertionPoint(user);
    return cloneUniform(operand.get(), *place);
  }
  return mapping.lookup(operand.get());
}

Value BodyCloner::cloneUniform(Value value, HiddenPlace place) {
  RankedTensorType type = resizeHidden(value.getType(), place, size);
  Operation *op = value.getDefiningOp();
  Location loc = op->getLoc();
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    Value init = fill.getOutputs().front();
    init = isUniform(init)
               ? cloneUniform(init, place)
               : tensor::EmptyOp::create(
                     builder, loc,
                     tensor::getMixedSizes(builder, loc, mapping.lookup(init)),
                     type.getElementType());
    return linalg::FillOp::create(
               builder, loc, mapping.lookup(fill.getInputs().front()), init)
        .getResult(0);
  }
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    SmallVector<Value> sizes;
    for (Value dynamic : empty.getDynamicSizes())
      sizes.push_back(mapping.lookup(dynamic));
    return tensor::EmptyOp::create(builder, loc, type, sizes);
  }
  DenseElementsAttr constant;
  matchPattern(value, m_Constant(&constant));
  return arith::ConstantOp::create(builder, loc, constant.resizeSplat(type));
}

void BodyCloner::cloneSlice(tensor::ExtractSliceOp slice) {
  SmallVector<OpFoldResult> offsets = remap(slice.getMixedOffsets()),
                            sizes = remap(slice.getMixedSizes()),
                            strides = remap(slice.getMixedStrides());
  auto type = cast<RankedTensorType>(resize(slice.getResult()));
  std::optional<HiddenPlace> place = separability.getPlace(slice.getSource());
  if (!place)
    place = separability.getUniformPlace(slice.getSourceMutable());
  if (place) {
    int64_t hidden = separability.getHiddenSize();
    // Parts one after the other begin at multiples of the hidden size.
    std::optional<int64_t> offset = getConstantIntValue(offsets[place->dim]);
    std::optional<int64_t> length = getConstantIntValue(sizes[place->dim]);
    if (!place->interleaved)
      offsets[place->dim] = builder.getIndexAttr(*offset / hidden * size);
    sizes[place->dim] = builder.getIndexAttr(*length / hidden * size);
  }
  mapping.map(slice.getResult(),
              tensor::ExtractSliceOp::create(builder, slice.getLoc(), type,
                                             mapping.lookup(slice.getSource()),
                                             offsets, sizes, strides));
}

void BodyCloner::cloneExpand(tensor::ExpandShapeOp expand) {
  auto type = cast<RankedTensorType>(resize(expand.getResult()));
  SmallVector<OpFoldResult> shape = remap(expand.getMixedOutputShape());
  for (auto [d, length] : llvm::enumerate(type.getShape()))
    if (!ShapedType::isDynamic(length))
      shape[d] = builder.getIndexAttr(length);
  mapping.map(expand.getResult(), tensor::ExpandShapeOp::create(
                                      builder, expand.getLoc(), type,
                                      getOperand(expand.getSrcMutable()),
                                      expand.getReassociationIndices(), shape));
}

Value BodyCloner::cloneStart(Value value, Value start, Value other) {
  if (value == start)
    return other;
  Operation *op = value.getDefiningOp();
  IRMapping local(mapping);
  // The operand that is copied comes first.
  local.map(op->getOperand(0), cloneStart(op->getOperand(0), start, other));
  return builder.clone(*op, local)->getResult(0);
}

} // namespace

/// All values that `op` and its regions read.
static llvm::SetVector<Value> getInputs(Operation &op) {
  llvm::SetVector<Value> inputs;
  getUsedValuesDefinedAbove(op.getRegions(), inputs);
  inputs.insert(op.operand_begin(), op.operand_end());
  return inputs;
}

/// Adds the ops that `value` is computed from.
static void collect(Value value, llvm::SetVector<Operation *> &ops) {
  Operation *op = value.getDefiningOp();
  if (!op || !ops.insert(op))
    return;
  for (Value input : getInputs(*op))
    collect(input, ops);
}

SmallVector<Value> mlir::moe::detail::clonePartialBody(
    OpBuilder &builder, ExpertOp expert, const Separability &separability,
    int64_t size, IRMapping &mapping, const DenseMap<Value, Value> &starts) {
  llvm::SetVector<Operation *> needed;
  for (LastProduct product : separability.getLastProducts()) {
    for (Value input : product.op.getDpsInputs())
      collect(input, needed);
    Value init = product.op.getDpsInits()[0];
    if (!product.start) {
      collect(init, needed);
      continue;
    }
    // Without the chain of copies itself, which is cloned for its new start.
    for (; init != product.start; init = init.getDefiningOp()->getOperand(0))
      for (Value input : llvm::drop_begin(init.getDefiningOp()->getOperands()))
        collect(input, needed);
  }
  BodyCloner cloner(builder, separability, size, mapping);
  for (Operation &op : expert.getBody().front().without_terminator())
    if (needed.contains(&op))
      cloner.clone(op);
  SmallVector<Value> results;
  for (LastProduct product : separability.getLastProducts()) {
    if (product.start)
      mapping.map(product.op.getDpsInits()[0],
                  cloner.cloneStart(product.op.getDpsInits()[0], product.start,
                                    starts.lookup(product.start)));
    cloner.clone(*product.op);
    results.push_back(mapping.lookup(product.op->getResult(0)));
  }
  return results;
}

SmallVector<Value>
mlir::moe::detail::cloneTail(OpBuilder &builder, ExpertOp expert,
                             const Separability &separability, Value rows,
                             IRMapping &mapping) {
  Block &body = expert.getBody().front();
  for (Operation &op : body.without_terminator()) {
    // The only dimension of a body that is not static is that of its rows.
    auto dim = dyn_cast<tensor::DimOp>(op);
    if (dim)
      mapping.map(dim.getResult(), rows);
    else if (separability.getTail().contains(&op))
      builder.clone(op, mapping);
  }
  SmallVector<Value> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(mapping.lookup(value));
  return results;
}
