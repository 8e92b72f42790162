// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Staging.h"

#include "Transpose.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// A word of a pair: the first index in the high half.
static Value makeWord(LoopBuilder &b, Type word, Value first, Value second) {
  auto bits = [&](Value real) {
    Type narrow =
        b.builder.getIntegerType(real.getType().getIntOrFloatBitWidth());
    return b.make<arith::ExtUIOp>(word, b.make<arith::BitcastOp>(narrow, real));
  };
  int64_t half = word.getIntOrFloatBitWidth() / 2;
  Value high = b.make<arith::ShLIOp>(bits(first), b.integer(word, half));
  return b.make<arith::OrIOp>(high, bits(second));
}

Value mlir::moe::detail::swapHalves(LoopBuilder &b, Value words) {
  auto type = cast<VectorType>(words.getType());
  int64_t half = type.getElementTypeBitWidth() / 2;
  Value amount = b.constant(DenseElementsAttr::get(
      type, b.builder.getIntegerAttr(type.getElementType(), half)));
  Value high = b.make<arith::ShLIOp>(words, amount);
  return b.make<arith::OrIOp>(high, b.make<arith::ShRUIOp>(words, amount));
}

void mlir::moe::detail::emitStageRows(LoopBuilder &b, const TileFormat &format,
                                      Value source, Columns columns,
                                      Value count,
                                      function_ref<Value(Value)> findRow,
                                      StepRange range, StagePlace place) {
  auto type = cast<MemRefType>(source.getType());
  Type element = type.getElementType(), word = format.stageElement();
  int64_t lanes = format.lanes, factors = format.pairs ? 2 : 1;
  Value size = b.index(columns.size);
  Value end = b.add(range.begin, range.steps);
  // Vectors as long as both their elements exist.
  Value whole = b.minimum(end, b.div(size, b.index(factors)));
  whole = b.sub(whole, range.begin);
  whole = b.mul(b.div(whole, b.index(lanes)), b.index(lanes));
  auto stageVector = [&](Value row, Value to, Value step) {
    Value at = b.mul(b.add(range.begin, step), b.index(factors));
    Value value = b.make<vector::LoadOp>(
        VectorType::get({lanes * factors}, element), source,
        ValueRange{row, b.add(columns.first, at)});
    if (format.pairs)
      value = swapHalves(
          b, b.make<vector::BitCastOp>(VectorType::get({lanes}, word), value));
    else
      value = b.toReal(format.accumulator, value);
    vector::StoreOp::create(b.builder, b.loc, value, place.memref,
                            ValueRange{b.add(to, step)});
  };
  auto stageScalar = [&](Value row, Value to, Value step) {
    Value at = b.mul(b.add(range.begin, step), b.index(factors));
    Value value = b.load(source, {row, b.add(columns.first, at)});
    if (format.pairs) {
      Value other = b.add(at, b.index(1));
      Value second = b.choose(
          b.compare(arith::CmpIPredicate::ult, other, size),
          [&] {
            return SmallVector<Value>{
                b.load(source, {row, b.add(columns.first, other)})};
          },
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
    if (columns.size % (lanes * factors) != 0)
      b.loop(whole, range.steps,
             [&](Value step) { stageScalar(row, to, step); });
  });
}

//===----------------------------------------------------------------------===//
// Transposes
//===----------------------------------------------------------------------===//

/// `lanes` elements of a row of a matrix, 0 beyond its columns. Nothing beyond
/// them is read: more than the end of a row may lie past the end of memory.
static Value loadRow(LoopBuilder &b, Value source, Value row, Value column,
                     int64_t lanes, bool isInside) {
  auto type = cast<MemRefType>(source.getType());
  auto vector = VectorType::get({lanes}, type.getElementType());
  if (isInside)
    return b.make<vector::LoadOp>(vector, source, ValueRange{row, column});
  Value left =
      b.maximum(b.sub(b.index(type.getDimSize(1)), column), b.index(0));
  Value mask = b.make<vector::CreateMaskOp>(
      VectorType::get({lanes}, b.builder.getI1Type()), left);
  Value zero = b.constant(cast<TypedAttr>(b.builder.getZeroAttr(vector)));
  return b.make<vector::MaskedLoadOp>(vector, source, ValueRange{row, column},
                                      mask, zero);
}

/// One step of a block of a matrix: a row widened, or two rows as pairs.
static Value loadStep(LoopBuilder &b, const TileFormat &format,
                      const MatrixBlock &block, Value step, Value column,
                      int64_t part, bool isInside) {
  Value last = b.sub(block.rows, b.index(1));
  auto load = [&](Value row) {
    // The row beyond the last, of a pair, is read but not used.
    Value at = b.add(block.row, b.minimum(row, last));
    return loadRow(b, block.source, at, column, part, isInside);
  };
  if (!format.pairs)
    return b.toReal(format.accumulator, load(step));
  Value first = b.mul(step, b.index(2)), second = b.add(first, b.index(1));
  Value later = load(second);
  Value exists = b.compare(arith::CmpIPredicate::ult, second, block.rows);
  Value zero =
      b.constant(cast<TypedAttr>(b.builder.getZeroAttr(later.getType())));
  later = b.select(exists, later, zero);
  return b.make<vector::InterleaveOp>(later, load(first));
}

void mlir::moe::detail::emitStageSteps(LoopBuilder &b, const TileFormat &format,
                                       const MatrixBlock &block, Value count,
                                       StepRange range,
                                       const StepsPlace &place) {
  // Of pairs two rows make two vectors.
  int64_t part = format.lanes * (format.pairs ? 2 : 1);
  auto to = cast<MemRefType>(place.memref.getType());
  auto type = VectorType::get({part}, format.stageElement());
  int64_t size = 1;
  if (to.getElementType() != format.stageElement()) {
    size = 2;
    type = VectorType::get({size * part}, to.getElementType());
  }
  // A block of fixed width is one of several that may end beyond the columns;
  // others are as long as columns are left.
  int64_t wholeBlock = getConstantIntValue(count).value_or(part);
  bool isInside =
      wholeBlock % part == 0 &&
      cast<MemRefType>(block.source.getType()).getDimSize(1) % wholeBlock == 0;
  b.loop(b.index(0), range.steps, [&](Value step) {
    Value at = b.add(place.offset, b.mul(step, place.stride));
    b.loop(
        b.index(0), count,
        [&](Value c) {
          Value value = loadStep(b, format, block, b.add(range.begin, step),
                                 b.add(block.column, c), part, isInside);
          if (format.pairs)
            value = b.make<vector::BitCastOp>(type, value);
          vector::StoreOp::create(
              b.builder, b.loc, value, place.memref,
              ValueRange{b.add(at, b.mul(c, b.index(size)))});
        },
        part);
  });
}

void mlir::moe::detail::emitTransposedPanel(LoopBuilder &b,
                                            const TileFormat &format,
                                            Value panels, Value base,
                                            int64_t steps, int64_t width,
                                            Value column, StepRange range,
                                            const PanelPlace &place) {
  int64_t lanes = format.lanes, factors = format.pairs ? 2 : 1;
  Value to = place.memrefs.front();
  Type element = cast<MemRefType>(panels.getType()).getElementType();
  auto loaded = VectorType::get({lanes * factors}, element);
  auto words = VectorType::get({lanes}, format.stageElement());
  Value last = b.index(steps - 1);
  bool isExact = steps % (format.width / factors) == 0;
  Value firstStep = b.div(column, b.index(factors));
  Value panelElements = b.index(steps * width * factors);
  // A square is `lanes` steps of the packed weights, which are columns here,
  // times `lanes` of its columns, which are indices of the contraction.
  auto emitSquare = [&](Value start, Value c, Value k) {
    SmallVector<Value> square;
    Value firstOfSquare = b.add(firstStep, c);
    Value place0 = b.add(start, b.mul(firstOfSquare, b.index(width * factors)));
    for (int64_t i = 0; i < lanes; ++i) {
      Value at = b.add(place0, b.index(i * width * factors));
      if (!isExact) {
        // Beyond the last column anything will do.
        Value step = b.minimum(b.add(firstOfSquare, b.index(i)), last);
        at = b.add(start, b.mul(step, b.index(width * factors)));
      }
      Value value = b.make<vector::LoadOp>(loaded, panels, ValueRange{at});
      square.push_back(format.pairs ? b.make<vector::BitCastOp>(words, value)
                                    : b.toReal(format.accumulator, value));
    }
    square = format.pairs ? emitPairTranspose(b, square)
                          : emitTranspose(b, std::move(square));
    Value row = b.div(k, b.index(factors));
    Value corner =
        b.add(place.offset, b.add(b.mul(row, b.index(format.stepElements())),
                                  b.mul(c, b.index(factors * factors))));
    for (int64_t i = 0; i < lanes; ++i) {
      Value value = square[i];
      if (format.pairs)
        value = b.make<vector::BitCastOp>(loaded, value);
      // Of pairs a row of the transpose has two vectors.
      int64_t at =
          i / factors * format.stepElements() + i % factors * factors * lanes;
      vector::StoreOp::create(b.builder, b.loc, value, to,
                              ValueRange{b.add(corner, b.index(at))});
    }
  };
  // Panel by panel, and in each the memory in order. All of it has been asked
  // for while the block before was multiplied.
  Value size = b.mul(range.steps, b.index(factors));
  b.loop(
      b.index(0), size,
      [&](Value first) {
        Value index = b.add(b.mul(range.begin, b.index(factors)), first);
        Value start =
            b.add(base, b.mul(b.div(index, b.index(width)), panelElements));
        Value end = b.minimum(b.index(width), b.sub(size, first));
        b.loop(
            b.index(0), b.index(format.width / factors),
            [&](Value c) {
              b.loop(
                  b.index(0), end,
                  [&](Value k) {
                    emitSquare(b.add(start, b.mul(k, b.index(factors))), c,
                               b.add(first, k));
                  },
                  lanes);
            },
            lanes);
      },
      width);
}
