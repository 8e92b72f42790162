// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

//===----------------------------------------------------------------------===//
// GateOp
//===----------------------------------------------------------------------===//

void GateOp::build(OpBuilder &builder, OperationState &state, Type ids,
                   Type weights, Value logits, RouterAttr router) {
  build(builder, state, TypeRange{ids, weights}, logits, /*bias=*/Value(),
        /*mask=*/Value(), /*topK=*/Value(), /*threshold=*/Value(),
        /*capacity=*/Value(), /*replay=*/Value(), /*sample=*/Value(),
        /*outs=*/ValueRange(), router, /*layer=*/IntegerAttr());
}

ShapedType GateOp::getIdsType() {
  return getDestinationType(*this, getOuts(), 0);
}

ShapedType GateOp::getWeightsType() {
  return getDestinationType(*this, getOuts(), 1);
}

int64_t GateOp::getNumExperts() {
  return cast<ShapedType>(getLogits().getType()).getDimSize(1);
}

int64_t GateOp::getNumChoices() { return getIdsType().getDimSize(1); }

LogicalResult GateOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 2, 2)))
    return failure();
  auto logits = cast<ShapedType>(getLogits().getType());
  ShapedType ids = getIdsType(), weights = getWeightsType();
  int64_t tokens = logits.getDimSize(0), experts = logits.getDimSize(1);
  // gate_c1
  if (!ids || !ids.getElementType().isInteger(32) || ids.getRank() != 2)
    return emitOpError("expected ids of type [T, K] x i32, got ") << ids;
  if (ShapedType::isDynamic(experts) || ids.isDynamicDim(1))
    return emitOpError("expected static E and K, got ")
           << logits << " and " << ids;
  int64_t choices = getNumChoices();
  if (failed(verifyShape(*this, "ids", ids, {tokens, choices})) ||
      failed(verifyShape(*this, "weights", weights, {tokens, choices})))
    return failure();
  // gate_c2
  if (choices < 1)
    return emitOpError("expected K >= 1, got K = ") << choices;
  // gate_c3
  if (getBias() &&
      failed(verifyShape(*this, "bias", cast<ShapedType>(getBias().getType()),
                         {experts})))
    return failure();
  for (auto [what, value] : {std::pair<StringRef, Value>{"mask", getMask()},
                             {"sample", getSample()}})
    if (value && failed(verifyShape(
                     *this, what, cast<ShapedType>(value.getType()), {tokens})))
      return failure();
  if (getReplay() && failed(verifyShape(*this, "replay",
                                        cast<ShapedType>(getReplay().getType()),
                                        {tokens, choices})))
    return failure();
  // gate_c4
  Type score = logits.getElementType().isF64() ? logits.getElementType()
                                               : Float32Type::get(getContext());
  if (weights.getElementType() != score)
    return emitOpError("expected weights of ") << score << ", got " << weights;
  for (Value value : {getBias(), getThreshold()})
    if (value && getElementTypeOrSelf(value.getType()) != score)
      return emitOpError("expected bias and threshold of ")
             << score << ", got " << value.getType();
  // gate_c5
  RouterAttr router = getRouter();
  int64_t groups = router.getGroups();
  if (experts % groups != 0)
    return emitOpError("expected groups to divide E = ")
           << experts << ", got " << groups;
  if (router.getKeep() * (experts / groups) < std::min(choices, experts))
    return emitOpError("expected the kept groups to hold K = ")
           << choices << " experts, got " << router.getKeep() << " groups of "
           << experts / groups;
  if (groups > 1 && router.getGroupScore() == GroupScore::SumTop2 &&
      experts / groups < 2)
    return emitOpError("expected two experts per group for sum_top2, got ")
           << experts / groups;
  // gate_c6
  if (router.getExpertChoice() != static_cast<bool>(getCapacity()))
    return emitOpError("expected capacity with expert_choice, and only there");
  if (router.getExpertChoice() &&
      (choices < experts || getTopK() || getThreshold() || getReplay() ||
       getSample()))
    return emitOpError("expected expert_choice with K = E and without top_k, "
                       "threshold, replay and sample, got K = ")
           << choices << ", E = " << experts;
  // gate_c7
  if (getSample() && choices < 2)
    return emitOpError("expected K >= 2 with sample, got K = ") << choices;
  return success();
}

void GateOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult GateOp::reifyResultShapes(OpBuilder &builder,
                                        ReifiedRankedShapedTypeDims &reified) {
  OpFoldResult tokens = getDim(builder, getLoc(), getLogits(), 0);
  OpFoldResult choices = builder.getIndexAttr(getNumChoices());
  reified.assign(2, {tokens, choices});
  return success();
}

//===----------------------------------------------------------------------===//
// CountOp
//===----------------------------------------------------------------------===//

LogicalResult CountOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // count_c1
  ShapedType counts = getDestinationType(*this, getOuts(), 0);
  if (!counts.getElementType().isInteger(32) || counts.getRank() != 1 ||
      !counts.hasStaticShape())
    return emitOpError("expected counts of type [E] x i32 with static E, got ")
           << counts;
  return success();
}

void CountOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult CountOp::reifyResultShapes(OpBuilder &builder,
                                         ReifiedRankedShapedTypeDims &reified) {
  auto counts = getDestinationType(*this, getOuts(), 0);
  reified.push_back({builder.getIndexAttr(counts.getDimSize(0))});
  return success();
}

//===----------------------------------------------------------------------===//
// CapacityOp
//===----------------------------------------------------------------------===//

LogicalResult CapacityOp::verify() {
  // capacity_c1 (the accessors give unsigned values)
  for (auto [what, attr, least] : {std::tuple<StringRef, IntegerAttr, int64_t>{
                                       "experts", getExpertsAttr(), 1},
                                   {"minimum", getMinimumAttr(), 0},
                                   {"alignment", getAlignmentAttr(), 1}})
    if (attr.getInt() < least)
      return emitOpError("expected ")
             << what << " >= " << least << ", got " << attr.getInt();
  // capacity_c2
  if (getRule() == CapacityRule::Tutel && !getCounts()) {
    FloatAttr factor;
    if (!matchPattern(getFactor(), m_Constant(&factor)) ||
        !(factor.getValueAsDouble() > 0))
      return emitOpError(
          "expected counts with tutel, or a constant factor > 0");
  }
  if (getCounts() && failed(verifyShape(*this, "counts",
                                        cast<ShapedType>(getCounts().getType()),
                                        {static_cast<int64_t>(getExperts())})))
    return failure();
  return success();
}

void CapacityOp::getEffects(Effects &effects) {
  if (getCounts() && isa<MemRefType>(getCounts().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &getCountsMutable()[0]);
}

OpFoldResult CapacityOp::fold(FoldAdaptor adaptor) {
  auto tokens = dyn_cast_or_null<IntegerAttr>(adaptor.getTokens());
  auto factor = dyn_cast_or_null<FloatAttr>(adaptor.getFactor());
  auto topK = dyn_cast_or_null<IntegerAttr>(adaptor.getTopK());
  if (!tokens || !factor || !topK)
    return {};
  double f = factor.getValueAsDouble();
  double t = tokens.getInt(), k = topK.getInt(), e = getExperts();
  double capacity = 0;
  switch (getRule()) {
  case CapacityRule::Tutel:
    if (!(f > 0)) // needs the counts
      return {};
    capacity = k * std::trunc(f * std::ceil(t / e));
    break;
  case CapacityRule::GShard:
    capacity = std::floor(std::ceil(f * t) * k / e);
    break;
  case CapacityRule::Switch:
    capacity = std::ceil(f * k * t / e);
    break;
  case CapacityRule::Fixed:
    capacity = std::trunc(f);
    break;
  }
  if (!(std::abs(capacity) < 9.0e15)) // does not fit: leave it to run time
    return {};
  int64_t value = std::max<int64_t>(static_cast<int64_t>(capacity),
                                    static_cast<int64_t>(getMinimum()));
  value = static_cast<int64_t>(
      llvm::divideCeil(static_cast<uint64_t>(value), getAlignment()));
  if (llvm::MulOverflow(value, static_cast<int64_t>(getAlignment()), value))
    return {};
  return IntegerAttr::get(IndexType::get(getContext()), value);
}

//===----------------------------------------------------------------------===//
// AssignOp
//===----------------------------------------------------------------------===//

ShapedType AssignOp::getSlotsType() {
  return getDestinationType(*this, getOuts(), 0);
}

ShapedType AssignOp::getSizesType() {
  return getDestinationType(*this, getOuts(), 1);
}

int64_t AssignOp::getNumExperts() { return getSizesType().getDimSize(0); }

LogicalResult AssignOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 2, 3)))
    return failure();
  auto ids = cast<ShapedType>(getIds().getType());
  auto counts = cast<ShapedType>(getCounts().getType());
  ShapedType slots = getSlotsType(), sizes = getSizesType();
  // assign_c1
  if (!slots || !slots.getElementType().isInteger(32) || !sizes ||
      !sizes.getElementType().isInteger(32) ||
      (getNumResults() == 3 && !getResult(2).getType().isIndex()))
    return emitOpError("expected i32 slots, i32 sizes and an index bound, got ")
           << getResultTypes();
  if (failed(verifyShape(*this, "slots", slots, ids.getShape())) ||
      failed(verifyShape(*this, "sizes", sizes, counts.getShape())))
    return failure();
  if (sizes.isDynamicDim(0))
    return emitOpError("expected static E, got sizes ") << sizes;
  // assign_c2
  bool perToken = getOrder() == Order::BatchPrioritized;
  bool perPair = getOrder() == Order::ExpertProbability;
  if ((perToken || perPair) != static_cast<bool>(getPriority()))
    return emitOpError("expected priority with batch_prioritized or "
                       "expert_probability, and only there, got order ")
           << stringifyOrder(getOrder());
  if (getPriority() &&
      failed(verifyShape(
          *this, "priority", cast<ShapedType>(getPriority().getType()),
          perPair ? ids.getShape() : ids.getShape().take_front())))
    return failure();
  // assign_c3
  if (getPadded() && !getCapacity())
    return emitOpError("expected capacity with padded");
  return success();
}

void AssignOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

Value AssignOp::buildBound(OpBuilder &builder, Location loc) {
  auto value = [&](OpFoldResult dim) {
    return getValueOrCreateConstantIndexOp(builder, loc, dim);
  };
  Value a, b;
  if (getPadded()) {
    a = arith::ConstantIndexOp::create(builder, loc, getNumExperts());
    b = getCapacity();
    if (getBlocks())
      b = arith::MulIOp::create(builder, loc, b,
                                value(getDim(builder, loc, getBlocks(), 0)));
  } else {
    a = value(getDim(builder, loc, getIds(), 0));
    b = value(getDim(builder, loc, getIds(), 1));
  }
  return arith::MulIOp::create(builder, loc, a, b);
}

LogicalResult
AssignOp::reifyResultShapes(OpBuilder &builder,
                            ReifiedRankedShapedTypeDims &reified) {
  reified.push_back({getDim(builder, getLoc(), getIds(), 0),
                     getDim(builder, getLoc(), getIds(), 1)});
  reified.push_back({builder.getIndexAttr(getNumExperts())});
  reified.push_back({});
  return success();
}

//===----------------------------------------------------------------------===//
// NoiseOp
//===----------------------------------------------------------------------===//

LogicalResult NoiseOp::verify() {
  // The op has no shaped input, so `outs` alone tells the form.
  if (getOuts().size() + getNumResults() != 1)
    return emitOpError("expected one result or one outs, got ")
           << getNumResults() << " results and " << getOuts().size() << " outs";
  // noise_c1
  ShapedType noise = getDestinationType(*this, getOuts(), 0);
  if (!noise.getElementType().isF32() || noise.getRank() != 2 ||
      noise.isDynamicDim(1))
    return emitOpError(
               "expected noise of type [T, N] x f32 with static N, got ")
           << noise;
  return success();
}

void NoiseOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult NoiseOp::reifyResultShapes(OpBuilder &builder,
                                         ReifiedRankedShapedTypeDims &reified) {
  auto noise = getDestinationType(*this, getOuts(), 0);
  OpFoldResult rows = getRows();
  if (!noise.isDynamicDim(0))
    rows = builder.getIndexAttr(noise.getDimSize(0));
  reified.push_back({rows, builder.getIndexAttr(noise.getDimSize(1))});
  return success();
}
