// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Sizes.h"

#include "ScalarRules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe::detail;

static Value toValue(OpBuilder &builder, Location loc, OpFoldResult size) {
  if (auto value = dyn_cast<Value>(size))
    return value;
  return arith::ConstantIndexOp::create(builder, loc,
                                        *getConstantIntValue(size));
}

static OpFoldResult combine(OpBuilder &builder, Location loc, OpFoldResult l,
                            OpFoldResult r, bool multiply) {
  std::optional<int64_t> a = getConstantIntValue(l), b = getConstantIntValue(r);
  if (a && b)
    return builder.getIndexAttr(multiply ? *a * *b : *a + *b);
  Value x = toValue(builder, loc, l), y = toValue(builder, loc, r);
  if (multiply)
    return arith::MulIOp::create(builder, loc, x, y).getResult();
  return arith::AddIOp::create(builder, loc, x, y).getResult();
}

/// The size of a dim of the only or given result of `op`; null if unknown.
static OpFoldResult getSizeOfResult(OpBuilder &builder, Location loc,
                                    OpResult result, int64_t dim) {
  Operation *op = result.getOwner();
  auto sizeOf = [&](Value tensor) {
    return getSize(builder, loc, tensor, dim);
  };
  if (auto destination = dyn_cast<DestinationStyleOpInterface>(op))
    return sizeOf(destination.getTiedOpOperand(result)->get());
  return llvm::TypeSwitch<Operation *, OpFoldResult>(op)
      .Case([&](tensor::EmptyOp empty) { return empty.getMixedSizes()[dim]; })
      .Case([&](tensor::CastOp cast) { return sizeOf(cast.getSource()); })
      .Case([&](tensor::InsertOp insert) { return sizeOf(insert.getDest()); })
      .Case([&](tensor::InsertSliceOp insert) {
        return sizeOf(insert.getDest());
      })
      .Case([&](tensor::ExtractSliceOp slice) -> OpFoldResult {
        // Dims of size 1 may be dropped.
        llvm::SmallBitVector dropped = slice.getDroppedDims();
        int64_t left = dim;
        for (auto [d, size] : llvm::enumerate(slice.getMixedSizes()))
          if (!dropped.test(d) && left-- == 0)
            return size;
        return {};
      })
      .Case([&](tensor::ExpandShapeOp expand) {
        return expand.getMixedOutputShape()[dim];
      })
      .Case([&](tensor::CollapseShapeOp collapse) {
        OpFoldResult size = builder.getIndexAttr(1);
        for (int64_t d : collapse.getReassociationIndices()[dim])
          size = combine(builder, loc, size,
                         getSize(builder, loc, collapse.getSrc(), d),
                         /*multiply=*/true);
        return size;
      })
      .Case([&](tensor::PadOp pad) {
        OpFoldResult size = combine(builder, loc, pad.getMixedLowPad()[dim],
                                    sizeOf(pad.getSource()), false);
        return combine(builder, loc, size, pad.getMixedHighPad()[dim], false);
      })
      .Case([&](tensor::ConcatOp concat) {
        if (static_cast<int64_t>(concat.getDim()) != dim)
          return sizeOf(concat.getInputs().front());
        OpFoldResult size = builder.getIndexAttr(0);
        for (Value input : concat.getInputs())
          size = combine(builder, loc, size, sizeOf(input), false);
        return size;
      })
      .Case([&](ReifyRankedShapedTypeOpInterface shaped) -> OpFoldResult {
        ReifiedRankedShapedTypeDims shapes;
        if (failed(shaped.reifyResultShapes(builder, shapes)))
          return {};
        // Ops with results that are no tensors reify their tensors only.
        unsigned number = 0;
        for (Value other :
             op->getResults().take_front(result.getResultNumber()))
          number += isa<RankedTensorType>(other.getType());
        if (shapes.size() != op->getNumResults() && number >= shapes.size())
          return {};
        OpFoldResult size = shapes[number][dim];
        if (auto value = dyn_cast<Value>(size))
          if (auto inner = value.getDefiningOp<tensor::DimOp>())
            if (inner.getConstantIndex())
              return getSize(builder, loc, inner.getSource(),
                             *inner.getConstantIndex());
        return size;
      })
      .Default([](Operation *) { return OpFoldResult(); });
}

OpFoldResult mlir::moe::detail::getSize(OpBuilder &builder, Location loc,
                                        Value tensor, int64_t dim) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!type.isDynamicDim(dim))
    return builder.getIndexAttr(type.getDimSize(dim));
  if (auto result = dyn_cast<OpResult>(tensor))
    if (OpFoldResult size = getSizeOfResult(builder, loc, result, dim))
      return size;
  return tensor::DimOp::create(builder, loc, tensor, dim).getResult();
}

SmallVector<OpFoldResult>
mlir::moe::detail::getSizes(OpBuilder &builder, Location loc, Value tensor) {
  SmallVector<OpFoldResult> sizes;
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  for (int64_t dim = 0; dim < rank; ++dim)
    sizes.push_back(getSize(builder, loc, tensor, dim));
  return sizes;
}

void mlir::moe::detail::resolveDims(Block &block) {
  SmallVector<tensor::DimOp> dims;
  block.walk([&](tensor::DimOp dim) { dims.push_back(dim); });
  for (tensor::DimOp dim : dims) {
    if (!dim.getConstantIndex() ||
        !isa<RankedTensorType>(dim.getSource().getType()) ||
        !dim.getSource().getDefiningOp())
      continue;
    OpBuilder builder(dim);
    OpFoldResult size = getSize(builder, dim.getLoc(), dim.getSource(),
                                *dim.getConstantIndex());
    dim.replaceAllUsesWith(toValue(builder, dim.getLoc(), size));
    dim.erase();
  }
}

Value mlir::moe::detail::createZeros(OpBuilder &builder, Location loc,
                                     ArrayRef<OpFoldResult> sizes,
                                     Type element) {
  Value empty = tensor::EmptyOp::create(builder, loc, sizes, element);
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(element));
  return linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
}

Value mlir::moe::detail::createElementwise(
    OpBuilder &builder, Location loc, ValueRange tensors, Type element,
    llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> f) {
  Value first = tensors.front();
  auto type = cast<RankedTensorType>(first.getType());
  Value empty = tensor::EmptyOp::create(builder, loc,
                                        getSizes(builder, loc, first), element);
  SmallVector<AffineMap> maps(
      tensors.size() + 1,
      AffineMap::getMultiDimIdentityMap(type.getRank(), builder.getContext()));
  SmallVector<utils::IteratorType> loops(type.getRank(),
                                         utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, TypeRange(type.clone(element)), tensors,
             ValueRange{empty}, maps, loops,
             [&](OpBuilder &b, Location nested, ValueRange args) {
               Value value = f(b, nested, args.drop_back());
               linalg::YieldOp::create(b, nested, value);
             })
      .getResult(0);
}

/// The operand of an op that only widens its elements.
static Value getWidened(Value tensor) {
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getInputs().size() != 1 ||
      generic.getNumReductionLoops() != 0 ||
      !llvm::all_of(generic.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return {};
  Value yielded = generic.getBody()->getTerminator()->getOperand(0);
  auto widen = yielded.getDefiningOp<arith::ExtFOp>();
  if (!widen || widen.getIn() != generic.getBody()->getArgument(0))
    return {};
  return generic.getInputs().front();
}

Value mlir::moe::detail::castElements(OpBuilder &builder, Location loc,
                                      Value tensor, Type element) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getElementType() == element)
    return tensor;
  if (Value narrow = getWidened(tensor))
    if (getElementTypeOrSelf(narrow.getType()) == element)
      return narrow;
  return createElementwise(builder, loc, tensor, element,
                           [&](OpBuilder &b, Location nested, ValueRange args) {
                             return convertFloat(b, nested, args.front(),
                                                 element);
                           });
}
