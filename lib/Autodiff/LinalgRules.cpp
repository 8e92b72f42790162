// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rule for every linalg op: the gradient of an input is the gradient of the
// results times the derivative of the body, added up over the loops that the
// input does not have.

#include "LinalgBody.h"
#include "Reverse.h"
#include "ScalarRules.h"
#include "Sizes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// What a result's gradient becomes inside the body.
struct Seed {
  unsigned result;
  Value gradient; ///< of the result; of an extremum: each winner's share
  /// Of an extremum: the value of the body that competes.
  Value candidate;
};

class LinalgRule {
public:
  LinalgRule(Reverse &reverse, linalg::LinalgOp op)
      : reverse(reverse), b(reverse.getBuilder()), op(op), view(op) {}

  LogicalResult apply();

private:
  LogicalResult checkMaps();
  LogicalResult makeSeed(unsigned result, Value gradient);
  Value makeShare(unsigned result, Value gradient, Value candidate);
  /// The gradient of `target`, a value of the body or from outside, at the
  /// places of `map`.
  FailureOr<std::optional<Recipe>> makeRecipe(Value target, AffineMap map);
  /// Which rows are a token's, where the gradient at `map` is a sum over rows
  /// of which some are not: -1 for those, by the loops of the rows.
  std::optional<Recipe::Input> findTokens(AffineMap map);
  LogicalResult give(Value outer, Value target, AffineMap map);
  void giveStart(const Seed &seed);
  AffineMap getResultMap(unsigned result) const {
    return view.maps[view.numInputs + result];
  }

  Reverse &reverse;
  OpBuilder &b;
  linalg::LinalgOp op;
  LinalgView view;
  SmallVector<Seed> seeds;
  bool isContraction = false;
};

} // namespace

LogicalResult LinalgRule::checkMaps() {
  if (!op.hasPureTensorSemantics())
    return op->emitOpError("expected tensors to differentiate");
  for (auto [i, map] : llvm::enumerate(view.maps)) {
    bool isFine = map.isProjectedPermutation(/*allowZeroInResults=*/true);
    // A constant stands for a dim of one element.
    for (auto [dim, expr] : llvm::enumerate(map.getResults()))
      if (isa<AffineConstantExpr>(expr))
        isFine &=
            cast<ShapedType>(view.operands[i].getType()).getDimSize(dim) == 1;
    if (!isFine)
      return op->emitOpError("expected projected permutations as maps to "
                             "differentiate, operand #")
             << i << " has " << AffineMapAttr::get(map);
  }
  return success();
}

/// Follows `value` to `start` through ops that pass on its slope of 1, and
/// checks that nothing else reads it.
static bool addsTo(Value value, Value start) {
  while (value != start) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    SmallVector<Value> next;
    auto leads = [&](Value operand) {
      SmallVector<Value> worklist{operand};
      while (!worklist.empty()) {
        Value item = worklist.pop_back_val();
        if (item == start)
          return true;
        if (Operation *def = item.getDefiningOp())
          if (def->getBlock() == op->getBlock())
            llvm::append_range(worklist, def->getOperands());
      }
      return false;
    };
    for (Value operand : op->getOperands())
      if (leads(operand))
        next.push_back(operand);
    if (next.size() != 1)
      return false;
    bool isStep = isa<arith::AddFOp, arith::ExtFOp, arith::TruncFOp>(op) ||
                  (isa<arith::SubFOp>(op) && next[0] == op->getOperand(0)) ||
                  (isa<math::FmaOp>(op) && next[0] == op->getOperand(2));
    if (!isStep)
      return false;
    value = next[0];
  }
  return start.hasOneUse();
}

/// What competes with the accumulator for the largest or smallest value.
static Value getCandidate(Value yielded, Value accumulator) {
  Operation *op = yielded.getDefiningOp();
  if (!isa_and_nonnull<arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
                       arith::MinNumFOp>(op) ||
      !accumulator.hasOneUse())
    return {};
  if (op->getOperand(0) == accumulator)
    return op->getOperand(1);
  return op->getOperand(1) == accumulator ? op->getOperand(0) : Value();
}

LogicalResult LinalgRule::makeSeed(unsigned result, Value gradient) {
  if (!view.isReduction()) {
    seeds.push_back({result, gradient, Value()});
    return success();
  }
  BlockArgument accumulator = view.getArgument(view.numInputs + result);
  Value yielded = view.getYielded(result);
  if (addsTo(yielded, accumulator)) {
    seeds.push_back({result, gradient, Value()});
    return success();
  }
  Value candidate = getCandidate(yielded, accumulator);
  if (!candidate)
    return op->emitOpError("expected a reduction that adds or takes an "
                           "extremum to differentiate, result #")
           << result << " does neither";
  seeds.push_back({result, makeShare(result, gradient, candidate), candidate});
  return success();
}

Value LinalgRule::makeShare(unsigned result, Value gradient, Value candidate) {
  Location loc = op.getLoc();
  AffineMap map = getResultMap(result);
  Value extremum = op->getResult(result);
  Type element = getElementTypeOrSelf(extremum.getType());
  Type wide = getWideType(element);
  Recipe recipe(view, Recipe::Input(extremum, map));
  Value best = recipe.getFirst(0);
  OpBuilder inner = recipe.getBuilder();
  Value wins = arith::CmpFOp::create(inner, loc, arith::CmpFPredicate::OEQ,
                                     recipe.lookup(candidate), best);
  Value one = arith::SelectOp::create(inner, loc, wins,
                                      createFloat(inner, loc, wide, 1),
                                      createFloat(inner, loc, wide, 0));
  recipe.finish(one, map);
  // What the reduction starts from may win as well.
  Value others, start = view.operands[view.numInputs + result];
  if (reverse.isWanted(start))
    others = createElementwise(
        b, loc, {start, extremum}, wide,
        [&](OpBuilder &nested, Location at, ValueRange args) -> Value {
          Value equal = arith::CmpFOp::create(
              nested, at, arith::CmpFPredicate::OEQ, args[0], args[1]);
          return arith::SelectOp::create(nested, at, equal,
                                         createFloat(nested, at, wide, 1),
                                         createFloat(nested, at, wide, 0));
        });
  Value count = recipe.build(b, loc, getSizes(b, loc, extremum), wide, others);
  return createElementwise(
      b, loc, {gradient, count}, element,
      [&](OpBuilder &nested, Location at, ValueRange args) {
        Value share = arith::DivFOp::create(
            nested, at, convertFloat(nested, at, args[0], wide), args[1]);
        return convertFloat(nested, at, share, element);
      });
}

std::optional<Recipe::Input> LinalgRule::findTokens(AffineMap map) {
  SmallVector<Value> values(view.operands);
  llvm::append_range(values, op->getResults());
  SmallVector<AffineMap> maps(view.maps);
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    maps.push_back(getResultMap(i));
  for (auto [value, valueMap] : llvm::zip_equal(values, maps)) {
    Value slots = reverse.getSlots(value);
    if (!slots)
      continue;
    // Rows are [R, D], [E, P, D], or [R] after a sum over D.
    auto type = cast<RankedTensorType>(value.getType());
    int64_t numDims = std::max<int64_t>(1, type.getRank() - 1);
    AffineMap rows = valueMap.getMajorSubMap(numDims);
    if (llvm::all_of(rows.getResults(), [&](AffineExpr expr) {
          auto dim = dyn_cast<AffineDimExpr>(expr);
          return !dim || map.isFunctionOfDim(dim.getPosition());
        }))
      continue;
    Location loc = op.getLoc();
    SmallVector<OpFoldResult> sizes = getSizes(b, loc, value);
    sizes.truncate(numDims);
    Value bound = getValueOrCreateConstantIndexOp(b, loc, sizes[0]);
    for (OpFoldResult size : ArrayRef(sizes).drop_front())
      bound = arith::MulIOp::create(
          b, loc, bound, getValueOrCreateConstantIndexOp(b, loc, size));
    Type i32 = b.getI32Type();
    Value tokens =
        SourcesOp::create(
            b, loc,
            TypeRange(RankedTensorType::get({ShapedType::kDynamic}, i32)),
            slots, bound, ValueRange())
            ->getResult(0);
    if (numDims > 1) {
      SmallVector<int64_t> shape(type.getShape().take_front(numDims));
      tokens = tensor::ExpandShapeOp::create(
          b, loc, RankedTensorType::get(shape, i32), tokens,
          ReassociationIndices(llvm::to_vector<2>(llvm::seq(numDims))), sizes);
    }
    return Recipe::Input(tokens, rows);
  }
  return std::nullopt;
}

FailureOr<std::optional<Recipe>> LinalgRule::makeRecipe(Value target,
                                                        AffineMap map) {
  Location loc = op.getLoc();
  SmallVector<Recipe::Input> first;
  for (const Seed &seed : seeds)
    first.push_back({seed.gradient, getResultMap(seed.result)});
  for (const Seed &seed : seeds)
    first.push_back({op->getResult(seed.result), getResultMap(seed.result)});
  std::optional<Recipe::Input> tokens = findTokens(map);
  if (tokens)
    first.push_back(*tokens);
  Recipe recipe(view, first);
  OpBuilder inner = recipe.getBuilder();
  BodyReverse body(recipe, recipe.lookup(target));
  for (auto [i, seed] : llvm::enumerate(seeds)) {
    Value gradient = recipe.getFirst(i),
          best = recipe.getFirst(seeds.size() + i);
    if (!seed.candidate) {
      Value yielded = recipe.lookup(view.getYielded(seed.result));
      body.add(yielded, convertFloat(inner, loc, gradient, yielded.getType()));
      continue;
    }
    Value candidate = recipe.lookup(seed.candidate);
    Value wins = arith::CmpFOp::create(inner, loc, arith::CmpFPredicate::OEQ,
                                       candidate, best);
    Value zero = createFloat(inner, loc, gradient.getType(), 0);
    body.add(candidate,
             arith::SelectOp::create(inner, loc, wins, gradient, zero));
  }
  if (failed(body.run()))
    return failure();
  Value result = body.get();
  if (!result)
    return std::optional<Recipe>();
  if (tokens) {
    Value none = arith::ConstantIntOp::create(inner, loc, 0, 32);
    Value isToken =
        arith::CmpIOp::create(inner, loc, arith::CmpIPredicate::sge,
                              recipe.getFirst(2 * seeds.size()), none);
    result =
        arith::SelectOp::create(inner, loc, isToken, result,
                                createFloat(inner, loc, result.getType(), 0));
  }
  recipe.finish(result, map);
  return std::optional<Recipe>(std::move(recipe));
}

LogicalResult LinalgRule::give(Value outer, Value target, AffineMap map) {
  FailureOr<std::optional<Recipe>> made = makeRecipe(target, map);
  if (failed(made))
    return failure();
  if (!*made)
    return success();
  Recipe recipe = std::move(**made);
  Location loc = op.getLoc();
  Type element = getElementTypeOrSelf(outer.getType());
  bool isTensor = isa<RankedTensorType>(outer.getType());
  SmallVector<OpFoldResult> sizes;
  if (isTensor)
    sizes = getSizes(b, loc, outer);
  if (Value same = recipe.getSameInput())
    if (getElementTypeOrSelf(same.getType()) == element &&
        (same.getType() == outer.getType())) {
      reverse.add(outer, same);
      return success();
    }
  if (!recipe.isSum()) {
    Value gradient = recipe.build(b, loc, sizes, element, Value());
    reverse.add(outer, gradient);
    return success();
  }
  Type wide = getWideType(element);
  if (!isContraction || !isTensor) {
    reverse.add(outer, recipe.build(b, loc, sizes, wide, Value()));
    return success();
  }
  reverse.addChain(outer,
                   [recipe, loc, sizes, wide](OpBuilder &builder, Value start) {
                     return recipe.build(builder, loc, sizes, wide, start);
                   });
  return success();
}

/// What a reduction starts from.
void LinalgRule::giveStart(const Seed &seed) {
  Value start = view.operands[view.numInputs + seed.result];
  if (!reverse.isWanted(start))
    return;
  if (!seed.candidate) {
    reverse.add(start, seed.gradient);
    return;
  }
  Type element = getElementTypeOrSelf(start.getType());
  reverse.add(
      start,
      createElementwise(
          b, op.getLoc(), {start, op->getResult(seed.result), seed.gradient},
          element,
          [&](OpBuilder &nested, Location at, ValueRange args) -> Value {
            Value wins = arith::CmpFOp::create(
                nested, at, arith::CmpFPredicate::OEQ, args[0], args[1]);
            return arith::SelectOp::create(nested, at, wins, args[2],
                                           createFloat(nested, at, element, 0));
          }));
}

LogicalResult LinalgRule::apply() {
  if (failed(checkMaps()))
    return failure();
  isContraction = linalg::isaContractionOpInterface(op);
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    if (Value gradient = reverse.get(op->getResult(i)))
      if (failed(makeSeed(i, gradient)))
        return failure();
  if (view.isReduction())
    for (const Seed &seed : seeds)
      giveStart(seed);
  // The products of the way back have operands as narrow as those of this one.
  if (isContraction) {
    Type l = getElementTypeOrSelf(view.operands[0].getType()),
         r = getElementTypeOrSelf(view.operands[1].getType());
    if (l == r && isa<FloatType>(l) && cast<FloatType>(l).getWidth() < 32)
      seeds[0].gradient = castElements(b, op.getLoc(), seeds[0].gradient, l);
  }
  for (unsigned i = 0; i < view.operands.size(); ++i) {
    BlockArgument argument = view.getArgument(i);
    if (!argument || (!view.isInput(i) && view.isReduction()) ||
        !reverse.isWanted(view.operands[i]))
      continue;
    if (failed(give(view.operands[i], argument, view.maps[i])))
      return failure();
  }
  // Scalars and tensors that the body reads from outside.
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op->getRegion(0), captured);
  for (Value value : captured) {
    if (!reverse.isWanted(value))
      continue;
    if (!isa<FloatType>(value.getType()))
      return op->emitOpError("expected tensors to differentiate as operands, "
                             "got one read inside the body");
    if (failed(give(value, value,
                    AffineMap::get(view.loops.size(), 0, op->getContext()))))
      return failure();
  }
  return success();
}

LogicalResult mlir::moe::detail::differentiateLinalg(Reverse &reverse,
                                                     linalg::LinalgOp op) {
  return LinalgRule(reverse, op).apply();
}
