// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LoopUtils.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::moe::detail;

bool Row::isContiguous() const {
  SmallVector<int64_t> strides;
  int64_t offset;
  return succeeded(cast<MemRefType>(memref.getType())
                       .getStridesAndOffset(strides, offset)) &&
         strides.back() == 1;
}

static bool isReal(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType()));
}

/// `element`, in the shape of `value`.
static Type likeShape(Value value, Type element) {
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    return vector.clone(element);
  return element;
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

LoopBuilder::LoopBuilder(OpBuilder &builder, Location loc)
    : builder(builder), loc(loc) {
  front = index(0).getDefiningOp();
}

Value LoopBuilder::constant(TypedAttr value) {
  Value &known = constants[value];
  if (known)
    return known;
  OpBuilder::InsertionGuard guard(builder);
  if (front)
    builder.setInsertionPointAfter(front);
  known = make<arith::ConstantOp>(value);
  front = known.getDefiningOp();
  return known;
}

Value LoopBuilder::index(int64_t value) {
  return constant(builder.getIndexAttr(value));
}

Value LoopBuilder::integer(Type type, int64_t value) {
  return constant(builder.getIntegerAttr(type, value));
}

Value LoopBuilder::real(Type type, double value) {
  return constant(builder.getFloatAttr(type, value));
}

Value LoopBuilder::minusInfinity(Type type) {
  auto &semantics = cast<FloatType>(type).getFloatSemantics();
  return constant(builder.getFloatAttr(
      type, APFloat::getInf(semantics, /*Negative=*/true)));
}

Value LoopBuilder::largest(Type type) {
  auto &semantics = cast<FloatType>(type).getFloatSemantics();
  return constant(builder.getFloatAttr(type, APFloat::getLargest(semantics)));
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Value LoopBuilder::add(Value a, Value b) {
  return isReal(a) ? make<arith::AddFOp>(a, b) : make<arith::AddIOp>(a, b);
}

Value LoopBuilder::sub(Value a, Value b) {
  return isReal(a) ? make<arith::SubFOp>(a, b) : make<arith::SubIOp>(a, b);
}

Value LoopBuilder::mul(Value a, Value b) {
  return isReal(a) ? make<arith::MulFOp>(a, b) : make<arith::MulIOp>(a, b);
}

Value LoopBuilder::div(Value a, Value b) {
  return isReal(a) ? make<arith::DivFOp>(a, b) : make<arith::DivUIOp>(a, b);
}

Value LoopBuilder::compare(arith::CmpIPredicate predicate, Value a, Value b) {
  return make<arith::CmpIOp>(predicate, a, b);
}

Value LoopBuilder::compare(arith::CmpFPredicate predicate, Value a, Value b) {
  return make<arith::CmpFOp>(predicate, a, b);
}

Value LoopBuilder::select(Value condition, Value a, Value b) {
  return make<arith::SelectOp>(condition, a, b);
}

Value LoopBuilder::minimum(Value a, Value b) {
  return make<arith::MinSIOp>(a, b);
}

Value LoopBuilder::maximum(Value a, Value b) {
  return make<arith::MaxSIOp>(a, b);
}

Value LoopBuilder::maximumReal(Value a, Value b) {
  // Without the flags a reduction is neither cheap nor vectorised.
  return make<arith::MaximumFOp>(
      a, b, arith::FastMathFlags::nnan | arith::FastMathFlags::nsz);
}

Value LoopBuilder::toIndex(Value integer) {
  return make<arith::IndexCastOp>(builder.getIndexType(), integer);
}

Value LoopBuilder::fromIndex(Type type, Value index) {
  return make<arith::IndexCastOp>(type, index);
}

Value LoopBuilder::inRange(Value value, Value bound) {
  return compare(arith::CmpIPredicate::ult, value, bound);
}

Value LoopBuilder::widen(Value value) {
  if (cast<FloatType>(getElementTypeOrSelf(value.getType())).getWidth() >= 32)
    return value;
  return toReal(builder.getF32Type(), value);
}

Value LoopBuilder::toReal(Type element, Value value) {
  Type type = likeShape(value, element);
  if (type == value.getType())
    return value;
  if (cast<FloatType>(element).getWidth() >
      cast<FloatType>(getElementTypeOrSelf(value.getType())).getWidth())
    return make<arith::ExtFOp>(type, value);
  return make<arith::TruncFOp>(type, value);
}

Value LoopBuilder::sanitize(Value value) {
  Type type = value.getType();
  Value isNaN = compare(arith::CmpFPredicate::UNO, value, value);
  Value number = select(isNaN, minusInfinity(type), value);
  Value isAbove = compare(arith::CmpFPredicate::OGT, number, largest(type));
  return select(isAbove, largest(type), number);
}

Value LoopBuilder::orderedBits(Value value) {
  auto real = cast<FloatType>(value.getType());
  Type type = builder.getIntegerType(real.getWidth());
  Value isNaN = compare(arith::CmpFPredicate::UNO, value, value);
  Value number = select(isNaN, minusInfinity(real), value);
  // -0 + 0 is +0, and nothing else changes.
  Value bits = make<arith::BitcastOp>(type, add(number, this->real(real, 0.0)));
  // Negative reals grow in magnitude with their bits: flip those.
  Value sign = make<arith::ShRSIOp>(bits, integer(type, real.getWidth() - 1));
  APInt rest = APInt::getSignedMaxValue(real.getWidth());
  Value flip =
      make<arith::AndIOp>(sign, constant(builder.getIntegerAttr(type, rest)));
  return make<arith::XOrIOp>(bits, flip);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value LoopBuilder::dim(Value memref, int64_t dim) {
  auto type = cast<MemRefType>(memref.getType());
  if (!type.isDynamicDim(dim))
    return index(type.getDimSize(dim));
  return make<memref::DimOp>(memref, index(dim));
}

Value LoopBuilder::load(Value memref, ValueRange indices) {
  return make<memref::LoadOp>(memref, indices);
}

void LoopBuilder::store(Value value, Value memref, ValueRange indices) {
  memref::StoreOp::create(builder, loc, value, memref, indices);
}

static SmallVector<Value, 2> indicesOf(const Row &row, Value i) {
  SmallVector<Value, 2> indices(row.leading);
  indices.push_back(i);
  return indices;
}

Value LoopBuilder::load(const Row &row, Value i) {
  return load(row.memref, indicesOf(row, i));
}

void LoopBuilder::store(Value value, const Row &row, Value i) {
  store(value, row.memref, indicesOf(row, i));
}

Value LoopBuilder::scratch(Type element, ArrayRef<int64_t> shape) {
  return make<memref::AllocaOp>(MemRefType::get(shape, element));
}

Value LoopBuilder::workspace(Type element, ArrayRef<int64_t> shape,
                             ValueRange sizes) {
  return make<memref::AllocOp>(MemRefType::get(shape, element), sizes);
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

void LoopBuilder::loop(Value begin, Value end, Body body, int64_t step) {
  auto op = scf::ForOp::create(builder, loc, begin, end, index(step));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.getBody()->getTerminator());
  body(op.getInductionVar());
}

SmallVector<Value> LoopBuilder::loop(Value begin, Value end, ValueRange inits,
                                     Step step) {
  auto op = scf::ForOp::create(builder, loc, begin, end, index(1), inits);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(op.getBody());
  SmallVector<Value> next = step(op.getInductionVar(), op.getRegionIterArgs());
  scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(op.getResults());
}

void LoopBuilder::parallel(Value end, Body body) {
  auto op = scf::ParallelOp::create(builder, loc, ValueRange{index(0)},
                                    ValueRange{end}, ValueRange{index(1)});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.getBody()->getTerminator());
  body(op.getInductionVars().front());
}

void LoopBuilder::when(Value condition, function_ref<void()> then,
                       function_ref<void()> otherwise) {
  auto op = scf::IfOp::create(builder, loc, condition,
                              /*withElseRegion=*/bool(otherwise));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.thenYield());
  then();
  if (!otherwise)
    return;
  builder.setInsertionPoint(op.elseYield());
  otherwise();
}

SmallVector<Value>
LoopBuilder::choose(Value condition, function_ref<SmallVector<Value>()> then,
                    function_ref<SmallVector<Value>()> otherwise) {
  auto nest = [](function_ref<SmallVector<Value>()> body, OpBuilder &builder) {
    return [body, &builder](OpBuilder &inner, Location loc) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(inner.getInsertionBlock());
      scf::YieldOp::create(builder, loc, body());
    };
  };
  auto op = scf::IfOp::create(builder, loc, condition, nest(then, builder),
                              nest(otherwise, builder));
  return SmallVector<Value>(op.getResults());
}

SmallVector<Value>
LoopBuilder::repeatWhile(ValueRange inits,
                         function_ref<Value(ValueRange)> condition,
                         function_ref<SmallVector<Value>(ValueRange)> step) {
  auto op = scf::WhileOp::create(builder, loc, inits.getTypes(), inits);
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<Location> locs(inits.size(), loc);
  Block *before =
      builder.createBlock(&op.getBefore(), {}, inits.getTypes(), locs);
  Value holds = condition(before->getArguments());
  scf::ConditionOp::create(builder, loc, holds, before->getArguments());
  Block *after =
      builder.createBlock(&op.getAfter(), {}, inits.getTypes(), locs);
  SmallVector<Value> next = step(after->getArguments());
  scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(op.getResults());
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

void LoopBuilder::overLanes(Value end, bool scalarOnly,
                            function_ref<void(Value, int64_t)> body) {
  // 64 lanes keep four registers of 512 bits busy; rows shorter than that, and
  // ends of rows, still go by vectors of 16.
  static constexpr int64_t widths[] = {64, 16, 1};
  APInt size;
  bool known = matchPattern(end, m_ConstantInt(&size));
  Value begin = index(0);
  int64_t done = 0;
  for (int64_t lanes : widths) {
    if (scalarOnly && lanes != 1)
      continue;
    Value stop = end;
    if (known) {
      int64_t whole = size.getSExtValue() / lanes * lanes;
      if (whole == done)
        continue;
      stop = index(done = whole);
    } else if (lanes != 1) {
      stop = mul(div(end, index(lanes)), index(lanes));
    }
    loop(begin, stop, [&](Value i) { body(i, lanes); }, lanes);
    begin = stop;
  }
}

Value LoopBuilder::loadLanes(const Row &row, Value i, int64_t lanes) {
  if (lanes == 1)
    return load(row, i);
  return make<vector::LoadOp>(VectorType::get(lanes, row.getElementType()),
                              row.memref, indicesOf(row, i));
}

void LoopBuilder::storeLanes(Value value, const Row &row, Value i,
                             int64_t lanes) {
  if (lanes == 1)
    return store(value, row, i);
  vector::StoreOp::create(builder, loc, value, row.memref, indicesOf(row, i));
}

void LoopBuilder::streamLanes(Value value, const Row &row, Value i) {
  auto type = cast<VectorType>(value.getType());
  int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
  vector::StoreOp::create(builder, loc, value, row.memref, indicesOf(row, i),
                          /*nontemporal=*/true,
                          llvm::MaybeAlign(std::min(bytes, kCacheLine)));
}

void LoopBuilder::orderStreams() {
  LLVM::FenceOp::create(builder, loc, LLVM::AtomicOrdering::seq_cst,
                        StringRef());
}

void LoopBuilder::prefetchLanes(const Row &row, Value i, int64_t lanes,
                                int64_t locality) {
  int64_t bytes = row.getElementType().getIntOrFloatBitWidth() / 8;
  for (int64_t lane = 0; lane < lanes; lane += kCacheLine / bytes)
    memref::PrefetchOp::create(builder, loc, row.memref,
                               indicesOf(row, add(i, index(lane))),
                               /*isWrite=*/false, locality,
                               /*isDataCache=*/true);
}

Value LoopBuilder::spread(Value value, int64_t lanes) {
  if (lanes == 1)
    return value;
  return make<vector::BroadcastOp>(VectorType::get(lanes, value.getType()),
                                   value);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

func::FuncOp
mlir::moe::detail::getOrAddFunction(OpBuilder &builder, Operation *op,
                                    StringRef name, FunctionType type,
                                    function_ref<void(func::FuncOp)> fill) {
  auto module = op->getParentOfType<ModuleOp>();
  if (auto known = module.lookupSymbol<func::FuncOp>(name))
    return known;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(builder, op->getLoc(), name, type);
  function.setPrivate();
  fill(function);
  return function;
}
