// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LinalgBody.h"

#include "ScalarRules.h"
#include "Sizes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// LinalgView
//===----------------------------------------------------------------------===//

LinalgView::LinalgView(linalg::LinalgOp op)
    : op(op), body(&op->getRegion(0).front()), operands(op->getOperands()),
      maps(op.getIndexingMapsArray()), loops(op.getIteratorTypesArray()),
      numInputs(op.getNumDpsInputs()) {}

BlockArgument LinalgView::getArgument(unsigned i) const {
  // linalg.map has none for what it writes.
  return i < body->getNumArguments() ? body->getArgument(i) : BlockArgument();
}

//===----------------------------------------------------------------------===//
// Recipe
//===----------------------------------------------------------------------===//

Recipe::Recipe(const LinalgView &view, ArrayRef<Input> first)
    : loc(view.body->getParentOp()->getLoc()), body(std::make_shared<Region>()),
      numLoops(view.loops.size()) {
  body->push_back(new Block());
  for (auto [tensor, map] : first)
    addInput(tensor, map);
  for (unsigned i = 0; i < view.operands.size(); ++i) {
    Value argument = addInput(view.operands[i], view.maps[i]);
    if (BlockArgument old = view.getArgument(i))
      mapping.map(old, argument);
    shapes.push_back({view.operands[i], view.maps[i]});
  }
  OpBuilder builder = getBuilder();
  for (Operation &op : view.body->without_terminator())
    ops.push_back(builder.clone(op, mapping));
}

OpBuilder Recipe::getBuilder() {
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToEnd(&body->front());
  return builder;
}

Value Recipe::addInput(Value tensor, AffineMap map) {
  inputs.push_back(tensor);
  maps.push_back(map);
  return body->front().addArgument(getElementTypeOrSelf(tensor.getType()), loc);
}

/// Brings the result's loops to the front, in the order of its dims.
void Recipe::permuteLoops(AffineMap map) {
  MLIRContext *context = loc.getContext();
  SmallVector<unsigned> order;
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      order.push_back(dim.getPosition());
  numSums = numLoops - order.size();
  for (unsigned loop = 0; loop < numLoops; ++loop)
    if (!llvm::is_contained(order, loop))
      order.push_back(loop);
  SmallVector<AffineExpr> places(numLoops);
  for (auto [place, loop] : llvm::enumerate(order))
    places[loop] = getAffineDimExpr(place, context);
  auto permute = [&](AffineMap old) {
    return old.replaceDimsAndSymbols(places, {}, numLoops, 0);
  };
  for (AffineMap &old : maps)
    old = permute(old);
  for (auto &shape : shapes)
    shape.second = permute(shape.second);
  resultMap = permute(map);
  body->walk([&](linalg::IndexOp index) {
    index.setDim(cast<AffineDimExpr>(places[index.getDim()]).getPosition());
  });
}

void Recipe::dropInputs() {
  Block &block = body->front();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (yielded.getDefiningOp() != &op && isOpTriviallyDead(&op))
      op.erase();
  for (unsigned i = inputs.size(); i-- > 0;)
    if (block.getArgument(i).use_empty() && block.getArgument(i) != yielded) {
      block.eraseArgument(i);
      inputs.erase(inputs.begin() + i);
      maps.erase(maps.begin() + i);
    }
}

/// Every loop must show in an operand. One that the body does not need any more
/// (it only says how often something is added) shows in a shape.
void Recipe::coverLoops() {
  for (unsigned loop = 0; loop < numLoops; ++loop) {
    auto has = [&](AffineMap map) { return map.isFunctionOfDim(loop); };
    if (has(resultMap) || llvm::any_of(maps, has))
      continue;
    for (auto [tensor, map] : shapes)
      if (has(map)) {
        inputs.push_back(tensor);
        maps.push_back(map);
        body->front().addArgument(getElementTypeOrSelf(tensor.getType()), loc);
        break;
      }
  }
}

void Recipe::finish(Value value, AffineMap map) {
  yielded = value;
  permuteLoops(map);
  dropInputs();
}

Value Recipe::getSameInput() const {
  auto argument = dyn_cast<BlockArgument>(yielded);
  if (!argument || argument.getOwner() != &body->front() || isSum())
    return {};
  unsigned i = argument.getArgNumber();
  return maps[i] == resultMap ? inputs[i] : Value();
}

Value Recipe::build(OpBuilder &builder, Location loc,
                    ArrayRef<OpFoldResult> sizes, Type element,
                    Value start) const {
  Recipe copy = *this;
  copy.body = std::make_shared<Region>();
  IRMapping mapping;
  body->cloneInto(copy.body.get(), mapping);
  copy.yielded = mapping.lookupOrDefault(yielded);
  size_t numNeeded = copy.inputs.size();
  copy.coverLoops();
  // Of shapes only the shape is read.
  for (size_t i = numNeeded; i < copy.inputs.size(); ++i)
    copy.inputs[i] = tensor::EmptyOp::create(
        builder, loc, getSizes(builder, loc, copy.inputs[i]),
        getElementTypeOrSelf(copy.inputs[i].getType()));
  Value out = start;
  if (!out)
    out =
        isSum()
            ? createZeros(builder, loc, sizes, element)
            : tensor::EmptyOp::create(builder, loc, sizes, element).getResult();
  SmallVector<utils::IteratorType> loops(numLoops,
                                         utils::IteratorType::parallel);
  for (unsigned i = numLoops - numSums; i < numLoops; ++i)
    loops[i] = utils::IteratorType::reduction;
  copy.maps.push_back(resultMap);
  auto generic =
      linalg::GenericOp::create(builder, loc, TypeRange(out.getType()),
                                copy.inputs, ValueRange{out}, copy.maps, loops);
  Region &region = generic.getRegion();
  region.takeBody(*copy.body);
  Block &block = region.front();
  Value sum = block.addArgument(element, loc);
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  Value result = convertFloat(inner, loc, copy.yielded, element);
  if (isSum())
    result = arith::AddFOp::create(inner, loc, sum, result);
  linalg::YieldOp::create(inner, loc, result);
  return generic.getResult(0);
}

//===----------------------------------------------------------------------===//
// BodyReverse
//===----------------------------------------------------------------------===//

BodyReverse::BodyReverse(Recipe &recipe, Value target)
    : recipe(recipe), builder(recipe.getBuilder()), target(target) {
  varied.insert(target);
  auto isVaried = [&](Value value) { return varied.contains(value); };
  for (Operation *op : recipe.getOps())
    if (llvm::any_of(op->getOperands(), isVaried))
      for (Value result : op->getResults())
        if (isa<FloatType>(result.getType()))
          varied.insert(result);
}

void BodyReverse::add(Value value, Value gradient) {
  if (!varied.contains(value))
    return;
  Location loc = gradient.getLoc();
  Value &sum = gradients[value];
  // The target's own gradient is added up wide.
  Type type = value.getType();
  if (value == target)
    type = sum ? Type(getWideType(type)) : gradient.getType();
  gradient = convertFloat(builder, loc, gradient, type);
  if (sum)
    gradient = arith::AddFOp::create(
        builder, loc, convertFloat(builder, loc, sum, type), gradient);
  sum = gradient;
}

LogicalResult BodyReverse::run() {
  auto isWanted = [&](Value value) { return varied.contains(value); };
  auto addTo = [&](Value value, Value gradient) { add(value, gradient); };
  for (Operation *op : llvm::reverse(recipe.getOps())) {
    Value gradient;
    for (Value result : op->getResults())
      if (gradients.contains(result))
        gradient = gradients.lookup(result);
    if (!gradient)
      continue;
    // What was widened has a gradient as wide, and is rounded once.
    if (isa<arith::ExtFOp>(op) && op->getOperand(0) == target)
      add(target, gradient);
    else if (failed(
                 differentiateScalar(builder, op, gradient, {isWanted, addTo})))
      return failure();
  }
  return success();
}
