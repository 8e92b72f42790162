// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Routing, movement of rows and collectives: docs/gradients.md.

#include "Reverse.h"
#include "ScalarRules.h"
#include "Sizes.h"

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// The rules of one op.
class MoERule {
public:
  MoERule(Reverse &reverse, Operation *op)
      : reverse(reverse), b(reverse.getBuilder()), op(op), loc(op->getLoc()) {}

  std::optional<LogicalResult> apply();

private:
  LogicalResult apply(GateOp gate);
  LogicalResult apply(DispatchOp dispatch);
  LogicalResult apply(CombineOp combine);
  LogicalResult apply(ExchangeOp exchange);
  LogicalResult apply(AllReduceOp reduce);
  LogicalResult apply(ReplicateOp replicate);
  LogicalResult apply(GatherWeightsOp gather);
  LogicalResult apply(ReduceWeightsOp reduce);
  GateOp simplify(GateOp gate, bool keepThreshold);
  Value addCopies(Value copies, RankedTensorType type);

  Value getGradient() { return reverse.get(op->getResult(0)); }
  /// The result of an op of the gradient, which belongs to this op's layer.
  Value label(Operation *created) {
    if (Attribute layer = op->getAttr("layer"))
      created->setAttr("layer", layer);
    return created->getResult(0);
  }
  Value getIndex(Value tensor, int64_t dim) {
    return getValueOrCreateConstantIndexOp(b, loc,
                                           getSize(b, loc, tensor, dim));
  }

  Reverse &reverse;
  OpBuilder &b;
  Operation *op;
  Location loc;
};

} // namespace

/// The gate without its draws, and without its threshold where asked.
GateOp MoERule::simplify(GateOp gate, bool keepThreshold) {
  return GateOp::create(b, loc, gate->getResultTypes(), gate.getLogits(),
                        gate.getBias(), gate.getMask(), gate.getTopK(),
                        keepThreshold ? gate.getThreshold() : Value(),
                        gate.getCapacity(), gate.getReplay(),
                        /*sample=*/Value(), ValueRange(), gate.getRouter(),
                        gate.getLayerAttr());
}

LogicalResult MoERule::apply(GateOp gate) {
  Value logits = gate.getLogits(), ids = gate->getResult(0),
        weights = gate->getResult(1);
  Value d = reverse.get(weights);
  if (!d || !reverse.isWanted(logits))
    return success();
  if (gate.getSample()) {
    // Draws come after the normalisation: a choice that they made unused is
    // part of the sum, and its own weight has no gradient.
    Type element = getElementTypeOrSelf(d.getType());
    d = createElementwise(
        b, loc, {d, ids}, element,
        [&](OpBuilder &nested, Location at, ValueRange args) -> Value {
          Value zero = arith::ConstantIntOp::create(nested, at, 0, 32);
          Value isUsed = arith::CmpIOp::create(
              nested, at, arith::CmpIPredicate::sge, args[1], zero);
          return arith::SelectOp::create(nested, at, isUsed, args[0],
                                         createFloat(nested, at, element, 0));
        });
    GateOp drawless = simplify(gate, /*keepThreshold=*/true);
    ids = drawless->getResult(0);
    weights = drawless->getResult(1);
  }
  // Choices that a threshold made unused take part in a softmax over those
  // selected.
  Value selected;
  RouterAttr router = gate.getRouter();
  if (router.getAfterTopK() && router.getScore() == Score::Softmax &&
      gate.getThreshold())
    selected = simplify(gate, /*keepThreshold=*/false)->getResult(0);
  reverse.add(logits, label(GateGradientOp::create(
                          b, loc, TypeRange(logits.getType()), logits, ids, d,
                          weights, selected, ValueRange(), router)));
  return success();
}

LogicalResult MoERule::apply(DispatchOp dispatch) {
  Value d = getGradient(), x = dispatch.getX(), slots = dispatch.getSlots();
  if (reverse.isWanted(x))
    reverse.add(
        x, label(CombineOp::create(b, loc, TypeRange(x.getType()), d, slots,
                                   dispatch.getWeights(), ValueRange())));
  if (dispatch.getWeights() && reverse.isWanted(dispatch.getWeights()))
    reverse.add(dispatch.getWeights(),
                label(PairDotOp::create(b, loc, d, x, slots)));
  return success();
}

LogicalResult MoERule::apply(CombineOp combine) {
  Value d = getGradient(), rows = combine.getRows(), slots = combine.getSlots();
  auto assign = slots.getDefiningOp<AssignOp>();
  if (!assign)
    return combine.emitOpError("expected slots of a moe.assign to "
                               "differentiate");
  if (reverse.isWanted(rows))
    reverse.add(rows, label(DispatchOp::create(
                          b, loc, TypeRange(rows.getType()), d, slots,
                          assign->getResult(1), assign->getResult(2),
                          combine.getWeights(), ValueRange())));
  if (combine.getWeights() && reverse.isWanted(combine.getWeights()))
    reverse.add(combine.getWeights(),
                label(PairDotOp::create(b, loc, rows, d, slots)));
  return success();
}

/// Adds `[copies, R, D]` to `[R, D]`, in f32, rounded once.
Value MoERule::addCopies(Value copies, RankedTensorType type) {
  SmallVector<OpFoldResult> sizes = getSizes(b, loc, copies);
  int64_t count = cast<RankedTensorType>(copies.getType()).getDimSize(0);
  SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)),
      strides(3, b.getIndexAttr(1));
  sizes[0] = b.getIndexAttr(1);
  Type wide = getWideType(type.getElementType());
  SmallVector<Value> parts;
  for (int64_t c = 0; c < count; ++c) {
    offsets[0] = b.getIndexAttr(c);
    Value part = tensor::ExtractSliceOp::create(b, loc, type, copies, offsets,
                                                sizes, strides);
    parts.push_back(castElements(b, loc, part, wide));
  }
  Value sum = addInPairs(b, loc, parts, ArrayRef(sizes).drop_front());
  return castElements(b, loc, sum, type.getElementType());
}

LogicalResult MoERule::apply(ExchangeOp exchange) {
  if (exchange.getChunk() || exchange.getInit())
    return exchange.emitOpError("expected whole exchanges to differentiate, "
                                "got one in chunks");
  Value d = getGradient(), rows = exchange.getRows();
  auto type = cast<RankedTensorType>(rows.getType());
  int64_t copies = exchange.getPlacement().getCopies();
  bool isBack = exchange.getDirection() == Direction::ToTokens;
  RankedTensorType resultType = type;
  if (!isBack && copies > 1)
    resultType = type.clone({copies, type.getDimSize(0), type.getDimSize(1)});
  Value moved = ExchangeOp::create(
                    b, loc, TypeRange(resultType), d, exchange.getMatrix(),
                    getIndex(rows, 0), Value(), Value(), Value(), ValueRange(),
                    isBack ? Direction::ToExperts : Direction::ToTokens,
                    exchange.getPlacement(), exchange.getSchedule(),
                    exchange.getLayerAttr())
                    ->getResult(0);
  if (!isBack && copies > 1)
    moved = addCopies(moved, type);
  reverse.add(rows, moved);
  return success();
}

LogicalResult MoERule::apply(AllReduceOp reduce) {
  reverse.add(reduce.getMine(), ReplicateOp::create(b, loc, getGradient()));
  return success();
}

LogicalResult MoERule::apply(ReplicateOp replicate) {
  Value d = getGradient();
  reverse.add(replicate.getValue(),
              AllReduceOp::create(b, loc, TypeRange(d.getType()), d,
                                  ValueRange(), IntegerAttr())
                  ->getResult(0));
  return success();
}

LogicalResult MoERule::apply(GatherWeightsOp gather) {
  Value shards = gather.getWeights();
  reverse.add(shards,
              ReduceWeightsOp::create(
                  b, loc, TypeRange(shards.getType()), getGradient(),
                  ValueRange(), gather.getDimAttr(), gather.getPartsAttr(),
                  gather.getPlacement(), gather.getLayerAttr())
                  ->getResult(0));
  return success();
}

LogicalResult MoERule::apply(ReduceWeightsOp reduce) {
  Value whole = reduce.getWhole();
  reverse.add(whole,
              GatherWeightsOp::create(
                  b, loc, TypeRange(whole.getType()), getGradient(),
                  ValueRange(), reduce.getDimAttr(), reduce.getPartsAttr(),
                  reduce.getPlacement(), reduce.getLayerAttr())
                  ->getResult(0));
  return success();
}

std::optional<LogicalResult> MoERule::apply() {
  using Result = std::optional<LogicalResult>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case<GateOp, DispatchOp, CombineOp, ExchangeOp, AllReduceOp, ReplicateOp,
            GatherWeightsOp, ReduceWeightsOp>(
          [&](auto concrete) -> Result { return apply(concrete); })
      .Default([](Operation *) -> Result { return std::nullopt; });
}

std::optional<LogicalResult>
mlir::moe::detail::differentiateMoE(Reverse &reverse, Operation *op) {
  return MoERule(reverse, op).apply();
}
