// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

/// f64 for f64, else f32.
static Type wideType(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

/// Whether the dims of `[T, ..]` say that there are no tokens.
static bool hasNoTokens(ShapedType type) { return type.getDimSize(0) == 0; }

//===----------------------------------------------------------------------===//
// GateGradientOp
//===----------------------------------------------------------------------===//

void GateGradientOp::build(OpBuilder &builder, OperationState &state,
                           Value logits, Value ids, Value dweights,
                           RouterAttr router) {
  build(builder, state, TypeRange(logits.getType()), logits, ids, dweights,
        /*weights=*/Value(), /*selected=*/Value(), /*outs=*/ValueRange(),
        router);
}

ShapedType GateGradientOp::getResultType() {
  return getDestinationType(*this, getOuts(), 0);
}

int64_t GateGradientOp::getNumExperts() {
  return cast<ShapedType>(getLogits().getType()).getDimSize(1);
}

int64_t GateGradientOp::getNumChoices() {
  return cast<ShapedType>(getIds().getType()).getDimSize(1);
}

LogicalResult GateGradientOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  auto logits = cast<ShapedType>(getLogits().getType());
  auto ids = cast<ShapedType>(getIds().getType());
  ShapedType result = getResultType();
  // gate_gradient_c1
  if (logits.isDynamicDim(1) || ids.isDynamicDim(1))
    return emitOpError("expected static E and K, got ")
           << logits << " and " << ids;
  if (getNumChoices() < 1)
    return emitOpError("expected K >= 1, got K = ") << getNumChoices();
  if (failed(verifyDim(*this, "ids", ids, 0, logits.getDimSize(0))))
    return failure();
  if (result.getElementType() != logits.getElementType())
    return emitOpError("expected a result of ")
           << logits.getElementType() << ", got " << result;
  if (failed(verifyShape(*this, "result", result, logits.getShape())))
    return failure();
  // gate_gradient_c2
  for (auto [what, value] :
       {std::pair<StringRef, Value>{"dweights", getDweights()},
        {"weights", getWeights()},
        {"selected", getSelected()}})
    if (value &&
        failed(verifyShape(*this, what, cast<ShapedType>(value.getType()),
                           {logits.getDimSize(0), getNumChoices()})))
      return failure();
  Type score = wideType(logits.getElementType());
  for (Value value : {Value(getDweights()), Value(getWeights())})
    if (value && getElementTypeOrSelf(value.getType()) != score)
      return emitOpError("expected weights and their gradient of ")
             << score << ", got " << value.getType();
  // gate_gradient_c3
  if (getRouter().getExpertChoice() && getNumChoices() != getNumExperts())
    return emitOpError("expected K = E with expert_choice, got K = ")
           << getNumChoices() << ", E = " << getNumExperts();
  return success();
}

void GateGradientOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
GateGradientOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &reified) {
  reified.push_back({getDim(builder, getLoc(), getLogits(), 0),
                     builder.getIndexAttr(getNumExperts())});
  return success();
}

/// Replaces an op of tensor form without tokens by its empty result.
template <typename OpT>
static LogicalResult foldWithoutTokens(OpT op, PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getResultType()) ||
      !op.getResultType().hasStaticShape())
    return failure();
  rewriter.replaceOpWithNewOp<tensor::EmptyOp>(op, op.getResultType(),
                                               ValueRange());
  return success();
}

void GateGradientOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                 MLIRContext *) {
  patterns.add(foldWithoutTokens<GateGradientOp>);
}

//===----------------------------------------------------------------------===//
// PairDotOp
//===----------------------------------------------------------------------===//

void PairDotOp::build(OpBuilder &builder, OperationState &state, Value rows,
                      Value x, Value slots) {
  auto type = cast<ShapedType>(rows.getType());
  auto result =
      RankedTensorType::get(cast<ShapedType>(slots.getType()).getShape(),
                            wideType(type.getElementType()));
  build(builder, state, TypeRange(result), rows, x, slots,
        /*outs=*/ValueRange());
}

ShapedType PairDotOp::getResultType() {
  return getDestinationType(*this, getOuts(), 0);
}

LogicalResult PairDotOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  auto rows = cast<ShapedType>(getRows().getType());
  auto x = cast<ShapedType>(getX().getType());
  auto slots = cast<ShapedType>(getSlots().getType());
  ShapedType result = getResultType();
  // pair_dot_c1
  if (x.getElementType() != rows.getElementType())
    return emitOpError("expected x of ")
           << rows.getElementType() << " like the rows, got " << x;
  if (failed(verifyShape(
          *this, "x", x,
          {slots.getDimSize(0), rows.getDimSize(rows.getRank() - 1)})))
    return failure();
  // pair_dot_c2
  Type element = wideType(rows.getElementType());
  if (result.getElementType() != element)
    return emitOpError("expected a result of ")
           << element << ", got " << result;
  return verifyShape(*this, "result", result, slots.getShape());
}

void PairDotOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
PairDotOp::reifyResultShapes(OpBuilder &builder,
                             ReifiedRankedShapedTypeDims &reified) {
  reified.push_back({getDim(builder, getLoc(), getSlots(), 0),
                     getDim(builder, getLoc(), getSlots(), 1)});
  return success();
}

void PairDotOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                            MLIRContext *) {
  patterns.add(foldWithoutTokens<PairDotOp>);
}
