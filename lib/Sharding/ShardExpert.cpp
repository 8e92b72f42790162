// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ShardExpert.h"

#include "Collectives.h"
#include "ShardBody.h"

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// Rewrites one expert: exchange, local expert, exchange.
class ExpertRewriter {
public:
  ExpertRewriter(RewriterBase &rewriter, ShardedExpert &plan)
      : rewriter(rewriter), plan(plan), expert(plan.op),
        placement(plan.placement), loc(expert.getLoc()) {}

  void rewrite(Matrices &matrices);

private:
  Value getCounts(Matrices &matrices);
  /// The counts that an exchange goes by.
  Value getMatrix(Value counts);
  Value getHomeBound();
  Value flatten(Value rows);
  Value unflatten(Value rows, RankedTensorType type);
  Value exchange(Direction direction, Value rows, Value bound,
                 RankedTensorType type);
  Value gather(Value weights, ShardAttr shard);
  SmallVector<Value> gatherAll();
  /// What the sums of `start`'s products start from in each slot; `perExpert`
  /// are the operands as they are there.
  Value maskStart(Value start, ValueRange perExpert);
  Value getOuter(BlockArgument argument, ValueRange perExpert);
  /// The expert on the groups of this rank, for rows `away`.
  SmallVector<Value> createWhole(ValueRange away);
  SmallVector<Value> createPartial(ValueRange away);
  SmallVector<Value> addCopies(ValueRange sums);

  RewriterBase &rewriter;
  ShardedExpert &plan;
  ExpertOp expert;
  PlacementAttr placement;
  Location loc;
  Value matrix, groups, bound, homeBound;
};

Value ExpertRewriter::getCounts(Matrices &matrices) {
  Value &counts = matrices[expert.getSizes()];
  if (counts)
    return counts;
  // As early as can be: other ranks wait for it.
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointAfterValue(expert.getSizes());
  auto type = RankedTensorType::get(
      {placement.getRanks(), placement.getExperts()}, rewriter.getI32Type());
  return counts = GatherCountsOp::create(rewriter, loc, TypeRange(type),
                                         expert.getSizes(), ValueRange(),
                                         expert.getLayerAttr())
                      ->getResult(0);
}

/// The assign that sized the rows of `expert`, or null.
static AssignOp findAssign(ExpertOp expert) {
  return expert.getSizes().getDefiningOp<AssignOp>();
}

Value ExpertRewriter::getMatrix(Value counts) {
  if (!expert.isPadded())
    return counts;
  // All rows of a padded group travel, as many on each rank.
  Value rows = expert.getRows().front();
  auto type = cast<RankedTensorType>(counts.getType());
  Value padded = tensor::DimOp::create(rewriter, loc, rows, 1);
  Value empty = tensor::EmptyOp::create(rewriter, loc, type.getShape(),
                                        type.getElementType());
  AssignOp assign = findAssign(expert);
  if (assign && !assign.getBlocks()) {
    Value size = arith::IndexCastOp::create(rewriter, loc,
                                            type.getElementType(), padded);
    return linalg::FillOp::create(rewriter, loc, size, empty).getResult(0);
  }
  // Ranks may have different numbers of blocks.
  Value all = gatherIndex(rewriter, loc, padded, placement.getRanks());
  MLIRContext *context = rewriter.getContext();
  AffineMap maps[] = {AffineMap::get(2, 0,
                                     {getAffineDimExpr(0, context),
                                      getAffineConstantExpr(0, context)},
                                     context),
                      AffineMap::getMultiDimIdentityMap(2, context)};
  SmallVector<utils::IteratorType> kinds(2, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             rewriter, loc, TypeRange(type), ValueRange{all}, ValueRange{empty},
             maps, kinds,
             [](OpBuilder &b, Location nestedLoc, ValueRange args) {
               Value size = arith::TruncIOp::create(b, nestedLoc,
                                                    b.getI32Type(), args[0]);
               linalg::YieldOp::create(b, nestedLoc, size);
             })
      .getResult(0);
}

Value ExpertRewriter::flatten(Value rows) {
  if (!expert.isPadded())
    return rows;
  return tensor::CollapseShapeOp::create(
      rewriter, loc, rows, ArrayRef<ReassociationIndices>{{0, 1}, {2}});
}

Value ExpertRewriter::unflatten(Value rows, RankedTensorType type) {
  if (!expert.isPadded())
    return rows;
  SmallVector<OpFoldResult> shape =
      getAsIndexOpFoldResult(rewriter.getContext(), type.getShape());
  if (type.isDynamicDim(1))
    shape[1] = tensor::DimOp::create(rewriter, loc, expert.getRows().front(), 1)
                   .getResult();
  return tensor::ExpandShapeOp::create(
      rewriter, loc, type, rows, ArrayRef<ReassociationIndices>{{0, 1}, {2}},
      shape);
}

Value ExpertRewriter::getHomeBound() {
  Value rows = expert.getRows().front();
  if (!expert.isPadded())
    if (auto dispatch = rows.getDefiningOp<DispatchOp>())
      return dispatch.getBound();
  Value count =
      tensor::DimOp::create(rewriter, loc, rows, expert.isPadded() ? 1 : 0);
  if (!expert.isPadded())
    return count;
  return arith::MulIOp::create(
      rewriter, loc, count,
      arith::ConstantIndexOp::create(rewriter, loc, placement.getExperts()));
}

Value ExpertRewriter::exchange(Direction direction, Value rows, Value limit,
                               RankedTensorType type) {
  return ExchangeOp::create(rewriter, loc, TypeRange(type), rows, matrix, limit,
                            /*chunk=*/Value(), /*chunks=*/Value(),
                            /*init=*/Value(), /*outs=*/ValueRange(), direction,
                            placement, Schedule::Equal, expert.getLayerAttr())
      ->getResult(0);
}

Value ExpertRewriter::gather(Value weights, ShardAttr shard) {
  int64_t copies = placement.getCopies();
  bool isCut = shard.getDim().has_value();
  // Each slot has what its group needs. Others may have the same: their
  // gradients are one sum.
  bool isAlone = (isCut || placement.getShards() == 1) &&
                 placement.getRanks() * placement.getSlots() ==
                     placement.getExperts() * placement.getShards();
  if (copies != 0 && (!isCut || placement.getPartsPerGroup() == 1) && isAlone)
    return weights;
  auto type = cast<RankedTensorType>(weights.getType());
  SmallVector<int64_t> shape(type.getShape());
  IntegerAttr dim;
  if (copies == 0)
    shape[0] = placement.getExperts();
  if (isCut) {
    dim = rewriter.getI64IntegerAttr(*shard.getDim() + 1);
    shape[*shard.getDim() + 1] *= placement.getPartsPerGroup();
  }
  // Elements that take turns stay in turn when shards are put together.
  int64_t parts = shard.getInterleaved() ? 1 : shard.getParts();
  return GatherWeightsOp::create(rewriter, loc, TypeRange(type.clone(shape)),
                                 weights, /*outs=*/ValueRange(), dim, parts,
                                 placement, expert.getLayerAttr())
      ->getResult(0);
}

SmallVector<Value> ExpertRewriter::gatherAll() {
  SmallVector<Value> operands;
  for (auto [weights, shard] : llvm::zip(expert.getPerExpert(), plan.shards))
    operands.push_back(gather(weights, shard));
  return operands;
}

SmallVector<Value> ExpertRewriter::createWhole(ValueRange away) {
  SmallVector<Type> types;
  for (Type type : expert.getResultTypes())
    types.push_back(placement.getCopies() == 0
                        ? type
                        : RankedTensorType::get(
                              {ShapedType::kDynamic,
                               cast<RankedTensorType>(type).getShape().back()},
                              getElementTypeOrSelf(type)));
  auto op = ExpertOp::create(rewriter, loc, types, away, groups, gatherAll(),
                             expert.getShared(), expert.getLayerAttr());
  rewriter.inlineRegionBefore(expert.getBody(), op.getBody(),
                              op.getBody().end());
  return SmallVector<Value>(op.getResults());
}

Value ExpertRewriter::getOuter(BlockArgument argument, ValueRange perExpert) {
  unsigned i = argument.getArgNumber() - expert.getRows().size();
  return i < expert.getPerExpert().size()
             ? perExpert[i]
             : expert.getShared()[i - expert.getPerExpert().size()];
}

Value ExpertRewriter::maskStart(Value start, ValueRange perExpert) {
  // `[slots, ...]`: the operand in the first group of shards, zero in others.
  Value operand = getOuter(cast<BlockArgument>(start), perExpert);
  auto inner = cast<RankedTensorType>(start.getType());
  SmallVector<int64_t> shape(inner.getShape());
  shape.insert(shape.begin(), placement.getSlots());
  Type element = inner.getElementType();
  Value shards =
      SlotShardsOp::create(rewriter, loc,
                           TypeRange(RankedTensorType::get(
                               {placement.getSlots()}, rewriter.getI32Type())),
                           ValueRange(), placement, expert.getLayerAttr())
          ->getResult(0);
  Value empty = tensor::EmptyOp::create(rewriter, loc, shape, element);
  Value first = arith::ConstantIntOp::create(rewriter, loc,
                                             placement.getPartsPerGroup(), 32);
  Value zero =
      arith::ConstantOp::create(rewriter, loc, rewriter.getZeroAttr(element));
  MLIRContext *context = rewriter.getContext();
  auto rank = static_cast<unsigned>(shape.size());
  AffineMap identity = AffineMap::getMultiDimIdentityMap(rank, context);
  bool isShared = cast<RankedTensorType>(operand.getType()).getRank() <
                  static_cast<int64_t>(rank);
  AffineMap maps[] = {isShared ? identity.dropResult(0) : identity,
                      AffineMap::get(rank, 0, getAffineDimExpr(0, context)),
                      identity};
  SmallVector<utils::IteratorType> kinds(rank, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             rewriter, loc, TypeRange(empty.getType()),
             ValueRange{operand, shards}, ValueRange{empty}, maps, kinds,
             [&](OpBuilder &b, Location nestedLoc, ValueRange args) {
               // An empty slot is -1, which is large here.
               Value isFirst = arith::CmpIOp::create(
                   b, nestedLoc, arith::CmpIPredicate::ult, args[1], first);
               Value value = arith::SelectOp::create(b, nestedLoc, isFirst,
                                                     args[0], zero);
               linalg::YieldOp::create(b, nestedLoc, value);
             })
      .getResult(0);
}

SmallVector<Value> ExpertRewriter::createPartial(ValueRange away) {
  const Separability &separability = *plan.separability;
  SmallVector<Value> operands = gatherAll(), starts;
  SmallVector<Type> types;
  for (LastProduct product : separability.getLastProducts()) {
    auto type = cast<RankedTensorType>(product.op->getResult(0).getType());
    types.push_back(type);
    if (product.start && !llvm::is_contained(starts, product.start)) {
      starts.push_back(product.start);
      operands.push_back(maskStart(product.start, operands));
    }
  }
  auto op = ExpertOp::create(rewriter, loc, types, away, groups, operands,
                             expert.getShared(), expert.getLayerAttr());
  OpBuilder::InsertionGuard guard(rewriter);
  Block *block = rewriter.createBlock(&op.getBody());
  IRMapping mapping;
  DenseMap<Value, Value> newStarts;
  auto addArgument = [&](Type type) { return block->addArgument(type, loc); };
  for (BlockArgument argument : expert.getRowArgs())
    mapping.map(argument, addArgument(argument.getType()));
  auto slice = [](Value operand) {
    auto type = cast<RankedTensorType>(operand.getType());
    return type.clone(type.getShape().drop_front());
  };
  for (auto [argument, operand] :
       llvm::zip(expert.getPerExpertArgs(), operands))
    mapping.map(argument, addArgument(slice(operand)));
  for (auto [start, operand] : llvm::zip(
           starts, ArrayRef(operands).drop_front(expert.getPerExpert().size())))
    newStarts[start] = addArgument(slice(operand));
  for (BlockArgument argument : expert.getSharedArgs())
    mapping.map(argument, addArgument(argument.getType()));
  int64_t size = separability.getHiddenSize() / placement.getCopies();
  SmallVector<Value> sums = clonePartialBody(rewriter, expert, separability,
                                             size, mapping, newStarts);
  YieldOp::create(rewriter, loc, sums);
  return SmallVector<Value>(op.getResults());
}

SmallVector<Value> ExpertRewriter::addCopies(ValueRange sums) {
  const Separability &separability = *plan.separability;
  IRMapping mapping;
  for (auto [product, copies] :
       llvm::zip(separability.getLastProducts(), sums)) {
    auto type = cast<RankedTensorType>(copies.getType());
    auto one = RankedTensorType::get(type.getShape().drop_front(),
                                     type.getElementType());
    SmallVector<OpFoldResult> offsets(3, rewriter.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(3, rewriter.getIndexAttr(1));
    SmallVector<OpFoldResult> sizes{rewriter.getIndexAttr(1), homeBound,
                                    rewriter.getIndexAttr(type.getDimSize(2))};
    SmallVector<Value> parts;
    for (int64_t c = 0; c < type.getDimSize(0); ++c) {
      offsets[0] = rewriter.getIndexAttr(c);
      parts.push_back(tensor::ExtractSliceOp::create(rewriter, loc, one, copies,
                                                     offsets, sizes, strides));
    }
    mapping.map(product.op->getResult(0),
                addInPairs(rewriter, loc, parts, ArrayRef(sizes).drop_front()));
  }
  for (auto [argument, rows] :
       llvm::zip(expert.getRowArgs(), expert.getRows())) {
    Value flat = flatten(rows);
    if (flat.getType() != argument.getType())
      flat = tensor::CastOp::create(rewriter, loc, argument.getType(), flat);
    mapping.map(argument, flat);
  }
  for (auto [argument, shared] :
       llvm::zip(expert.getSharedArgs(), expert.getShared()))
    mapping.map(argument, shared);
  return cloneTail(rewriter, expert, separability, homeBound, mapping);
}

void ExpertRewriter::rewrite(Matrices &matrices) {
  Value counts = getCounts(matrices);
  rewriter.setInsertionPoint(expert);
  if (placement.getCopies() == 0) {
    groups = expert.getSizes();
    rewriter.replaceOp(expert, createWhole(expert.getRows()));
    return;
  }
  matrix = getMatrix(counts);
  auto receive = ReceiveSizesOp::create(
      rewriter, loc,
      TypeRange{
          RankedTensorType::get({placement.getSlots()}, rewriter.getI32Type()),
          rewriter.getIndexType()},
      matrix, /*chunk=*/Value(), /*chunks=*/Value(), /*outs=*/ValueRange(),
      placement, Schedule::Equal, expert.getLayerAttr());
  groups = receive->getResult(0);
  bound = receive->getResult(1);
  homeBound = getHomeBound();
  SmallVector<Value> away;
  for (Value rows : expert.getRows()) {
    Value flat = flatten(rows);
    auto type = cast<RankedTensorType>(flat.getType());
    away.push_back(
        exchange(Direction::ToExperts, flat, bound,
                 type.clone({ShapedType::kDynamic, type.getDimSize(1)})));
  }
  bool isPartial = plan.isPartial();
  SmallVector<Value> results =
      isPartial ? createPartial(away) : createWhole(away);
  for (Value &result : results) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape(type.getShape());
    if (isPartial)
      shape.insert(shape.begin(), placement.getCopies());
    result =
        exchange(Direction::ToTokens, result, homeBound, type.clone(shape));
  }
  if (isPartial)
    results = addCopies(results);
  for (auto [result, old] : llvm::zip(results, expert.getResults())) {
    // Static numbers of rows are those of the program again.
    auto type = cast<RankedTensorType>(old.getType());
    auto flat = cast<RankedTensorType>(result.getType());
    int64_t rows = type.getDimSize(0);
    if (expert.isPadded())
      rows = type.isDynamicDim(1) ? ShapedType::kDynamic
                                  : rows * type.getDimSize(1);
    if (!ShapedType::isDynamic(rows))
      result = tensor::CastOp::create(
          rewriter, loc, flat.clone({rows, flat.getDimSize(1)}), result);
    result = unflatten(result, type);
  }
  rewriter.replaceOp(expert, results);
}

} // namespace

void mlir::moe::detail::rewriteExpert(RewriterBase &rewriter,
                                      ShardedExpert &expert,
                                      Matrices &matrices) {
  ExpertRewriter(rewriter, expert).rewrite(matrices);
}
