// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two steps. From what the body yields back to its last products; what lies in
// between is the tail. Then the hidden dimension spreads from the products'
// operands to every value that shares it, until each is explained: by an op
// that treats it element by element, by a first product, or by an argument that
// can be cut. Where the op says which dims of its weights are hidden, it
// spreads from those.

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "HiddenViews.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

RankedTensorType mlir::moe::resizeHidden(Type type, HiddenPlace place,
                                         int64_t size) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[place.dim] = place.parts * size;
  return tensor.clone(shape);
}

bool mlir::moe::isUniform(Value value) {
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant.isSplat();
  return value.getDefiningOp<tensor::EmptyOp>() ||
         value.getDefiningOp<linalg::FillOp>();
}

void Separability::block(Operation *op, const Twine &why) {
  if (obstacle)
    return;
  obstacle = op;
  reason = why.str();
}

void Separability::blockCopies(Operation *op, const Twine &why) {
  if (copyObstacle)
    return;
  copyObstacle = op;
  copyReason = why.str();
}

Separability::Separability(ExpertOp expert) : expert(expert) {
  onRows.insert_range(expert.getRowArgs());
  onExperts.insert_range(expert.getPerExpertArgs());
  for (Operation &op : expert.getBody().front())
    for (llvm::DenseSet<Value> *known : {&onRows, &onExperts})
      if (llvm::any_of(op.getOperands(),
                       [&](Value value) { return known->contains(value); }))
        known->insert_range(op.getResults());
  Operation *yield = expert.getBody().front().getTerminator();
  if (std::optional<HiddenPlaces> known = getHiddenPlaces(expert)) {
    startFrom(*known);
  } else {
    for (Value value : yield->getOperands())
      findLastProducts(value);
    if (last.empty())
      block(yield, "no product with an expert's own weight comes before it");
  }
  for (LastProduct &product : last)
    if (!obstacle)
      traceStart(product);
  while (!obstacle && !worklist.empty()) {
    follow(worklist.pop_back_val());
  }
}

void Separability::startFrom(ArrayRef<std::optional<HiddenPlace>> known) {
  isKnown = true;
  // Sums for tokens' ranks to add are found before differentiation.
  blockCopies(expert, "it is part of a gradient");
  for (auto [argument, place] : llvm::zip(expert.getPerExpertArgs(), known)) {
    if (!place)
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    int64_t size = type.getDimSize(place->dim) / place->parts;
    if (hidden != 0 && hidden != size)
      return block(expert, "its operands have hidden dimensions of " +
                               Twine(hidden) + " and " + Twine(size) +
                               " elements");
    hidden = size;
    mark(argument, *place, expert);
  }
  if (hidden == 0)
    block(expert, "none of its operands has the hidden dimension");
}

//===----------------------------------------------------------------------===//
// Last products
//===----------------------------------------------------------------------===//

/// Whether `op` adds products to what it starts from.
static bool isSumOfProducts(linalg::LinalgOp op) {
  if (linalg::isaContractionOpInterface(op))
    return true;
  auto fma = op.getBlock()
                 ->getTerminator()
                 ->getOperand(0)
                 .getDefiningOp<math::FmaOp>();
  return fma && op.getNumDpsInits() == 1 &&
         fma.getC() == op.getBlock()->getArguments().back();
}

/// Whether `op` adds something to what it starts from.
static bool isSum(linalg::LinalgOp op) {
  if (isSumOfProducts(op))
    return true;
  if (op.getNumDpsInits() != 1)
    return false;
  Value sum = op.getBlock()->getArguments().back();
  auto add = op.getBlock()
                 ->getTerminator()
                 ->getOperand(0)
                 .getDefiningOp<arith::AddFOp>();
  return add && sum.hasOneUse() && (add.getLhs() == sum || add.getRhs() == sum);
}

/// The result of an operand's map that is this loop's dim, and nothing else is
/// of it.
static std::optional<unsigned> getOnlyPosition(AffineMap map, unsigned loop) {
  std::optional<unsigned> position =
      map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
  if (!position || map.dropResult(*position).isFunctionOfDim(loop))
    return std::nullopt;
  return position;
}

void Separability::addSum(linalg::LinalgOp op, unsigned loop,
                          HiddenPlace place) {
  if (llvm::any_of(last, [&](LastProduct &known) {
        return known.op == op && known.loop == loop;
      }))
    return;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || type.hasStaticShape())
    return; // one over rows too, of which each shard has its own
  if (place.parts != 1 || op.getNumReductionLoops() != 1 || !isSum(op))
    return block(op, "it reduces over the hidden dimension");
  last.push_back({op, loop, {}});
  for (OpOperand *operand : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    if (!map.isFunctionOfDim(loop))
      continue;
    std::optional<unsigned> position = getOnlyPosition(map, loop);
    if (!position)
      return block(op, "it does not read the hidden dimension element by "
                       "element");
    markOperand(*operand, {*position});
  }
}

bool Separability::isProduct(linalg::LinalgOp op) const {
  if (op.getNumDpsInputs() != 2 || op.getNumReductionLoops() != 1)
    return false;
  Value a = op.getDpsInputs()[0], b = op.getDpsInputs()[1];
  auto isPair = [&](Value rows, Value weight) {
    return onRows.contains(rows) && !onRows.contains(weight) &&
           onExperts.contains(weight);
  };
  return (isPair(a, b) || isPair(b, a)) && isSumOfProducts(op);
}

void Separability::findLastProducts(Value value) {
  Operation *op = value.getDefiningOp();
  // All rows have one number; where it is read does not matter.
  if (!op || isa<tensor::DimOp>(op) || !tail.insert(op))
    return;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    if (isProduct(linalgOp)) {
      tail.remove(op);
      if (llvm::none_of(last, [&](LastProduct &known) {
            return known.op.getOperation() == op;
          }))
        startFrom(linalgOp);
      return;
    }
  llvm::SetVector<Value> inputs;
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  inputs.insert(op->operand_begin(), op->operand_end());
  for (Value input : inputs) {
    if (llvm::is_contained(expert.getPerExpertArgs(), input))
      blockCopies(op, "it reads an expert's parameter after the last product");
    else
      findLastProducts(input);
  }
}

void Separability::startFrom(linalg::LinalgOp op) {
  SmallVector<unsigned> loops;
  op.getReductionDims(loops);
  LastProduct product{op, loops.front(), {}};
  int64_t size = op.getStaticLoopRanges()[product.loop];
  if (ShapedType::isDynamic(size))
    return block(op, "its sum has a dynamic length");
  if (hidden != 0 && hidden != size)
    return block(op, "it sums over " + Twine(size) +
                         " elements, another last product over " +
                         Twine(hidden));
  hidden = size;
  last.push_back(product);
  auto sums = cast<RankedTensorType>(op->getResult(0).getType());
  if (sums.getRank() != 2 || !sums.isDynamicDim(0) || sums.isDynamicDim(1))
    blockCopies(op, "its result is no row of static length per row");
  for (OpOperand *operand : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    std::optional<unsigned> position =
        map.getResultPosition(getAffineDimExpr(product.loop, op->getContext()));
    if (!position)
      return block(op, "its sum runs over no dimension of operand #" +
                           Twine(operand->getOperandNumber()));
    mark(operand->get(), {*position}, op);
  }
}

/// The operand that `op` copies, element by element, or null.
static Value getCopied(Operation *op) {
  if (isa<tensor::CastOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
          tensor::ExtractSliceOp, arith::ExtFOp>(op))
    return op->getOperand(0);
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.isAllParallelLoops() ||
      linalgOp.getNumDpsInputs() != 1 || op->getNumResults() != 1)
    return {};
  Value yielded = linalgOp.getBlock()->getTerminator()->getOperand(0);
  if (auto ext = yielded.getDefiningOp<arith::ExtFOp>())
    yielded = ext.getIn();
  if (yielded != linalgOp.getBlock()->getArgument(0))
    return {};
  return linalgOp.getDpsInputs()[0];
}

void Separability::traceStart(LastProduct &product) {
  Value init = product.op.getDpsInits()[0];
  while (Operation *op = init.getDefiningOp()) {
    if (matchPattern(init, m_PosZeroFloat()))
      return;
    Value copied = getCopied(op);
    if (!copied)
      return blockCopies(product.op,
                         "its sums start from neither zero nor a bias");
    init = copied;
  }
  if (llvm::is_contained(expert.getRowArgs(), init))
    return blockCopies(product.op,
                       "its sums start from neither zero nor a bias");
  product.start = cast<BlockArgument>(init);
}

//===----------------------------------------------------------------------===//
// The hidden dimension
//===----------------------------------------------------------------------===//

void Separability::mark(Value value, HiddenPlace place, Operation *by) {
  auto [it, inserted] = places.try_emplace(value, place);
  if (!inserted && !(it->second == place))
    return block(by, "it needs the hidden dimension of a value in two places");
  if (!inserted)
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (!isKnown && llvm::is_contained(expert.getRowArgs(), argument))
      return block(by, "the dimension that it sums over is that of the rows");
    if (llvm::is_contained(expert.getSharedArgs(), argument))
      return block(by, "its operand is shared by the experts, so that it "
                       "cannot be cut");
  }
  worklist.push_back(value);
}

void Separability::markOperand(OpOperand &operand, HiddenPlace place) {
  if (isUniform(operand.get()))
    uniformUses[&operand] = place;
  else
    mark(operand.get(), place, operand.getOwner());
}

void Separability::follow(Value value) {
  if (Operation *op = value.getDefiningOp())
    visit(op, value, nullptr);
  for (OpOperand &use : value.getUses())
    if (!obstacle)
      visit(use.getOwner(), value, &use);
}

void Separability::visitLinalg(linalg::LinalgOp op, unsigned loop,
                               HiddenPlace place) {
  if (op.getIteratorTypesArray()[loop] != utils::IteratorType::parallel) {
    if (isKnown)
      return addSum(op, loop, place);
    bool isLast = llvm::any_of(last, [&](LastProduct &product) {
      return product.op == op && product.loop == loop;
    });
    return isLast ? void() : block(op, "it reduces over the hidden dimension");
  }
  for (OpOperand &operand : op->getOpOperands()) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!map.isFunctionOfDim(loop))
      continue;
    std::optional<unsigned> position = getOnlyPosition(map, loop);
    if (!position)
      return block(op, "it does not read the hidden dimension element by "
                       "element");
    HiddenPlace here = place;
    here.dim = *position;
    markOperand(operand, here);
    if (op.isDpsInit(&operand))
      mark(op.getTiedOpResult(&operand), here, op);
  }
  // Bodies that ask where they are, or read tensors by themselves.
  op->walk([&](Operation *inner) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      if (index.getDim() == loop)
        block(op, "it computes with the place in the hidden dimension");
      return;
    }
    if (inner != op.getOperation() &&
        llvm::any_of(inner->getOperandTypes(),
                     [](Type type) { return isa<ShapedType>(type); }))
      block(op, "its body reads tensors");
  });
}

void Separability::visit(Operation *op, Value value, OpOperand *operand) {
  HiddenPlace place = places.lookup(value);
  Value result = op->getNumResults() == 1 ? op->getResult(0) : Value();
  // Slices and reshapes: to the result, or back to the source.
  auto markThrough = [&](std::optional<HiddenPlace> there) {
    if (!there)
      return block(op, "it takes the hidden dimension apart");
    if (operand)
      return mark(result, *there, op);
    markOperand(op->getOpOperand(0), *there);
  };
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    OpOperand *use =
        operand ? operand : linalgOp.getTiedOpOperand(cast<OpResult>(value));
    auto loop = dyn_cast<AffineDimExpr>(
        linalgOp.getMatchingIndexingMap(use).getResult(place.dim));
    if (!loop)
      return block(op, "it does not read the hidden dimension element by "
                       "element");
    return visitLinalg(linalgOp, loop.getPosition(), place);
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return markThrough(throughSlice(slice, place, hidden, operand != nullptr));
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    auto through = operand ? splitPlace : mergePlace;
    return markThrough(through(expand.getResultType(),
                               expand.getReassociationIndices(), place));
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    auto through = operand ? mergePlace : splitPlace;
    return markThrough(through(collapse.getSrcType(),
                               collapse.getReassociationIndices(), place));
  }
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    if (operand && dim.getConstantIndex() == place.dim)
      block(op, "it reads the size of the hidden dimension");
    return;
  }
  if (isa<tensor::CastOp>(op) ||
      (result && OpTrait::hasElementwiseMappableTraits(op))) {
    for (OpOperand &other : op->getOpOperands())
      if (isa<RankedTensorType>(other.get().getType()))
        markOperand(other, place);
    return mark(result, place, op);
  }
  if (isa<YieldOp>(op))
    return isKnown ? void() : block(op, "it yields the hidden dimension");
  block(op, "it does not treat the hidden dimension element by element");
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

void Separability::print(raw_ostream &os) const {
  if (obstacle) {
    os << "not separable: '" << obstacle->getName() << "': " << reason << "\n";
    return;
  }
  os << "hidden " << hidden << "\n";
  auto body = const_cast<Separability *>(this)->expert;
  for (auto [i, arg] : llvm::enumerate(body.getPerExpertArgs())) {
    os << "operand #" << i << ": ";
    std::optional<HiddenPlace> place = getPlace(arg);
    if (!place) {
      os << "whole\n";
      continue;
    }
    os << "dim " << place->dim;
    if (place->parts > 1)
      os << ", " << place->parts << " parts"
         << (place->interleaved ? ", interleaved" : "");
    os << "\n";
  }
  if (copyObstacle)
    os << "copies cannot be added: '" << copyObstacle->getName()
       << "': " << copyReason << "\n";
}
