// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An expert's gradient is an expert: reverse mode over the body, whose values
// that are worth keeping become results of the forward expert and rows of the
// backward one.

#include "Costs.h"
#include "Experts.h"
#include "Reverse.h"
#include "ScalarRules.h"
#include "Sizes.h"
#include "Split.h"

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

class ExpertRule {
public:
  ExpertRule(Reverse &reverse, ExpertOp op)
      : reverse(reverse), b(reverse.getBuilder()), op(op), loc(op.getLoc()) {}

  LogicalResult apply();

private:
  /// A gradient of the body, and the operand it belongs to.
  struct Output {
    Value operand, gradient;
    bool isShared;
  };

  void noteHidden();
  void addSeeds(Reverse &inner, Block &body);
  SmallVector<Output> collect(Reverse &inner);
  /// The values of the forward expert that stand for those kept of the body.
  SmallVector<Value> keepResults(ArrayRef<Value> kept);
  void buildBackward(const Split &split, ArrayRef<Value> kept,
                     ArrayRef<Output> outputs);
  Value sumOverExperts(Value sums, Type type);

  /// `[R, n]` or `[E, P, n]` like the expert's rows.
  RankedTensorType getOuterType(Value rows) {
    auto first = cast<RankedTensorType>(op.getRows().front().getType());
    auto inner = cast<RankedTensorType>(rows.getType());
    SmallVector<int64_t> shape(first.getShape());
    shape.back() = inner.getDimSize(1);
    return inner.clone(shape);
  }

  Reverse &reverse;
  OpBuilder &b;
  ExpertOp op;
  Location loc;
  /// A copy whose body gets the gradients' ops.
  ExpertOp scratch;
  /// Values of the copy's body, and what they are in the expert's own.
  DenseMap<Value, Value> originals;
  /// Gradients of results: the body's arguments, and the tensors.
  SmallVector<BlockArgument> seeds;
  SmallVector<Value> gradients;
};

} // namespace

void ExpertRule::addSeeds(Reverse &inner, Block &body) {
  auto yield = cast<YieldOp>(body.getTerminator());
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    Value gradient = reverse.get(result);
    Value yielded = yield->getOperand(i);
    if (!gradient || !inner.isWanted(yielded))
      continue;
    seeds.push_back(body.addArgument(yielded.getType(), loc));
    gradients.push_back(gradient);
    inner.add(yielded, seeds.back());
  }
}

SmallVector<ExpertRule::Output> ExpertRule::collect(Reverse &inner) {
  SmallVector<Output> outputs;
  auto add = [&](ValueRange operands, ArrayRef<BlockArgument> arguments,
                 bool isShared) {
    for (auto [operand, argument] : llvm::zip_equal(operands, arguments)) {
      if (!inner.isWanted(argument))
        continue;
      bool isTensor = isa<RankedTensorType>(argument.getType());
      if (Value gradient =
              isTensor ? inner.get(argument) : inner.getAsTensor(argument))
        outputs.push_back({operand, gradient, isShared});
    }
  };
  add(op.getRows(), scratch.getRowArgs(), false);
  add(op.getPerExpert(), scratch.getPerExpertArgs(), false);
  // The seeds stand behind the shared arguments.
  unsigned first = op.getRows().size() + op.getPerExpert().size();
  add(op.getShared(),
      scratch.getBody().getArguments().slice(first, op.getShared().size()),
      true);
  return outputs;
}

SmallVector<Value> ExpertRule::keepResults(ArrayRef<Value> kept) {
  auto yield = cast<YieldOp>(op.getBody().front().getTerminator());
  SmallVector<Value> values;
  SmallVector<std::pair<Value, Type>> added;
  SmallVector<Type> types(op->getResultTypes());
  SmallVector<unsigned> places;
  for (Value value : kept) {
    // What is not the body's own is its rounded form.
    Value original = originals.lookup(value);
    if (!original)
      original = originals.lookup(
          value.getDefiningOp<linalg::GenericOp>().getInputs().front());
    if (value.getType() != original.getType()) {
      places.push_back(types.size());
      types.push_back(getOuterType(value));
      added.push_back({original, getElementTypeOrSelf(value.getType())});
      continue;
    }
    auto it = llvm::find(yield.getOperands(), original);
    if (it != yield.getOperands().end()) {
      places.push_back(it - yield.getOperands().begin());
      continue;
    }
    places.push_back(types.size());
    types.push_back(getOuterType(original));
    added.push_back({original, getElementTypeOrSelf(value.getType())});
  }
  Operation *source = op;
  if (!added.empty()) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(op);
    auto extended =
        ExpertOp::create(b, loc, types, op.getRows(), op.getSizes(),
                         op.getPerExpert(), op.getShared(), op.getLayerAttr());
    extended->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    IRMapping mapping;
    op.getBody().cloneInto(&extended.getBody(), mapping);
    Operation *end = extended.getBody().front().getTerminator();
    b.setInsertionPoint(end);
    for (auto [value, element] : added)
      end->insertOperands(end->getNumOperands(),
                          castElements(b, loc, mapping.lookup(value), element));
    reverse.replace(op->getResults(),
                    extended->getResults().take_front(op->getNumResults()));
    reverse.addForward(extended);
    source = extended;
  }
  for (unsigned place : places)
    values.push_back(source->getResult(place));
  return values;
}

/// Adds `[E, S..]` over experts, in ascending order.
Value ExpertRule::sumOverExperts(Value sums, Type type) {
  auto from = cast<RankedTensorType>(sums.getType());
  Type element = from.getElementType(), wide = getWideType(element);
  auto rank = static_cast<unsigned>(from.getRank());
  SmallVector<OpFoldResult> sizes = getSizes(b, loc, sums);
  Value zeros = createZeros(b, loc, ArrayRef(sizes).drop_front(), wide);
  // The loop over experts is the last, as that of every sum.
  MLIRContext *context = op.getContext();
  SmallVector<AffineExpr> in{getAffineDimExpr(rank - 1, context)}, out;
  for (unsigned d = 0; d + 1 < rank; ++d) {
    in.push_back(getAffineDimExpr(d, context));
    out.push_back(getAffineDimExpr(d, context));
  }
  AffineMap maps[] = {AffineMap::get(rank, 0, in, context),
                      AffineMap::get(rank, 0, out, context)};
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  loops.back() = utils::IteratorType::reduction;
  return linalg::GenericOp::create(
             b, loc, TypeRange(zeros.getType()), ValueRange{sums},
             ValueRange{zeros}, maps, loops,
             [&](OpBuilder &nested, Location at, ValueRange args) {
               Value sum = arith::AddFOp::create(
                   nested, at, args[1],
                   convertFloat(nested, at, args[0], wide));
               linalg::YieldOp::create(nested, at, sum);
             })
      .getResult(0);
}

void ExpertRule::buildBackward(const Split &split, ArrayRef<Value> kept,
                               ArrayRef<Output> outputs) {
  unsigned numRows = op.getRows().size(), numExperts = op.getPerExpert().size(),
           numShared = op.getShared().size();
  SmallVector<Value> rows, perExpert, shared, rowArgs, expertArgs, sharedArgs;
  SmallVector<Value> values;
  for (Value value : kept) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument) {
      values.push_back(value);
      continue;
    }
    unsigned i = argument.getArgNumber();
    if (i < numRows) {
      rows.push_back(op.getRows()[i]);
      rowArgs.push_back(argument);
    } else if (i < numRows + numExperts) {
      perExpert.push_back(op.getPerExpert()[i - numRows]);
      expertArgs.push_back(argument);
    } else if (i < numRows + numExperts + numShared) {
      shared.push_back(op.getShared()[i - numRows - numExperts]);
      sharedArgs.push_back(argument);
    }
  }
  llvm::append_range(rows, keepResults(values));
  llvm::append_range(rowArgs, values);
  llvm::append_range(rows, gradients);
  llvm::append_range(rowArgs, seeds);

  int64_t experts = op.getNumExperts();
  SmallVector<Type> types;
  for (const Output &output : outputs) {
    auto type = cast<RankedTensorType>(output.gradient.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin(), experts);
    bool isRow = llvm::is_contained(op.getRows(), output.operand) &&
                 !output.isShared && !type.hasStaticShape();
    types.push_back(isRow ? output.operand.getType() : Type(type.clone(shape)));
  }
  auto backward = ExpertOp::create(b, loc, types, rows, op.getSizes(),
                                   perExpert, shared, op.getLayerAttr());
  if (std::optional<HiddenPlaces> known = getHiddenPlaces(op)) {
    HiddenPlaces places;
    for (Value argument : expertArgs)
      places.push_back(
          (*known)[cast<BlockArgument>(argument).getArgNumber() - numRows]);
    setHiddenPlaces(backward, places);
  }
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&backward.getBody());
  IRMapping mapping;
  for (ArrayRef<Value> list :
       {ArrayRef(rowArgs), ArrayRef(expertArgs), ArrayRef(sharedArgs)})
    for (Value value : list)
      mapping.map(value, block->addArgument(value.getType(), loc));
  // The number of rows is that of any of them.
  for (BlockArgument argument : scratch.getRowArgs())
    if (!mapping.contains(argument))
      mapping.map(argument, block->getArgument(0));
  SmallVector<Value> yields;
  for (const Output &output : outputs)
    yields.push_back(split.build(b, output.gradient, mapping));
  YieldOp::create(b, loc, yields);
  b.setInsertionPointAfter(backward);
  for (auto [output, result] : llvm::zip(outputs, backward.getResults())) {
    Value gradient = result;
    if (output.isShared)
      gradient = sumOverExperts(gradient, output.operand.getType());
    reverse.add(output.operand, gradient);
  }
}

/// Says on the expert which dims of its weights are hidden, for the sums of its
/// extended form and of its gradient.
void ExpertRule::noteHidden() {
  if (getHiddenPlaces(op))
    return;
  Separability separability(op);
  if (!separability.isSeparable())
    return;
  HiddenPlaces places;
  for (BlockArgument argument : op.getPerExpertArgs())
    places.push_back(separability.getPlace(argument));
  setHiddenPlaces(op, places);
}

LogicalResult ExpertRule::apply() {
  for (OpResult result : op->getResults())
    if (op.isSum(result.getResultNumber()) && reverse.get(result))
      return op.emitOpError("expected rows as results to differentiate, got "
                            "sums over rows of ")
             << result.getType();
  noteHidden();
  IRMapping mapping;
  scratch = cast<ExpertOp>(b.clone(*op, mapping));
  // Goes last: gradients that are not built yet refer to its values.
  llvm::scope_exit erase([&] { scratch.erase(); });
  Block &body = scratch.getBody().front();
  for (Operation &inner : op.getBody().front())
    for (Value result : inner.getResults())
      originals[mapping.lookup(result)] = result;

  Reverse inner(body, reverse.getOptions());
  ValueRange operands[] = {op.getRows(), op.getPerExpert(), op.getShared()};
  unsigned number = 0;
  for (ValueRange list : operands)
    for (Value operand : list) {
      BlockArgument argument = body.getArgument(number++);
      if (reverse.isWanted(operand))
        inner.want(argument);
    }
  inner.analyse();
  addSeeds(inner, body);
  if (failed(inner.run()))
    return failure();
  SmallVector<Output> outputs = collect(inner);
  if (outputs.empty())
    return success();
  auto choose = [&](OpResult result) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    bool isRow = type && type.getRank() == 2 && type.isDynamicDim(0) &&
                 !type.isDynamicDim(1);
    return isRow && isCostly(result.getOwner()) ? Split::Choice::Keep
                                                : Split::Choice::Compute;
  };
  Split split(inner, choose);
  for (BlockArgument seed : seeds)
    split.provide(seed);
  split.setSizesKnown();
  for (const Output &output : outputs)
    split.need(output.gradient);
  buildBackward(split, split.getKept(), outputs);
  return success();
}

LogicalResult mlir::moe::detail::differentiateExpert(Reverse &reverse,
                                                     ExpertOp op) {
  return ExpertRule(reverse, op).apply();
}

void mlir::moe::detail::dropUnusedResults(ExpertOp op) {
  SmallVector<Type> types;
  SmallVector<Value> used;
  for (Value result : op->getResults())
    if (!result.use_empty()) {
      used.push_back(result);
      types.push_back(result.getType());
    }
  if (used.size() == op->getNumResults())
    return;
  OpBuilder b(op);
  auto smaller =
      ExpertOp::create(b, op.getLoc(), types, op.getRows(), op.getSizes(),
                       op.getPerExpert(), op.getShared(), op.getLayerAttr());
  smaller->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  smaller.getBody().takeBody(op.getBody());
  Block &body = smaller.getBody().front();
  Operation *end = body.getTerminator();
  llvm::BitVector unused(op->getNumResults());
  for (OpResult result : op->getResults())
    if (result.use_empty())
      unused.set(result.getResultNumber());
  end->eraseOperands(unused);
  for (auto [old, result] : llvm::zip_equal(used, smaller->getResults()))
    old.replaceAllUsesWith(result);
  op.erase();
  for (Operation &inner : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&inner))
      inner.erase();
}
