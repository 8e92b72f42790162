// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

LogicalResult Interpreter::runAlloc(Operation *op) {
  SmallVector<Number> sizes;
  for (Value operand : op->getOperands())
    sizes.push_back(memory.getNumber(operand));
  Value result = op->getResult(0);
  memory.set(result, memory.allocate(result, sizes));
  if (scope)
    scope->push_back({op, result});
  return success();
}

LogicalResult Interpreter::run(memref::LoadOp op) {
  ByteRange element = memory.getElement(op.getMemref(), op.getIndices());
  memory.set(op.getResult(), memory.load(element));
  return timeline.access(op, element, /*isWrite=*/false);
}

LogicalResult Interpreter::run(memref::StoreOp op) {
  ByteRange element = memory.getElement(op.getMemref(), op.getIndices());
  memory.store(element, memory.getNumber(op.getValueToStore()));
  return timeline.access(op, element, /*isWrite=*/true);
}

void Interpreter::runView(ViewLikeOpInterface op) {
  Value source = op.getViewSource();
  for (Value result : op->getResults())
    memory.forget(result);
  if (op->getNumResults() != 1 ||
      !isa<MemRefType>(op->getResult(0).getType()) ||
      !isa<MemRefType>(source.getType()))
    return;
  Value result = op->getResult(0);
  View view = memory.getView(result); // static sizes
  view.region = memory.getView(source).region;
  auto setDynamicSizes = [&](ValueRange sizes) {
    for (Number &size : view.sizes)
      if (!size.value && !sizes.empty()) {
        size = memory.getNumber(sizes.front());
        sizes = sizes.drop_front();
      }
  };
  if (isa<memref::CastOp>(op)) {
    view.sizes = memory.getView(source).sizes;
  } else if (auto slice = dyn_cast<memref::SubViewOp>(op.getOperation())) {
    if (slice.getType().getRank() == slice.getSourceType().getRank())
      setDynamicSizes(slice.getSizes());
    view.region = memory.getBox(source, slice.getMixedOffsets(),
                                slice.getMixedSizes(), slice.getMixedStrides());
  } else if (auto cut = dyn_cast<memref::ViewOp>(op.getOperation())) {
    setDynamicSizes(cut.getSizes());
    std::optional<int64_t> begin = memory.getNumber(cut.getByteShift()).value;
    std::optional<int64_t> bytes = getElementBytes(cut.getType());
    for (const Number &size : view.sizes)
      bytes = bytes && size.value ? std::optional(*bytes * *size.value)
                                  : std::nullopt;
    if (begin && bytes) {
      view.region.begin += *begin;
      view.region.end = view.region.begin + *bytes;
    }
  }
  memory.set(result, view);
}

void Interpreter::runNumbers(Operation *op) {
  for (Value result : op->getResults())
    memory.forget(result);
  if (isa<ChunksOp>(op)) {
    memory.set(op->getResult(0), Number::shared(chunks));
    return;
  }
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    if (std::optional<int64_t> d = dim.getConstantIndex())
      memory.set(dim.getResult(), memory.getView(dim.getSource()).sizes[*d]);
    return;
  }
  auto isNumber = [](Type type) { return type.isIntOrIndex(); };
  if (op->getNumResults() != 1 || !isPure(op) || isa<RankOp>(op) ||
      !llvm::all_of(op->getOperandTypes(), isNumber) ||
      !isNumber(op->getResult(0).getType()))
    return;
  Number result;
  result.isShared = true;
  SmallVector<Attribute> constants;
  for (Value operand : op->getOperands()) {
    Number number = memory.getNumber(operand);
    result.isShared &= number.isShared;
    constants.push_back(number.value
                            ? IntegerAttr::get(operand.getType(), *number.value)
                            : Attribute());
  }
  SmallVector<OpFoldResult> folded;
  // Folding in place would change the program.
  Operation *copy = op->clone();
  if (succeeded(copy->fold(constants, folded)) && folded.size() == 1) {
    Number known = memory.getNumber(folded[0]);
    result.value = known.value;
  }
  copy->destroy();
  memory.set(op->getResult(0), result);
}

LogicalResult Interpreter::runEffects(Operation *op) {
  auto touch = [&](Value memref, bool isWrite) -> LogicalResult {
    ByteRange region = memory.getView(memref).region;
    if (isWrite)
      memory.clobber(region);
    return timeline.access(op, region, isWrite);
  };
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (interface) {
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects) {
      Value memref = effect.getValue();
      if (!memref || !isa<MemRefType>(memref.getType()) ||
          isa<MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      bool isWrite = !isa<MemoryEffects::Read>(effect.getEffect());
      if (failed(touch(memref, isWrite)))
        return failure();
    }
    return success();
  }
  if (isPure(op) || op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
      op->hasTrait<OpTrait::IsTerminator>())
    return success();
  // Nothing is known, as of a call.
  for (Value operand : op->getOperands())
    if (isa<MemRefType>(operand.getType()) && failed(touch(operand, true)))
      return failure();
  return success();
}
