// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;

Value mlir::moe::detail::gatherVector(OpBuilder &builder, Location loc,
                                      Value mine, int64_t ranks) {
  auto type = cast<RankedTensorType>(mine.getType());
  auto all =
      RankedTensorType::get({ranks, type.getDimSize(0)}, type.getElementType());
  return AllGatherOp::create(builder, loc, TypeRange(all), mine, ValueRange())
      ->getResult(0);
}

Value mlir::moe::detail::gatherIndex(OpBuilder &builder, Location loc,
                                     Value mine, int64_t ranks) {
  Value number =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), mine);
  Value vector =
      tensor::FromElementsOp::create(builder, loc, ValueRange{number});
  return gatherVector(builder, loc, vector, ranks);
}

/// `[N]` of one integer.
static Value createFilled(OpBuilder &builder, Location loc,
                          RankedTensorType type, int64_t value) {
  return arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(
          type, builder.getIntegerAttr(type.getElementType(), value)));
}

Value mlir::moe::detail::maxOverRows(OpBuilder &builder, Location loc,
                                     Value all) {
  auto type = cast<RankedTensorType>(all.getType());
  auto result = RankedTensorType::get(type.getShape().drop_front(),
                                      type.getElementType());
  // Counts and sizes are never negative.
  Value init = createFilled(builder, loc, result, 0);
  return linalg::ReduceOp::create(
             builder, loc, all, init, ArrayRef<int64_t>{0},
             [](OpBuilder &nested, Location nestedLoc, ValueRange args) {
               Value larger =
                   arith::MaxSIOp::create(nested, nestedLoc, args[0], args[1]);
               linalg::YieldOp::create(nested, nestedLoc, larger);
             })
      ->getResult(0);
}

Value mlir::moe::detail::extractIndex(OpBuilder &builder, Location loc,
                                      Value vector) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value element =
      tensor::ExtractOp::create(builder, loc, vector, ValueRange{zero});
  return arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                    element);
}

Value mlir::moe::detail::sumOfLowerRanks(OpBuilder &builder, Location loc,
                                         Value all) {
  auto type = cast<RankedTensorType>(all.getType());
  Value rank = RankOp::create(builder, loc, builder.getIndexType());
  Value init = createFilled(
      builder, loc, RankedTensorType::get({1}, type.getElementType()), 0);
  MLIRContext *context = builder.getContext();
  AffineMap sums = AffineMap::get(2, 0, getAffineDimExpr(1, context));
  AffineMap maps[] = {AffineMap::getMultiDimIdentityMap(2, context), sums};
  utils::IteratorType kinds[] = {utils::IteratorType::reduction,
                                 utils::IteratorType::parallel};
  auto sum = linalg::GenericOp::create(
      builder, loc, TypeRange(init.getType()), ValueRange{all},
      ValueRange{init}, maps, kinds,
      [&](OpBuilder &nested, Location nestedLoc, ValueRange args) {
        Value other = linalg::IndexOp::create(nested, nestedLoc, 0);
        Value lower = arith::CmpIOp::create(
            nested, nestedLoc, arith::CmpIPredicate::ult, other, rank);
        Value more = arith::AddIOp::create(nested, nestedLoc, args[1], args[0]);
        Value next =
            arith::SelectOp::create(nested, nestedLoc, lower, more, args[1]);
        linalg::YieldOp::create(nested, nestedLoc, next);
      });
  return extractIndex(builder, loc, sum.getResult(0));
}
