// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

LogicalResult mlir::moe::detail::verifyShards(Operation *op, ShapedType shards,
                                              ShapedType whole,
                                              std::optional<uint64_t> dim,
                                              int64_t parts,
                                              PlacementAttr placement) {
  // gather_weights_c3, reduce_weights_c3
  if (parts < 1 || (!dim && parts != 1))
    return op->emitOpError(
               "expected at least one part, and no more than one without "
               "a dim, got ")
           << parts;
  // gather_weights_c1, reduce_weights_c1
  SmallVector<int64_t> shape(shards.getShape());
  if (shape.empty())
    return op->emitOpError("expected shards [slots, ...], got ") << shards;
  if (failed(verifyDim(op, "shards", shards, 0, placement.getSlots())))
    return failure();
  shape[0] = placement.getCopies() == 0 ? placement.getExperts()
                                        : placement.getSlots();
  // gather_weights_c2, reduce_weights_c2
  if (dim) {
    auto place = static_cast<int64_t>(*dim);
    if (place < 1 || place >= shards.getRank())
      return op->emitOpError("expected a dim from 1 to ")
             << shards.getRank() - 1 << ", got " << place;
    if (!ShapedType::isDynamic(shape[place])) {
      if (shape[place] % parts != 0)
        return op->emitOpError("expected a dim of ")
               << parts << " equal parts, got " << shards;
      shape[place] *= placement.getPartsPerGroup();
    }
  }
  if (whole.getElementType() != shards.getElementType())
    return op->emitOpError("expected ")
           << shards.getElementType() << " on both sides, got " << whole;
  return verifyShape(op, "whole weights", whole, shape);
}

//===----------------------------------------------------------------------===//
// AllReduceOp
//===----------------------------------------------------------------------===//

LogicalResult AllReduceOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // all_reduce_c1
  auto mine = cast<ShapedType>(getMine().getType());
  ShapedType sum = getDestinationType(*this, getOuts(), 0);
  if (sum.getElementType() != mine.getElementType() ||
      sum.getShape() != mine.getShape())
    return emitOpError("expected a result of the operand's type, got ")
           << mine << " and " << sum;
  return success();
}

void AllReduceOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
AllReduceOp::reifyResultShapes(OpBuilder &builder,
                               ReifiedRankedShapedTypeDims &reified) {
  auto type = cast<ShapedType>(getMine().getType());
  SmallVector<OpFoldResult> shape;
  for (int64_t d = 0; d < type.getRank(); ++d)
    shape.push_back(detail::getDim(builder, getLoc(), getMine(), d));
  reified.push_back(shape);
  return success();
}

//===----------------------------------------------------------------------===//
// ReduceWeightsOp
//===----------------------------------------------------------------------===//

LogicalResult ReduceWeightsOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // reduce_weights_c1, reduce_weights_c2, reduce_weights_c3
  return verifyShards(*this, getDestinationType(*this, getOuts(), 0),
                      cast<ShapedType>(getWhole().getType()), getDim(),
                      getParts(), getPlacement());
}

void ReduceWeightsOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
ReduceWeightsOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &reified) {
  ShapedType shards = getDestinationType(*this, getOuts(), 0);
  SmallVector<OpFoldResult> shape;
  for (int64_t d = 0; d < shards.getRank(); ++d) {
    bool isCut = d == 0 || (getDim() && *getDim() == uint64_t(d));
    if (isCut && shards.isDynamicDim(d))
      return failure();
    shape.push_back(shards.isDynamicDim(d)
                        ? detail::getDim(builder, getLoc(), getWhole(), d)
                        : builder.getIndexAttr(shards.getDimSize(d)));
  }
  reified.push_back(shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Asynchronous forms
//===----------------------------------------------------------------------===//

/// A transfer reads and writes memory that others may name by other values.
static void addTransferEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

void StartAllReduceOp::getEffects(Effects &effects) {
  addTransferEffects(effects);
}
void StartReduceOp::getEffects(Effects &effects) {
  addTransferEffects(effects);
}
