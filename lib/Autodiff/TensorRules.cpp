// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that move elements: their transposes move them back.

#include "Reverse.h"
#include "ScalarRules.h"
#include "Sizes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// The rules of one op whose only result has the gradient `d`.
class TensorRule {
public:
  TensorRule(Reverse &reverse, Operation *op)
      : reverse(reverse), b(reverse.getBuilder()), op(op), loc(op->getLoc()) {}

  std::optional<LogicalResult> apply();

private:
  void apply(tensor::CastOp op);
  LogicalResult apply(tensor::ExtractSliceOp op);
  LogicalResult applyToCopies(tensor::ExtractSliceOp op);
  void apply(tensor::InsertSliceOp op);
  void apply(tensor::ExpandShapeOp op);
  void apply(tensor::CollapseShapeOp op);
  void apply(tensor::ConcatOp op);
  LogicalResult apply(tensor::PadOp op);
  void apply(tensor::ExtractOp op);
  void apply(tensor::InsertOp op);
  void apply(tensor::FromElementsOp op);
  void apply(tensor::SplatOp op);

  /// The gradient with the op's own result type.
  Value getGradient() { return reverse.get(op->getResult(0)); }
  Value zerosLike(Value tensor) {
    return createZeros(b, loc, getSizes(b, loc, tensor),
                       getElementTypeOrSelf(tensor.getType()));
  }
  /// `gradient` with the type of `value`, which it may know more or less of.
  void give(Value value, Value gradient) {
    if (gradient.getType() != value.getType())
      gradient = tensor::CastOp::create(b, loc, value.getType(), gradient);
    reverse.add(value, gradient);
  }

  Reverse &reverse;
  OpBuilder &b;
  Operation *op;
  Location loc;
};

} // namespace

void TensorRule::apply(tensor::CastOp cast) {
  give(cast.getSource(), getGradient());
}

/// Rows that came back in copies are added up, copy by copy, so each copy has
/// the gradient of the sum; the exchange carries it once.
LogicalResult TensorRule::applyToCopies(tensor::ExtractSliceOp slice) {
  Value d = getGradient();
  for (Operation *user : slice.getSource().getUsers()) {
    auto other = dyn_cast<tensor::ExtractSliceOp>(user);
    if (!other || other.getType() != slice.getType() ||
        reverse.get(other.getResult()) != d)
      return slice.emitOpError("expected the copies of an exchange to be "
                               "added up, to differentiate");
  }
  if (isConstantIntValue(slice.getMixedOffsets().front(), 0))
    reverse.add(slice.getSource(), d);
  return success();
}

LogicalResult TensorRule::apply(tensor::ExtractSliceOp slice) {
  Value source = slice.getSource();
  if (source.getDefiningOp<ExchangeOp>() &&
      cast<RankedTensorType>(source.getType()).getRank() == 3)
    return applyToCopies(slice);
  give(source,
       tensor::InsertSliceOp::create(
           b, loc, getGradient(), zerosLike(source), slice.getMixedOffsets(),
           slice.getMixedSizes(), slice.getMixedStrides()));
  return success();
}

void TensorRule::apply(tensor::InsertSliceOp insert) {
  Value d = getGradient();
  if (reverse.isWanted(insert.getSource()))
    give(insert.getSource(),
         tensor::ExtractSliceOp::create(
             b, loc, cast<RankedTensorType>(insert.getSource().getType()), d,
             insert.getMixedOffsets(), insert.getMixedSizes(),
             insert.getMixedStrides()));
  if (!reverse.isWanted(insert.getDest()))
    return;
  Value zeros = zerosLike(insert.getSource());
  if (zeros.getType() != insert.getSource().getType())
    zeros = tensor::CastOp::create(b, loc, insert.getSource().getType(), zeros);
  give(insert.getDest(), tensor::InsertSliceOp::create(
                             b, loc, zeros, d, insert.getMixedOffsets(),
                             insert.getMixedSizes(), insert.getMixedStrides()));
}

void TensorRule::apply(tensor::ExpandShapeOp expand) {
  give(expand.getSrc(),
       tensor::CollapseShapeOp::create(
           b, loc, cast<RankedTensorType>(expand.getSrc().getType()),
           getGradient(), expand.getReassociationIndices()));
}

void TensorRule::apply(tensor::CollapseShapeOp collapse) {
  give(collapse.getSrc(),
       tensor::ExpandShapeOp::create(
           b, loc, cast<RankedTensorType>(collapse.getSrc().getType()),
           getGradient(), collapse.getReassociationIndices(),
           getSizes(b, loc, collapse.getSrc())));
}

void TensorRule::apply(tensor::ConcatOp concat) {
  Value d = getGradient();
  auto dim = static_cast<int64_t>(concat.getDim());
  int64_t rank = cast<RankedTensorType>(d.getType()).getRank();
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)),
      strides(rank, b.getIndexAttr(1));
  auto add = [&](OpFoldResult l, OpFoldResult r) -> OpFoldResult {
    std::optional<int64_t> x = getConstantIntValue(l),
                           y = getConstantIntValue(r);
    if (x && y)
      return b.getIndexAttr(*x + *y);
    return arith::AddIOp::create(b, loc,
                                 getValueOrCreateConstantIndexOp(b, loc, l),
                                 getValueOrCreateConstantIndexOp(b, loc, r))
        .getResult();
  };
  for (Value input : concat.getInputs()) {
    SmallVector<OpFoldResult> sizes = getSizes(b, loc, input);
    if (reverse.isWanted(input))
      give(input, tensor::ExtractSliceOp::create(
                      b, loc, cast<RankedTensorType>(input.getType()), d,
                      offsets, sizes, strides));
    offsets[dim] = add(offsets[dim], sizes[dim]);
  }
}

LogicalResult TensorRule::apply(tensor::PadOp pad) {
  Value padding = pad.getConstantPaddingValue();
  if (!padding || reverse.isWanted(padding))
    return pad.emitOpError("expected padding with a constant to "
                           "differentiate");
  Value source = pad.getSource();
  SmallVector<OpFoldResult> strides(pad.getSourceType().getRank(),
                                    b.getIndexAttr(1));
  give(source, tensor::ExtractSliceOp::create(
                   b, loc, pad.getSourceType(), getGradient(),
                   pad.getMixedLowPad(), getSizes(b, loc, source), strides));
  return success();
}

void TensorRule::apply(tensor::ExtractOp extract) {
  give(extract.getTensor(),
       tensor::InsertOp::create(b, loc, getGradient(),
                                zerosLike(extract.getTensor()),
                                extract.getIndices()));
}

void TensorRule::apply(tensor::InsertOp insert) {
  Value d = getGradient();
  if (reverse.isWanted(insert.getScalar()))
    reverse.add(insert.getScalar(),
                tensor::ExtractOp::create(b, loc, d, insert.getIndices()));
  if (!reverse.isWanted(insert.getDest()))
    return;
  Value zero = createFloat(b, loc, insert.getScalar().getType(), 0);
  give(insert.getDest(),
       tensor::InsertOp::create(b, loc, zero, d, insert.getIndices()));
}

void TensorRule::apply(tensor::FromElementsOp from) {
  Value d = getGradient();
  auto type = cast<RankedTensorType>(d.getType());
  for (auto [i, element] : llvm::enumerate(from.getElements())) {
    if (!reverse.isWanted(element))
      continue;
    SmallVector<Value> indices(type.getRank());
    auto rest = static_cast<int64_t>(i);
    for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
      indices[dim] =
          arith::ConstantIndexOp::create(b, loc, rest % type.getDimSize(dim));
      rest /= type.getDimSize(dim);
    }
    reverse.add(element, tensor::ExtractOp::create(b, loc, d, indices));
  }
}

void TensorRule::apply(tensor::SplatOp splat) {
  Value d = getGradient();
  auto rank =
      static_cast<unsigned>(cast<RankedTensorType>(d.getType()).getRank());
  Type wide = getWideType(splat.getInput().getType());
  AffineMap maps[] = {AffineMap::getMultiDimIdentityMap(rank, op->getContext()),
                      AffineMap::get(rank, 0, op->getContext())};
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::reduction);
  Value zero = createZeros(b, loc, {}, wide);
  reverse.add(splat.getInput(),
              linalg::GenericOp::create(
                  b, loc, TypeRange(zero.getType()), ValueRange{d},
                  ValueRange{zero}, maps, loops,
                  [&](OpBuilder &nested, Location at, ValueRange args) {
                    Value sum = arith::AddFOp::create(
                        nested, at, args[1],
                        convertFloat(nested, at, args[0], wide));
                    linalg::YieldOp::create(nested, at, sum);
                  })
                  .getResult(0));
}

std::optional<LogicalResult> TensorRule::apply() {
  using Result = std::optional<LogicalResult>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case<tensor::CastOp, tensor::InsertSliceOp, tensor::ExpandShapeOp,
            tensor::CollapseShapeOp, tensor::ConcatOp, tensor::ExtractOp,
            tensor::InsertOp, tensor::FromElementsOp, tensor::SplatOp>(
          [&](auto concrete) -> Result {
            apply(concrete);
            return success();
          })
      .Case<tensor::ExtractSliceOp, tensor::PadOp>(
          [&](auto concrete) -> Result { return apply(concrete); })
      .Default([](Operation *) -> Result { return std::nullopt; });
}

std::optional<LogicalResult>
mlir::moe::detail::differentiateTensor(Reverse &reverse, Operation *op) {
  return TensorRule(reverse, op).apply();
}
