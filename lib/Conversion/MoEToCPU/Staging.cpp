// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Staging.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// A word of a pair: the first index in the high half.
static Value makeWord(LoopBuilder &b, Type word, Value first, Value second) {
  auto bits = [&](Value real) {
    Type narrow = b.builder.getIntegerType(real.getType().getIntOrFloatBitWidth());
    return b.make<arith::ExtUIOp>(word, b.make<arith::BitcastOp>(narrow, real));
  };
  int64_t half = word.getIntOrFloatBitWidth() / 2;
  Value high =
      b.make<arith::ShLIOp>(bits(first), b.integer(word, half));
  return b.make<arith::OrIOp>(high, bits(second));
}

/// The halves of every word change places.
static Value swapHalves(LoopBuilder &b, Value words) {
  auto type = cast<VectorType>(words.getType());
  int64_t half = type.getElementTypeBitWidth() / 2;
  Value amount = b.constant(DenseElementsAttr::get(
      type, b.builder.getIntegerAttr(type.getElementType(), half)));
  Value high = b.make<arith::ShLIOp>(words, amount);
  return b.make<arith::OrIOp>(high, b.make<arith::ShRUIOp>(words, amount));
}

void mlir::moe::detail::emitStageRows(LoopBuilder &b, const TileFormat &format,
                                      Value source, Value count,
                                      function_ref<Value(Value)> findRow,
                                      StepRange range, StagePlace place) {
  auto type = cast<MemRefType>(source.getType());
  Type element = type.getElementType(), word = format.stageElement();
  int64_t lanes = format.lanes, factors = format.pairs ? 2 : 1;
  int64_t k = type.getDimSize(1);
  Value size = b.dim(source, 1);
  Value end = b.add(range.begin, range.steps);
  // Vectors as long as both their elements exist.
  Value whole = b.minimum(end, b.div(size, b.index(factors)));
  whole = b.sub(whole, range.begin);
  whole = b.mul(b.div(whole, b.index(lanes)), b.index(lanes));
  auto stageVector = [&](Value row, Value to, Value step) {
    Value at = b.mul(b.add(range.begin, step), b.index(factors));
    Value value = b.make<vector::LoadOp>(
        VectorType::get({lanes * factors}, element), source,
        ValueRange{row, at});
    if (format.pairs)
      value = swapHalves(b, b.make<vector::BitCastOp>(
                                VectorType::get({lanes}, word), value));
    else
      value = b.toReal(format.accumulator, value);
    vector::StoreOp::create(b.builder, b.loc, value, place.memref,
                            ValueRange{b.add(to, step)});
  };
  auto stageScalar = [&](Value row, Value to, Value step) {
    Value at = b.mul(b.add(range.begin, step), b.index(factors));
    Value value = b.load(source, {row, at});
    if (format.pairs) {
      Value other = b.add(at, b.index(1));
      Value second = b.choose(
          b.compare(arith::CmpIPredicate::ult, other, size),
          [&] { return SmallVector<Value>{b.load(source, {row, other})}; },
          [&] { return SmallVector<Value>{b.real(element, 0.0)}; })[0];
      value = makeWord(b, word, value, second);
    } else {
      value = b.toReal(format.accumulator, value);
    }
    b.store(value, place.memref, {b.add(to, step)});
  };
  b.loop(b.index(0), count, [&](Value r) {
    Value row = findRow(r), to = b.mul(r, place.stride);
    b.loop(
        b.index(0), whole, [&](Value step) { stageVector(row, to, step); },
        lanes);
    if (ShapedType::isDynamic(k) || k % (lanes * factors) != 0)
      b.loop(whole, range.steps,
             [&](Value step) { stageScalar(row, to, step); });
  });
}
