// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DecomposeBuilder.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

Value DecomposeBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(*this, value);
}

Value DecomposeBuilder::i32(int64_t value) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(value));
}

Value DecomposeBuilder::real(Type type, double value) {
  return arith::ConstantOp::create(*this, getFloatAttr(type, value));
}

Value DecomposeBuilder::infinity(Type type, bool negative) {
  auto semantics = &cast<FloatType>(type).getFloatSemantics();
  return arith::ConstantOp::create(
      *this, getFloatAttr(type, APFloat::getInf(*semantics, negative)));
}

Value DecomposeBuilder::toIndex(Value integer) {
  return arith::IndexCastOp::create(*this, getIndexType(), integer);
}

Value DecomposeBuilder::toI32(Value index) {
  return arith::IndexCastOp::create(*this, getI32Type(), index);
}

Value DecomposeBuilder::toReal(Value value, Type type) {
  unsigned from = value.getType().getIntOrFloatBitWidth();
  unsigned to = type.getIntOrFloatBitWidth();
  if (value.getType() == type)
    return value;
  if (from < to)
    return arith::ExtFOp::create(*this, type, value);
  return arith::TruncFOp::create(*this, type, value);
}

Value DecomposeBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(*this, condition, a, b);
}

Value DecomposeBuilder::compare(arith::CmpIPredicate predicate, Value a,
                                Value b) {
  return arith::CmpIOp::create(*this, predicate, a, b);
}

Value DecomposeBuilder::compare(arith::CmpFPredicate predicate, Value a,
                                Value b) {
  return arith::CmpFOp::create(*this, predicate, a, b);
}

Value DecomposeBuilder::add(Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::AddFOp::create(*this, a, b);
  return arith::AddIOp::create(*this, a, b);
}

Value DecomposeBuilder::sub(Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::SubFOp::create(*this, a, b);
  return arith::SubIOp::create(*this, a, b);
}

Value DecomposeBuilder::mul(Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::MulFOp::create(*this, a, b);
  return arith::MulIOp::create(*this, a, b);
}

Value DecomposeBuilder::fma(Value a, Value b, Value c) {
  return math::FmaOp::create(*this, a, b, c);
}

Value DecomposeBuilder::min(Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::MinimumFOp::create(*this, a, b);
  return arith::MinSIOp::create(*this, a, b);
}

Value DecomposeBuilder::max(Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::MaximumFOp::create(*this, a, b);
  return arith::MaxSIOp::create(*this, a, b);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

OpFoldResult DecomposeBuilder::size(Value tensor, int64_t dim) {
  return tensor::getMixedSize(*this, getLoc(), tensor, dim);
}

Value DecomposeBuilder::dim(Value tensor, int64_t dim) {
  return getValueOrCreateConstantIndexOp(*this, getLoc(), size(tensor, dim));
}

Value DecomposeBuilder::empty(ArrayRef<OpFoldResult> sizes, Type element) {
  return tensor::EmptyOp::create(*this, sizes, element);
}

Value DecomposeBuilder::filled(ArrayRef<OpFoldResult> sizes, Value scalar) {
  Value out = empty(sizes, scalar.getType());
  return linalg::FillOp::create(*this, scalar, out).getResult(0);
}

Value DecomposeBuilder::extract(Value tensor, ValueRange indices) {
  return tensor::ExtractOp::create(*this, tensor, indices);
}

Value DecomposeBuilder::insert(Value scalar, Value tensor, ValueRange indices) {
  return tensor::InsertOp::create(*this, scalar, tensor, indices);
}

Value DecomposeBuilder::castTo(Value tensor, Type type) {
  if (tensor.getType() == type)
    return tensor;
  return tensor::CastOp::create(*this, type, tensor);
}

Value DecomposeBuilder::slice(Value tensor, ArrayRef<OpFoldResult> offsets,
                              ArrayRef<OpFoldResult> sizes, int64_t rank) {
  auto source = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape =
      decomposeMixedValues(llvm::to_vector(sizes.take_back(rank))).first;
  Sizes ones(sizes.size(), getIndexAttr(1));
  return tensor::ExtractSliceOp::create(
      *this, RankedTensorType::get(shape, source.getElementType()), tensor,
      offsets, sizes, ones);
}

Value DecomposeBuilder::insertSlice(Value slice, Value tensor,
                                    ArrayRef<OpFoldResult> offsets,
                                    ArrayRef<OpFoldResult> sizes) {
  Sizes ones(sizes.size(), getIndexAttr(1));
  return tensor::InsertSliceOp::create(*this, slice, tensor, offsets, sizes,
                                       ones);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

Values
DecomposeBuilder::loop(Value begin, Value end, ValueRange carried,
                       llvm::function_ref<Values(Value, ValueRange)> body) {
  // The body is filled once the loop stands in its block, so that it can place
  // something in front of the loop.
  auto loop = scf::ForOp::create(*this, begin, end, index(1), carried);
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  Values next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  scf::YieldOp::create(*this, next);
  return Values(loop.getResults());
}

Values DecomposeBuilder::when(Value condition, ValueRange otherwise,
                              llvm::function_ref<Values()> then) {
  auto choice = scf::IfOp::create(
      *this, condition,
      [&](OpBuilder &, Location) { scf::YieldOp::create(*this, then()); },
      [&](OpBuilder &, Location) { scf::YieldOp::create(*this, otherwise); });
  return Values(choice.getResults());
}

Values DecomposeBuilder::generic(StringRef kinds, ArrayRef<Access> ins,
                                 ArrayRef<Access> outs,
                                 llvm::function_ref<Values(ValueRange)> body) {
  SmallVector<utils::IteratorType> iterators;
  for (char kind : kinds)
    iterators.push_back(kind == 'p' ? utils::IteratorType::parallel
                                    : utils::IteratorType::reduction);
  SmallVector<AffineMap> maps;
  Values inputs, inits;
  auto access = [&](const Access &operand, Values &list) {
    list.push_back(operand.tensor);
    maps.push_back(AffineMap::getMultiDimMapWithTargets(
        kinds.size(), operand.loops, getContext()));
  };
  for (const Access &operand : ins)
    access(operand, inputs);
  for (const Access &operand : outs)
    access(operand, inits);
  auto op = linalg::GenericOp::create(
      *this, ValueRange(inits).getTypes(), inputs, inits, maps, iterators,
      [&](OpBuilder &, Location, ValueRange args) {
        linalg::YieldOp::create(*this, body(args));
      });
  return Values(op.getResults());
}

Value DecomposeBuilder::map(ValueRange ins, Value out,
                            llvm::function_ref<Value(ValueRange)> body) {
  SmallVector<unsigned> all = {0, 1};
  SmallVector<Access> accesses;
  for (Value value : ins)
    accesses.push_back({value, all});
  return generic("pp", accesses, {{out, all}},
                 [&](ValueRange args) { return Values{body(args)}; })[0];
}

Value DecomposeBuilder::loopIndex(unsigned loop) {
  return linalg::IndexOp::create(*this, loop);
}

Value mlir::moe::detail::buildHoistedEmpty(OpBuilder &builder, Location loc,
                                           ArrayRef<OpFoldResult> sizes,
                                           Type element) {
  OpBuilder::InsertionGuard guard(builder);
  bool isStatic = llvm::all_of(
      sizes, [](OpFoldResult size) { return isa<Attribute>(size); });
  while (isStatic) {
    auto loop =
        dyn_cast<scf::ForOp>(builder.getInsertionBlock()->getParentOp());
    if (!loop)
      break;
    builder.setInsertionPoint(loop);
  }
  return tensor::EmptyOp::create(builder, loc, sizes, element);
}

FloatType mlir::moe::detail::getAccumulatorType(Type element) {
  if (element.isF64())
    return Float64Type::get(element.getContext());
  return Float32Type::get(element.getContext());
}
