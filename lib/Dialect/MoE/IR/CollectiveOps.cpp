// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

bool mlir::moe::isCollective(Operation *op) {
  return isa<AllGatherOp, GatherCountsOp, ExchangeOp, GatherWeightsOp,
             AllReduceOp, ReduceWeightsOp, StartExchangeOp, StartGatherOp,
             StartAllReduceOp, StartReduceOp, WaitOp>(op);
}

/// Checks that `matrix` is `[W, E]` of `placement`.
static LogicalResult verifyMatrix(Operation *op, Value matrix,
                                  PlacementAttr placement) {
  return verifyShape(op, "counts", cast<ShapedType>(matrix.getType()),
                     {placement.getRanks(), placement.getExperts()});
}

/// Checks that rows move at all.
static LogicalResult verifyCopies(Operation *op, PlacementAttr placement) {
  if (placement.getCopies() == 0)
    return op->emitOpError("expected a placement with copies, got ")
           << placement;
  return success();
}

static LogicalResult verifyChunk(Operation *op, Value chunk, Value chunks) {
  if (!chunk != !chunks)
    return op->emitOpError("expected chunk and chunks together");
  return success();
}

/// What a static size or `otherwise` says of dim `dim`.
static OpFoldResult staticOr(OpBuilder &builder, ShapedType type, int64_t dim,
                             OpFoldResult otherwise) {
  if (type.isDynamicDim(dim))
    return otherwise;
  return builder.getIndexAttr(type.getDimSize(dim));
}

/// All dims of a static type.
static SmallVector<OpFoldResult> staticShape(OpBuilder &builder,
                                             ShapedType type) {
  return getAsIndexOpFoldResult(builder.getContext(), type.getShape());
}

//===----------------------------------------------------------------------===//
// AllGatherOp
//===----------------------------------------------------------------------===//

LogicalResult AllGatherOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // all_gather_c1
  auto mine = cast<ShapedType>(getMine().getType());
  ShapedType all = getDestinationType(*this, getOuts(), 0);
  if (!mine.hasStaticShape() || !all.hasStaticShape() || all.getRank() != 2 ||
      all.getDimSize(1) != mine.getDimSize(0) ||
      all.getElementType() != mine.getElementType())
    return emitOpError("expected a static [N] and a result [W, N] of its "
                       "element type, got ")
           << mine << " and " << all;
  return success();
}

void AllGatherOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
AllGatherOp::reifyResultShapes(OpBuilder &builder,
                               ReifiedRankedShapedTypeDims &reified) {
  reified.push_back(
      staticShape(builder, getDestinationType(*this, getOuts(), 0)));
  return success();
}

//===----------------------------------------------------------------------===//
// GatherCountsOp
//===----------------------------------------------------------------------===//

LogicalResult GatherCountsOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // gather_counts_c1
  auto sizes = cast<ShapedType>(getSizes().getType());
  ShapedType matrix = getDestinationType(*this, getOuts(), 0);
  if (!sizes.hasStaticShape() || !matrix.hasStaticShape() ||
      matrix.getRank() != 2 || matrix.getDimSize(1) != sizes.getDimSize(0) ||
      !matrix.getElementType().isInteger(32))
    return emitOpError("expected a static [E] and a result [W, E] of i32, got ")
           << sizes << " and " << matrix;
  return success();
}

void GatherCountsOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
  // The record is wanted even where nobody reads the matrix.
  effects.emplace_back(MemoryEffects::Write::get());
}

LogicalResult
GatherCountsOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &reified) {
  reified.push_back(
      staticShape(builder, getDestinationType(*this, getOuts(), 0)));
  return success();
}

//===----------------------------------------------------------------------===//
// SlotShardsOp
//===----------------------------------------------------------------------===//

LogicalResult SlotShardsOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // slot_shards_c1
  ShapedType shards = getDestinationType(*this, getOuts(), 0);
  if (shards.getRank() != 1 || !shards.getElementType().isInteger(32) ||
      shards.getDimSize(0) != getPlacement().getSlots())
    return emitOpError("expected a result of ")
           << getPlacement().getSlots() << " slots of i32, got " << shards;
  return success();
}

void SlotShardsOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
SlotShardsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &reified) {
  reified.push_back({builder.getIndexAttr(getPlacement().getSlots())});
  return success();
}

//===----------------------------------------------------------------------===//
// ReceiveSizesOp
//===----------------------------------------------------------------------===//

LogicalResult ReceiveSizesOp::verify() {
  // The bound is a number in both forms.
  if (getNumResults() == 0 || !getResults().back().getType().isIndex())
    return emitOpError("expected the bound as last result, got ")
           << getResultTypes();
  if (hasBufferForm(*this)) {
    if (getOuts().size() != 1 || getNumResults() != 1)
      return emitOpError("expected 1 out and the bound in buffer form, got ")
             << getOuts().size() << " outs and " << getNumResults()
             << " results";
  } else if (failed(verifyForm(*this, getOuts(), 1, 2))) {
    return failure();
  }
  // receive_sizes_c1
  if (failed(verifyMatrix(*this, getMatrix(), getPlacement())) ||
      failed(verifyShape(*this, "groups",
                         getDestinationType(*this, getOuts(), 0),
                         {getPlacement().getSlots()})))
    return failure();
  // receive_sizes_c2
  if (failed(verifyChunk(*this, getChunk(), getChunks())))
    return failure();
  // receive_sizes_c3
  return verifyCopies(*this, getPlacement());
}

void ReceiveSizesOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
ReceiveSizesOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &reified) {
  reified.push_back({builder.getIndexAttr(getPlacement().getSlots())});
  reified.push_back({});
  return success();
}

//===----------------------------------------------------------------------===//
// ExchangeOp
//===----------------------------------------------------------------------===//

LogicalResult ExchangeOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // exchange_c1
  auto rows = cast<ShapedType>(getRows().getType());
  ShapedType result = getDestinationType(*this, getOuts(), 0);
  int64_t copies =
      getDirection() == Direction::ToTokens ? getPlacement().getCopies() : 1;
  SmallVector<int64_t> shape{ShapedType::kDynamic, rows.getDimSize(1)};
  if (copies > 1)
    shape.insert(shape.begin(), copies);
  if (result.getElementType() != rows.getElementType())
    return emitOpError("expected a result of ")
           << rows.getElementType() << ", got " << result;
  if (failed(verifyShape(*this, "result", result, shape)))
    return failure();
  // exchange_c2
  if (failed(verifyMatrix(*this, getMatrix(), getPlacement())) ||
      failed(verifyCopies(*this, getPlacement())))
    return failure();
  // exchange_c3
  if (failed(verifyChunk(*this, getChunk(), getChunks())))
    return failure();
  if (getInit() &&
      (getDirection() != Direction::ToTokens || getInit().getType() != result))
    return emitOpError("expected an init of the result's type, for to_tokens "
                       "only, got ")
           << getInit().getType();
  return success();
}

void ExchangeOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
ExchangeOp::reifyResultShapes(OpBuilder &builder,
                              ReifiedRankedShapedTypeDims &reified) {
  ShapedType type = getDestinationType(*this, getOuts(), 0);
  int64_t rank = type.getRank();
  SmallVector<OpFoldResult> shape{staticOr(builder, type, rank - 2, getBound()),
                                  getDim(builder, getLoc(), getRows(), 1)};
  if (rank == 3)
    shape.insert(shape.begin(), builder.getIndexAttr(type.getDimSize(0)));
  reified.push_back(shape);
  return success();
}

//===----------------------------------------------------------------------===//
// MergeRowsOp
//===----------------------------------------------------------------------===//

LogicalResult MergeRowsOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // merge_rows_c1
  auto rows = cast<ShapedType>(getRows().getType());
  ShapedType result = getDestinationType(*this, getOuts(), 0);
  if (result.getElementType() != rows.getElementType() ||
      !getInit() != hasBufferForm(*this) ||
      (getInit() && getInit().getType() != result))
    return emitOpError("expected a result of ")
           << rows.getElementType() << " and an init of its type, got "
           << result;
  if (failed(verifyShape(*this, "result", result,
                         {ShapedType::kDynamic, rows.getDimSize(1)})))
    return failure();
  // merge_rows_c2
  return success(succeeded(verifyMatrix(*this, getMatrix(), getPlacement())) &&
                 succeeded(verifyCopies(*this, getPlacement())));
}

void MergeRowsOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
MergeRowsOp::reifyResultShapes(OpBuilder &builder,
                               ReifiedRankedShapedTypeDims &reified) {
  if (!getInit())
    return failure();
  reified.push_back({detail::getDim(builder, getLoc(), getInit(), 0),
                     detail::getDim(builder, getLoc(), getInit(), 1)});
  return success();
}

//===----------------------------------------------------------------------===//
// GatherWeightsOp
//===----------------------------------------------------------------------===//

LogicalResult GatherWeightsOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // gather_weights_c1, gather_weights_c2, gather_weights_c3
  return verifyShards(*this, cast<ShapedType>(getWeights().getType()),
                      getDestinationType(*this, getOuts(), 0), getDim(),
                      getParts(), getPlacement());
}

void GatherWeightsOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
GatherWeightsOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &reified) {
  ShapedType whole = getDestinationType(*this, getOuts(), 0);
  SmallVector<OpFoldResult> shape;
  for (int64_t d = 0; d < whole.getRank(); ++d)
    shape.push_back(
        staticOr(builder, whole, d,
                 getDim() && *getDim() == uint64_t(d)
                     ? OpFoldResult()
                     : detail::getDim(builder, getLoc(), getWeights(), d)));
  if (llvm::any_of(shape, [](OpFoldResult size) { return size.isNull(); }))
    return failure();
  reified.push_back(shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Asynchronous forms
//===----------------------------------------------------------------------===//

LogicalResult StartExchangeOp::verify() {
  if (failed(verifyMatrix(*this, getMatrix(), getPlacement())) ||
      failed(verifyCopies(*this, getPlacement())))
    return failure();
  auto home = cast<ShapedType>(getHome().getType());
  auto away = cast<ShapedType>(getAway().getType());
  int64_t copies =
      getDirection() == Direction::ToTokens ? getPlacement().getCopies() : 1;
  SmallVector<int64_t> shape{ShapedType::kDynamic, away.getDimSize(1)};
  if (copies > 1)
    shape.insert(shape.begin(), copies);
  if (home.getElementType() != away.getElementType())
    return emitOpError("expected rows of ")
           << home.getElementType() << " on both sides, got " << away;
  return verifyShape(*this, "home rows", home, shape);
}

/// A transfer reads and writes memory that others may name by other values.
static void addTransferEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

void StartExchangeOp::getEffects(Effects &effects) {
  addTransferEffects(effects);
}
void StartGatherOp::getEffects(Effects &effects) {
  addTransferEffects(effects);
}
void WaitOp::getEffects(Effects &effects) { addTransferEffects(effects); }
