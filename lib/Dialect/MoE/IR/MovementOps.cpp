// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

/// Checks that `weights`, if given, has the slots' shape (dispatch_c3,
/// combine_c2) and holds f64 for f64 rows, else f32.
static LogicalResult verifyPairWeights(Operation *op, Value weights,
                                       ShapedType slots, Type element) {
  if (!weights)
    return success();
  auto type = cast<ShapedType>(weights.getType());
  Type expected =
      element.isF64() ? element : Float32Type::get(op->getContext());
  if (type.getElementType() != expected)
    return op->emitOpError("expected weights of ")
           << expected << ", got " << type;
  return verifyShape(op, "weights", type, slots.getShape());
}

//===----------------------------------------------------------------------===//
// DispatchOp
//===----------------------------------------------------------------------===//

ShapedType DispatchOp::getRowsType() {
  return getDestinationType(*this, getOuts(), 0);
}

LogicalResult DispatchOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  auto x = cast<ShapedType>(getX().getType());
  auto slots = cast<ShapedType>(getSlots().getType());
  auto sizes = cast<ShapedType>(getSizes().getType());
  ShapedType rows = getRowsType();
  // dispatch_c1
  if (failed(verifyDim(*this, "slots", slots, 0, x.getDimSize(0))))
    return failure();
  // dispatch_c2
  if (rows.getElementType() != x.getElementType() ||
      (rows.getRank() != 2 && rows.getRank() != 3))
    return emitOpError("expected rows of type [R, D] or [E, P, D] x ")
           << x.getElementType() << ", got " << rows;
  if (failed(
          verifyDim(*this, "rows", rows, rows.getRank() - 1, x.getDimSize(1))))
    return failure();
  if (rows.getRank() == 3 &&
      failed(verifyDim(*this, "rows", rows, 0, sizes.getDimSize(0))))
    return failure();
  return verifyPairWeights(*this, getWeights(), slots, x.getElementType());
}

void DispatchOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
DispatchOp::reifyResultShapes(OpBuilder &builder,
                              ReifiedRankedShapedTypeDims &reified) {
  ShapedType rows = getRowsType();
  OpFoldResult features = getDim(builder, getLoc(), getX(), 1);
  OpFoldResult bound = getBound();
  if (rows.getRank() == 2) {
    if (!rows.isDynamicDim(0))
      bound = builder.getIndexAttr(rows.getDimSize(0));
    reified.push_back({bound, features});
    return success();
  }
  OpFoldResult experts = getDim(builder, getLoc(), getSizes(), 0);
  OpFoldResult perExpert;
  if (!rows.isDynamicDim(1)) {
    perExpert = builder.getIndexAttr(rows.getDimSize(1));
  } else {
    Value e = getValueOrCreateConstantIndexOp(builder, getLoc(), experts);
    perExpert =
        arith::DivSIOp::create(builder, getLoc(), getBound(), e).getResult();
  }
  if (!rows.isDynamicDim(0))
    experts = builder.getIndexAttr(rows.getDimSize(0));
  reified.push_back({experts, perExpert, features});
  return success();
}

//===----------------------------------------------------------------------===//
// CombineOp
//===----------------------------------------------------------------------===//

ShapedType CombineOp::getResultType() {
  return getDestinationType(*this, getOuts(), 0);
}

LogicalResult CombineOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  auto rows = cast<ShapedType>(getRows().getType());
  auto slots = cast<ShapedType>(getSlots().getType());
  ShapedType result = getResultType();
  // combine_c1
  if (result.getElementType() != rows.getElementType() || result.getRank() != 2)
    return emitOpError("expected a result of type [T, D] x ")
           << rows.getElementType() << ", got " << result;
  if (failed(verifyShape(
          *this, "result", result,
          {slots.getDimSize(0), rows.getDimSize(rows.getRank() - 1)})))
    return failure();
  return verifyPairWeights(*this, getWeights(), slots, rows.getElementType());
}

void CombineOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
CombineOp::reifyResultShapes(OpBuilder &builder,
                             ReifiedRankedShapedTypeDims &reified) {
  auto rows = cast<ShapedType>(getRows().getType());
  reified.push_back({getDim(builder, getLoc(), getSlots(), 0),
                     getDim(builder, getLoc(), getRows(), rows.getRank() - 1)});
  return success();
}

//===----------------------------------------------------------------------===//
// SourcesOp
//===----------------------------------------------------------------------===//

ShapedType SourcesOp::getSourcesType() {
  return getDestinationType(*this, getOuts(), 0);
}

LogicalResult SourcesOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // sources_c1
  ShapedType sources = getSourcesType();
  if (!sources.getElementType().isInteger(32) || sources.getRank() != 1)
    return emitOpError("expected a result of type [R] x i32, got ") << sources;
  return success();
}

void SourcesOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
SourcesOp::reifyResultShapes(OpBuilder &builder,
                             ReifiedRankedShapedTypeDims &reified) {
  ShapedType sources = getSourcesType();
  OpFoldResult rows = getBound();
  if (!sources.isDynamicDim(0))
    rows = builder.getIndexAttr(sources.getDimSize(0));
  reified.push_back({rows});
  return success();
}
