// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Reverse.h"
#include "ScalarRules.h"
#include "Sizes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// dx = y (dy - sum of y dy over the dimension).
LogicalResult mlir::moe::detail::differentiateSoftmax(Reverse &reverse,
                                                      linalg::SoftmaxOp op) {
  if (!op.hasPureTensorSemantics())
    return op->emitOpError("expected tensors to differentiate");
  OpBuilder &b = reverse.getBuilder();
  Location loc = op.getLoc();
  Value y = op->getResult(0), dy = reverse.get(y);
  auto type = cast<RankedTensorType>(y.getType());
  Type element = type.getElementType(), wide = getWideType(element);
  auto rank = static_cast<unsigned>(type.getRank());
  auto dim = static_cast<unsigned>(op.getDimension());
  SmallVector<OpFoldResult> sizes = getSizes(b, loc, y), outer = sizes;
  outer.erase(outer.begin() + dim);
  AffineMap all = AffineMap::getMultiDimIdentityMap(rank, op.getContext());
  AffineMap kept = all.dropResult(dim);
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  loops[dim] = utils::IteratorType::reduction;
  Value zeros = createZeros(b, loc, outer, wide);
  auto widen = [&](OpBuilder &nested, Location at, Value value) {
    return convertFloat(nested, at, value, wide);
  };
  Value dots =
      linalg::GenericOp::create(
          b, loc, TypeRange(zeros.getType()), ValueRange{y, dy},
          ValueRange{zeros}, ArrayRef<AffineMap>{all, all, kept}, loops,
          [&](OpBuilder &nested, Location at, ValueRange args) {
            Value product =
                arith::MulFOp::create(nested, at, widen(nested, at, args[0]),
                                      widen(nested, at, args[1]));
            Value sum = arith::AddFOp::create(nested, at, args[2], product);
            linalg::YieldOp::create(nested, at, sum);
          })
          .getResult(0);
  loops[dim] = utils::IteratorType::parallel;
  Value empty = tensor::EmptyOp::create(b, loc, sizes, element);
  Value dx =
      linalg::GenericOp::create(
          b, loc, TypeRange(empty.getType()), ValueRange{y, dy, dots},
          ValueRange{empty}, ArrayRef<AffineMap>{all, all, kept, all}, loops,
          [&](OpBuilder &nested, Location at, ValueRange args) {
            Value difference = arith::SubFOp::create(
                nested, at, widen(nested, at, args[1]), args[2]);
            Value product = arith::MulFOp::create(
                nested, at, widen(nested, at, args[0]), difference);
            linalg::YieldOp::create(nested, at,
                                    convertFloat(nested, at, product, element));
          })
          .getResult(0);
  if (op.getInput().getType() != dx.getType())
    dx = tensor::CastOp::create(b, loc, op.getInput().getType(), dx);
  reverse.add(op.getInput(), dx);
  return success();
}
