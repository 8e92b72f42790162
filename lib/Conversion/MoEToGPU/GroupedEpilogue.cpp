// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What becomes of the sums: the op's epilogue region, element by element, on
// the registers that hold them.

#include "GroupedCommon.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static int64_t bytesOf(Type type) { return type.getIntOrFloatBitWidth() / 8; }

static Value toF32(KernelBuilder &b, Value value) {
  return value.getType().isF32() ? value : b.make<arith::ExtFOp>(b.f32, value);
}

namespace {
/// Two neighbours of a row. Where rows begin at an odd place they are two
/// accesses.
class PairAccess {
public:
  PairAccess(KernelBuilder &b, int64_t columns) : b(b), columns(columns) {}

  /// `index` is that of the first element; `second` whether there is another.
  std::pair<Value, Value> load(Value base, Value index, Type type,
                               Value hasSecond) {
    Value address = b.at(base, b.mul(index, bytesOf(type)));
    if (columns % 2 == 0 && bytesOf(type) == 2) {
      Value both = b.load(address, b.i32);
      Value high = b.shiftRight(both, 16);
      return {fromBits(both, type), fromBits(high, type)};
    }
    Value first = b.load(address, type);
    if (!hasSecond)
      return {first, b.load(b.at(address, bytesOf(type)), type)};
    SmallVector<Value> second = b.choose(
        hasSecond, {type},
        [&]() -> SmallVector<Value> {
          return {b.load(b.at(address, bytesOf(type)), type)};
        },
        [&]() -> SmallVector<Value> { return {b.zero(type)}; });
    return {first, second.front()};
  }

  void store(Value base, Value index, Value first, Value second,
             Value hasSecond) {
    Type type = first.getType();
    Value address = b.at(base, b.mul(index, bytesOf(type)));
    if (columns % 2 == 0 && bytesOf(type) == 2) {
      Value high = b.make<arith::ExtUIOp>(b.i32, toBits(second));
      high = b.make<arith::ShLIOp>(high, b.number(16));
      b.store(b.bitOr(b.make<arith::ExtUIOp>(b.i32, toBits(first)), high),
              address);
      return;
    }
    if (columns % 2 == 0) {
      auto pair = VectorType::get({2}, type);
      Value both = b.make<LLVM::PoisonOp>(pair);
      both = b.make<LLVM::InsertElementOp>(both, first, b.number(0));
      both = b.make<LLVM::InsertElementOp>(both, second, b.number(1));
      b.store(both, address);
      return;
    }
    b.store(first, address);
    auto storeSecond = [&] { b.store(second, b.at(address, bytesOf(type))); };
    if (hasSecond)
      b.when(hasSecond, storeSecond);
    else
      storeSecond();
  }

private:
  Value fromBits(Value word, Type type) {
    return b.make<arith::BitcastOp>(type, b.make<arith::TruncIOp>(b.i16, word));
  }
  Value toBits(Value value) { return b.make<arith::BitcastOp>(b.i16, value); }

  KernelBuilder &b;
  int64_t columns;
};
} // namespace

/// Clones the region on one element.
static Value applyEpilogue(KernelBuilder &b, const GroupedKernel &kernel,
                           ArrayRef<Value> arguments) {
  if (!kernel.epilogue) {
    Value sum = arguments.front();
    return kernel.result.isF32() ? sum
                                 : b.make<arith::TruncFOp>(kernel.result, sum);
  }
  IRMapping mapping;
  mapping.map(kernel.epilogue->getArguments(), arguments);
  for (Operation &op : kernel.epilogue->without_terminator())
    b.builder.clone(op, mapping);
  return mapping.lookupOrDefault(
      kernel.epilogue->getTerminator()->getOperand(0));
}

SmallVector<SmallVector<SmallVector<Value>>>
mlir::moe::detail::emitStarts(KernelBuilder &b, const GroupedKernel &kernel,
                              const KernelOperands &operands, const Tile &tile,
                              Value column, int64_t columnTiles) {
  Value zero = b.zero(b.f32);
  SmallVector<SmallVector<SmallVector<Value>>> starts(
      kernel.weights, SmallVector<SmallVector<Value>>(
                          columnTiles, SmallVector<Value>(2, zero)));
  for (size_t w = 0; w < operands.bias.size(); ++w) {
    Value bias = operands.bias[w];
    Type type = kernel.bias[w];
    for (int64_t j = 0; j < columnTiles; ++j)
      for (int64_t v = 0; v < 2; ++v) {
        Value at = b.add(b.add(tile.column, column), 8 * j + v);
        Value index = b.add(b.mul(b.widen(tile.expert), kernel.n), b.widen(at));
        auto load = [&]() -> SmallVector<Value> {
          return {
              toF32(b, b.load(b.at(bias, b.mul(index, bytesOf(type))), type))};
        };
        starts[w][j][v] =
            kernel.n % kernel.schedule.tileN == 0
                ? load().front()
                : b.choose(b.compare(Predicate::slt, at, kernel.n), {b.f32},
                           load, [&]() -> SmallVector<Value> { return {zero}; })
                      .front();
      }
  }
  return starts;
}

void mlir::moe::detail::emitResults(KernelBuilder &b,
                                    const GroupedKernel &kernel,
                                    const KernelOperands &operands,
                                    const Tile &tile,
                                    const Fragment &fragment) {
  int64_t columns = kernel.contraction ? kernel.k : kernel.n;
  bool hasEdge = columns % kernel.schedule.tileN != 0;
  PairAccess access(b, columns);
  Value firstColumn = b.add(tile.column, fragment.column);

  auto emitPair = [&](int64_t i, int64_t h, int64_t j, Value row,
                      ArrayRef<Value> scalars) {
    Value column = b.add(firstColumn, 8 * j);
    // A pair may have only its first element left where the row has an odd
    // length.
    Value hasSecond;
    if (hasEdge && columns % 2)
      hasSecond = b.compare(Predicate::slt, column, columns - 1);
    SmallVector<Value> first, second;
    for (int64_t w = 0; w < kernel.weights; ++w) {
      first.push_back(fragment.sum(w, i, j, 2 * h));
      second.push_back(fragment.sum(w, i, j, 2 * h + 1));
    }
    auto load = [&](ArrayRef<Value> bases, ArrayRef<Type> types, Value index) {
      for (auto [base, type] : llvm::zip(bases, types)) {
        auto [x, y] = access.load(base, index, type, hasSecond);
        first.push_back(x);
        second.push_back(y);
      }
    };
    Value wide = b.widen(column);
    if (!operands.vectors.empty())
      load(operands.vectors, kernel.vectors,
           b.add(b.mul(b.widen(tile.expert), columns), wide));
    Value index = b.add(b.mul(row, columns), wide);
    load(operands.elements, kernel.elements, index);
    first.append(scalars.begin(), scalars.end());
    second.append(scalars.begin(), scalars.end());
    access.store(operands.result, index, applyEpilogue(b, kernel, first),
                 applyEpilogue(b, kernel, second), hasSecond);
  };

  for (int64_t i = 0; i < fragment.rowTiles; ++i)
    for (int64_t h = 0; h < 2; ++h) {
      Value inTile = b.add(fragment.rows[i], 8 * h);
      Value row, exists;
      if (kernel.contraction) {
        Value at = b.add(tile.resultRow, inTile);
        exists = b.compare(Predicate::slt, at, kernel.n);
        row = b.add(b.mul(b.widen(tile.expert), kernel.n), b.widen(at));
      } else {
        Value at = b.add(tile.firstRow, inTile);
        exists = b.compare(Predicate::slt, at, tile.endRow);
        row = b.widen(at);
      }
      b.when(exists, [&] {
        SmallVector<Value> scalars;
        for (auto [base, type] : llvm::zip(operands.scalars, kernel.scalars))
          scalars.push_back(
              b.load(b.at(base, b.mul(row, bytesOf(type))), type));
        for (int64_t j = 0; j < fragment.columnTiles; ++j) {
          if (!hasEdge) {
            emitPair(i, h, j, row, scalars);
            continue;
          }
          b.when(b.compare(Predicate::slt, b.add(firstColumn, 8 * j), columns),
                 [&] { emitPair(i, h, j, row, scalars); });
        }
      });
    }
}
