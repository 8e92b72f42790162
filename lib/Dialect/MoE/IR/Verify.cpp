// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;

LogicalResult mlir::moe::detail::verifyDim(Operation *op, StringRef what,
                                           ShapedType type, int64_t dim,
                                           int64_t size) {
  int64_t found = type.getDimSize(dim);
  if (ShapedType::isDynamic(found) || ShapedType::isDynamic(size) ||
      found == size)
    return success();
  return op->emitOpError("expected ") << what << " of size " << size
                                      << " in dim " << dim << ", got " << type;
}

LogicalResult mlir::moe::detail::verifyShape(Operation *op, StringRef what,
                                             ShapedType type,
                                             ArrayRef<int64_t> shape) {
  if (type.getRank() != static_cast<int64_t>(shape.size()))
    return op->emitOpError("expected ")
           << what << " of rank " << shape.size() << ", got " << type;
  for (auto [dim, size] : llvm::enumerate(shape))
    if (failed(verifyDim(op, what, type, dim, size)))
      return failure();
  return success();
}

LogicalResult mlir::moe::detail::verifyForm(Operation *op, ValueRange outs,
                                            unsigned numDest,
                                            unsigned numResults) {
  if (hasBufferForm(op)) {
    if (outs.size() != numDest || op->getNumResults() != 0)
      return op->emitOpError("expected ")
             << numDest << " outs and no results in buffer form, got "
             << outs.size() << " outs and " << op->getNumResults()
             << " results";
    for (auto [i, type] : llvm::enumerate(op->getOperandTypes()))
      if (isa<TensorType>(type))
        return op->emitOpError("expected no tensor among memref operands, got ")
               << type << " as operand #" << i;
    return success();
  }
  if (!outs.empty() || op->getNumResults() != numResults)
    return op->emitOpError("expected ")
           << numResults << " results and no outs in tensor form, got "
           << op->getNumResults() << " results and " << outs.size() << " outs";
  return success();
}

void mlir::moe::detail::addEffects(
    Operation *op, MutableOperandRange outs,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (!hasBufferForm(op))
    return;
  auto range = OperandRange(outs);
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    bool isOut = !range.empty() &&
                 operand.getOperandNumber() >= range.getBeginOperandIndex() &&
                 operand.getOperandNumber() <
                     range.getBeginOperandIndex() + range.size();
    if (isOut)
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
}

OpFoldResult mlir::moe::detail::getDim(OpBuilder &builder, Location loc,
                                       Value value, int64_t dim) {
  auto type = cast<ShapedType>(value.getType());
  if (!type.isDynamicDim(dim))
    return builder.getIndexAttr(type.getDimSize(dim));
  if (isa<MemRefType>(type))
    return memref::DimOp::create(builder, loc, value, dim).getResult();
  return tensor::DimOp::create(builder, loc, value, dim).getResult();
}
