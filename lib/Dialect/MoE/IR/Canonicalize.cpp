// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Canonicalisations: operands that say nothing, results that nobody reads, and
// programs without tokens. Only the tensor form is rewritten.

#include "moira/Dialect/MoE/IR/HiddenPlaces.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::moe;

/// Whether every element of `value` is one constant that `test` accepts.
template <typename AttrT, typename TestT>
static bool isSplatOf(Value value, TestT test) {
  if (!value)
    return false;
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    value = fill.getInputs().front();
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return false;
  if (auto dense = dyn_cast<SplatElementsAttr>(constant))
    constant = dense.template getSplatValue<Attribute>();
  auto element = dyn_cast<AttrT>(constant);
  return element && test(element.getValue());
}

static bool isSplatOne(Value value) {
  return isSplatOf<FloatAttr>(
      value, [](const APFloat &number) { return number.isExactlyValue(1.0); });
}

static bool isSplatZero(Value value) {
  return isSplatOf<FloatAttr>(
      value, [](const APFloat &number) { return number.isPosZero(); });
}

static bool isSplatTrue(Value value) {
  return isSplatOf<IntegerAttr>(
      value, [](const APInt &number) { return number.isAllOnes(); });
}

static bool isNegativeInfinity(Value value) {
  return isSplatOf<FloatAttr>(value, [](const APFloat &number) {
    return number.isInfinity() && number.isNegative();
  });
}

/// Empties the operand segment `operands` of `op`.
static void dropOperands(PatternRewriter &rewriter, Operation *op,
                         MutableOperandRange operands) {
  rewriter.modifyOpInPlace(op, [&] { operands.clear(); });
}

static bool hasNoTokens(Value ids) {
  auto type = dyn_cast<RankedTensorType>(ids.getType());
  return type && type.getDimSize(0) == 0;
}

/// A tensor of `type` without defined elements; its dynamic dims are `dims`.
static Value createEmpty(PatternRewriter &rewriter, Location loc, Type type,
                         ValueRange dims = {}) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor::EmptyOp::create(rewriter, loc, tensor, dims);
}

static Value createZeros(PatternRewriter &rewriter, Location loc, Type type) {
  return arith::ConstantOp::create(
      rewriter, loc, rewriter.getZeroAttr(cast<RankedTensorType>(type)));
}

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

/// Drops operands of a gate that change nothing: a mask of all true, a bias of
/// zero, a threshold of -inf, and a top_k that K clips.
static LogicalResult dropGateOperands(GateOp op, PatternRewriter &rewriter) {
  if (isSplatTrue(op.getMask()))
    return dropOperands(rewriter, op, op.getMaskMutable()), success();
  if (isSplatZero(op.getBias()))
    return dropOperands(rewriter, op, op.getBiasMutable()), success();
  if (op.getThreshold() && isNegativeInfinity(op.getThreshold()))
    return dropOperands(rewriter, op, op.getThresholdMutable()), success();
  IntegerAttr topK;
  if (op.getTopK() && matchPattern(op.getTopK(), m_Constant(&topK)) &&
      topK.getInt() >= op.getNumChoices())
    return dropOperands(rewriter, op, op.getTopKMutable()), success();
  return failure();
}

LogicalResult mlir::moe::clipChoices(GateOp op, RewriterBase &rewriter) {
  int64_t experts = op.getNumExperts(), choices = op.getNumChoices();
  if (op.getNumResults() == 0 || choices <= experts)
    return failure();
  op.emitWarning("top-k ") << choices << " of " << experts << " experts means "
                           << experts;
  Location loc = op.getLoc();
  auto narrow = [&](ShapedType type) {
    return RankedTensorType::get({type.getDimSize(0), experts},
                                 type.getElementType());
  };
  Value rows = tensor::DimOp::create(rewriter, loc, op.getLogits(), 0);
  OpFoldResult tokens = rows;
  if (!op.getIdsType().isDynamicDim(0))
    tokens = rewriter.getIndexAttr(op.getIdsType().getDimSize(0));
  SmallVector<OpFoldResult> zeros(2, rewriter.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(2, rewriter.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes{tokens, rewriter.getIndexAttr(experts)};

  auto clipped = cast<GateOp>(rewriter.clone(*op));
  if (Value replay = op.getReplay())
    clipped.getReplayMutable().assign(tensor::ExtractSliceOp::create(
        rewriter, loc, replay, zeros, sizes, ones));
  if (clipped.getReplay())
    clipped->moveAfter(clipped.getReplay().getDefiningOp());
  SmallVector<Value> widened;
  Value unused = arith::ConstantIntOp::create(rewriter, loc, -1, 32);
  Value none = arith::ConstantOp::create(
      rewriter, loc,
      rewriter.getZeroAttr(op.getWeightsType().getElementType()));
  for (auto [i, fill] : llvm::enumerate(SmallVector<Value>{unused, none})) {
    auto type = cast<RankedTensorType>(op->getResult(i).getType());
    clipped->getResult(i).setType(narrow(type));
    SmallVector<Value> dynamic;
    if (type.isDynamicDim(0))
      dynamic.push_back(rows);
    Value wide = tensor::EmptyOp::create(rewriter, loc, type, dynamic);
    wide = linalg::FillOp::create(rewriter, loc, fill, wide).getResult(0);
    widened.push_back(tensor::InsertSliceOp::create(
        rewriter, loc, clipped->getResult(i), wide, zeros, sizes, ones));
  }
  rewriter.replaceOp(op, widened);
  return success();
}

/// `[0, K]` results of a gate without tokens.
static LogicalResult foldEmptyGate(GateOp op, PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getLogits()) ||
      !op.getIdsType().hasStaticShape() ||
      !op.getWeightsType().hasStaticShape())
    return failure();
  Value ids = createEmpty(rewriter, op.getLoc(), op.getIdsType());
  Value weights = createEmpty(rewriter, op.getLoc(), op.getWeightsType());
  rewriter.replaceOp(op, {ids, weights});
  return success();
}

void GateOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                         MLIRContext *) {
  patterns.add(dropGateOperands);
  patterns.add(foldEmptyGate);
  patterns.add(+[](GateOp op, PatternRewriter &rewriter) {
    return clipChoices(op, rewriter);
  });
}

static LogicalResult foldEmptyCount(CountOp op, PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getIds()))
    return failure();
  rewriter.replaceOp(
      op, createZeros(rewriter, op.getLoc(), op->getResult(0).getType()));
  return success();
}

void CountOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                          MLIRContext *) {
  patterns.add(foldEmptyCount);
}

static LogicalResult foldEmptyAssign(AssignOp op, PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getIds()) ||
      !op.getSlotsType().hasStaticShape())
    return failure();
  Value slots = createEmpty(rewriter, op.getLoc(), op.getSlotsType());
  Value sizes = createZeros(rewriter, op.getLoc(), op.getSizesType());
  Value bound = op.buildBound(rewriter, op.getLoc());
  rewriter.replaceOp(op, {slots, sizes, bound});
  return success();
}

/// A ragged assignment whose constant capacity no expert can reach.
static LogicalResult dropCapacity(AssignOp op, PatternRewriter &rewriter) {
  auto ids = cast<ShapedType>(op.getIds().getType());
  IntegerAttr capacity;
  if (op.getPadded() || !op.getCapacity() || !ids.hasStaticShape() ||
      !matchPattern(op.getCapacity(), m_Constant(&capacity)) ||
      capacity.getInt() < ids.getNumElements())
    return failure();
  dropOperands(rewriter, op, op.getCapacityMutable());
  return success();
}

void AssignOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *) {
  patterns.add(foldEmptyAssign);
  patterns.add(dropCapacity);
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

/// Weights of 1, in a dispatch or a combine.
template <typename OpT>
static LogicalResult dropUnitWeights(OpT op, PatternRewriter &rewriter) {
  if (!isSplatOne(op.getWeights()))
    return failure();
  dropOperands(rewriter, op, op.getWeightsMutable());
  return success();
}

/// Without slots no row is defined.
static LogicalResult foldEmptyDispatch(DispatchOp op,
                                       PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getSlots()))
    return failure();
  ReifiedRankedShapedTypeDims dims;
  if (failed(op.reifyResultShapes(rewriter, dims)))
    return failure();
  auto type = cast<RankedTensorType>(op.getRowsType());
  SmallVector<Value> dynamic;
  for (auto [d, dim] : llvm::enumerate(dims.front()))
    if (type.isDynamicDim(d))
      dynamic.push_back(
          getValueOrCreateConstantIndexOp(rewriter, op.getLoc(), dim));
  rewriter.replaceOp(op, createEmpty(rewriter, op.getLoc(), type, dynamic));
  return success();
}

void DispatchOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                             MLIRContext *) {
  patterns.add(dropUnitWeights<DispatchOp>);
  patterns.add(foldEmptyDispatch);
}

static LogicalResult foldEmptyCombine(CombineOp op, PatternRewriter &rewriter) {
  if (op.getNumResults() == 0 || !hasNoTokens(op.getSlots()) ||
      !op.getResultType().hasStaticShape())
    return failure();
  rewriter.replaceOp(op,
                     createEmpty(rewriter, op.getLoc(), op.getResultType()));
  return success();
}

void CombineOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                            MLIRContext *) {
  patterns.add(dropUnitWeights<CombineOp>);
  patterns.add(foldEmptyCombine);
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// Copies `operands` whose block argument is read, and marks the other
/// arguments in `dead`. The first `keep` operands stay in any case.
static SmallVector<Value> getReadOperands(OperandRange operands,
                                          ArrayRef<BlockArgument> arguments,
                                          llvm::BitVector &dead,
                                          unsigned keep = 0) {
  SmallVector<Value> read;
  for (auto [i, operand] : llvm::enumerate(operands)) {
    if (i < keep || !arguments[i].use_empty())
      read.push_back(operand);
    else
      dead.set(arguments[i].getArgNumber());
  }
  return read;
}

/// Removes results that nobody reads, then operands that the body does not.
static LogicalResult dropDeadOfExpert(ExpertOp op, PatternRewriter &rewriter) {
  Block &body = op.getBody().front();
  auto yield = cast<YieldOp>(body.getTerminator());
  SmallVector<Type> types;
  SmallVector<Value> yielded, results;
  for (auto [result, value] : llvm::zip(op.getResults(), yield.getOperands()))
    if (!result.use_empty()) {
      results.push_back(result);
      types.push_back(result.getType());
      yielded.push_back(value);
    }
  llvm::BitVector dead(body.getNumArguments());
  // The first rows say how many there are.
  SmallVector<Value> rows =
      getReadOperands(op.getRows(), op.getRowArgs(), dead, /*keep=*/1);
  SmallVector<Value> perExpert =
      getReadOperands(op.getPerExpert(), op.getPerExpertArgs(), dead);
  SmallVector<Value> shared =
      getReadOperands(op.getShared(), op.getSharedArgs(), dead);
  if (dead.none() && results.size() == op.getNumResults())
    return failure();
  if (results.empty()) // the op itself is dead
    return failure();
  std::optional<HiddenPlaces> known = getHiddenPlaces(op);
  HiddenPlaces places;
  if (known)
    for (auto [place, argument] : llvm::zip(*known, op.getPerExpertArgs()))
      if (!dead.test(argument.getArgNumber()))
        places.push_back(place);
  rewriter.modifyOpInPlace(yield, [&] { yield->setOperands(yielded); });
  rewriter.modifyOpInPlace(op, [&] { body.eraseArguments(dead); });
  auto smaller =
      ExpertOp::create(rewriter, op.getLoc(), types, rows, op.getSizes(),
                       perExpert, shared, op.getLayerAttr());
  smaller->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (known)
    setHiddenPlaces(smaller, places);
  rewriter.inlineRegionBefore(op.getBody(), smaller.getBody(),
                              smaller.getBody().end());
  for (auto [result, replacement] : llvm::zip(results, smaller.getResults()))
    rewriter.replaceAllUsesWith(result, replacement);
  rewriter.eraseOp(op);
  return success();
}

void ExpertOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *) {
  patterns.add(dropDeadOfExpert);
}

/// Biases of zero.
static LogicalResult dropZeroBias(GroupedMatmulOp op,
                                  PatternRewriter &rewriter) {
  if (op.getBias().empty() || !llvm::all_of(op.getBias(), isSplatZero))
    return failure();
  dropOperands(rewriter, op, op.getBiasMutable());
  return success();
}

/// A gather of all rows in order.
static LogicalResult dropIdentityGather(GroupedMatmulOp op,
                                        PatternRewriter &rewriter) {
  DenseIntElementsAttr index;
  if (!op.getGather() || !matchPattern(op.getGather(), m_Constant(&index)))
    return failure();
  auto rows = cast<ShapedType>(op.getRows().front().getType());
  if (rows.getDimSize(0) != index.getNumElements())
    return failure();
  for (auto [i, row] : llvm::enumerate(index.getValues<int32_t>()))
    if (row != static_cast<int64_t>(i))
      return failure();
  dropOperands(rewriter, op, op.getGatherMutable());
  return success();
}

/// Vectors, elements and scalars that the epilogue does not read.
static LogicalResult dropUnreadOperands(GroupedMatmulOp op,
                                        PatternRewriter &rewriter) {
  if (op.getContraction())
    return failure();
  Block &block = op.getEpilogue().front();
  unsigned argument = op.getNumAccumulators();
  for (MutableOperandRange operands :
       {op.getVectorsMutable(), op.getElementsMutable(),
        op.getScalarsMutable()}) {
    for (unsigned i = 0, e = operands.size(); i < e; ++i, ++argument) {
      if (!block.getArgument(argument).use_empty())
        continue;
      rewriter.modifyOpInPlace(op, [&] {
        operands.erase(i);
        block.eraseArgument(argument);
      });
      return success();
    }
  }
  return failure();
}

void GroupedMatmulOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *) {
  patterns.add(dropZeroBias);
  patterns.add(dropIdentityGather);
  patterns.add(dropUnreadOperands);
}
