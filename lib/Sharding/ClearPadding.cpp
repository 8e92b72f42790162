// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Sharding/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CLEARPADDINGPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// The padded dispatch that rows are made of, or null.
static DispatchOp findDispatch(Value rows) {
  if (auto dispatch = rows.getDefiningOp<DispatchOp>())
    return dispatch;
  llvm::SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  options.inclusive = true;
  options.filter = [](Operation *op) { return !isa<ExchangeOp>(op); };
  if (!rows.getDefiningOp() || failed(getBackwardSlice(rows, &slice, options)))
    return {};
  for (Operation *op : llvm::reverse(slice))
    if (auto dispatch = dyn_cast<DispatchOp>(op))
      if (cast<ShapedType>(dispatch->getResult(0).getType()).getRank() == 3)
        return dispatch;
  return {};
}

/// `rows`, `[E, P, D]`, with zeros from place sizes[e] on.
static Value clear(OpBuilder &builder, Location loc, Value rows, Value sizes) {
  auto type = cast<RankedTensorType>(rows.getType());
  Value empty = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, rows),
      type.getElementType());
  if (empty.getType() != type)
    empty = tensor::CastOp::create(builder, loc, type, empty);
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(type.getElementType()));
  MLIRContext *context = builder.getContext();
  AffineMap identity = AffineMap::getMultiDimIdentityMap(3, context);
  AffineMap maps[] = {
      identity, AffineMap::get(3, 0, getAffineDimExpr(0, context)), identity};
  SmallVector<utils::IteratorType> kinds(3, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, TypeRange(type), ValueRange{rows, sizes},
             ValueRange{empty}, maps, kinds,
             [&](OpBuilder &b, Location nestedLoc, ValueRange args) {
               Value place = linalg::IndexOp::create(b, nestedLoc, 1);
               Value size = arith::IndexCastOp::create(
                   b, nestedLoc, b.getIndexType(), args[1]);
               Value isRow = arith::CmpIOp::create(
                   b, nestedLoc, arith::CmpIPredicate::slt, place, size);
               linalg::YieldOp::create(
                   b, nestedLoc,
                   ValueRange(arith::SelectOp::create(b, nestedLoc, isRow,
                                                      args[0], zero)));
             })
      .getResult(0);
}

namespace {

struct ClearPadding : public moe::impl::ClearPaddingPassBase<ClearPadding> {
  void runOnOperation() override {
    bool hasGradients = llvm::any_of(
        getOperation().getOps<func::FuncOp>(),
        [](func::FuncOp op) { return op->hasAttr(kBackwardAttrName); });
    if (!hasGradients)
      return;
    SmallVector<tensor::CollapseShapeOp> padded;
    getOperation()->walk([&](ExchangeOp op) {
      auto flat = op.getRows().getDefiningOp<tensor::CollapseShapeOp>();
      if (op.getDirection() == Direction::ToExperts && !hasBufferForm(op) &&
          flat && flat.getSrcType().getRank() == 3 &&
          !llvm::is_contained(padded, flat))
        padded.push_back(flat);
    });
    for (tensor::CollapseShapeOp flat : padded) {
      DispatchOp dispatch = findDispatch(flat.getSrc());
      if (!dispatch) {
        flat.emitOpError("expected padded rows of a moe.dispatch, to know "
                         "which ones gradients may read");
        return signalPassFailure();
      }
      OpBuilder builder(flat);
      flat.getSrcMutable().assign(
          clear(builder, flat.getLoc(), flat.getSrc(), dispatch.getSizes()));
    }
  }
};

} // namespace
