// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What becomes of the sums: the op's epilogue region, element by element, on
// the registers that hold them.

#include "GroupedCommon.h"

#include "mlir/IR/IRMapping.h"

#include <numeric>

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
  /// Accesses begin at even multiples of `unit` elements, or at any.
  PairAccess(KernelBuilder &b, int64_t unit) : b(b), isEven(unit % 2 == 0) {}

  /// `index` is that of the first element; `second` whether there is another.
  std::pair<Value, Value> load(Value base, Value index, Type type,
                               Value hasSecond) {
    Value address = b.at(base, b.mul(index, bytesOf(type)));
    if (isEven && bytesOf(type) == 2) {
      return unpack(b.load(address, b.i32), type);
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
    if (isEven && bytesOf(type) == 2)
      return b.store(pack(first, second), address);
    if (isEven) {
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

  std::pair<Value, Value> unpack(Value word, Type type) {
    return {fromBits(word, type), fromBits(b.shiftRight(word, 16), type)};
  }
  /// Two values of 16 bits as a word, the first in its lower half.
  Value pack(Value first, Value second) {
    Value high = b.make<arith::ExtUIOp>(b.i32, toBits(second));
    high = b.make<arith::ShLIOp>(high, b.number(16));
    return b.bitOr(b.make<arith::ExtUIOp>(b.i32, toBits(first)), high);
  }

private:
  Value fromBits(Value word, Type type) {
    return b.make<arith::BitcastOp>(type, b.make<arith::TruncIOp>(b.i16, word));
  }
  Value toBits(Value value) { return b.make<arith::BitcastOp>(b.i16, value); }

  KernelBuilder &b;
  bool isEven;
};
} // namespace

/// Clones the region on one element: a value of each result.
static SmallVector<Value> applyEpilogue(KernelBuilder &b,
                                        const GroupedKernel &kernel,
                                        ArrayRef<Value> arguments) {
  if (!kernel.epilogue) {
    Value sum = arguments.front();
    Type type = kernel.results.front();
    return {type.isF32() ? sum : b.make<arith::TruncFOp>(type, sum)};
  }
  IRMapping mapping;
  mapping.map(kernel.epilogue->getArguments(), arguments);
  for (Operation &op : kernel.epilogue->without_terminator())
    b.builder.clone(op, mapping);
  return llvm::map_to_vector(
      kernel.epilogue->getTerminator()->getOperands(),
      [&](Value value) { return mapping.lookupOrDefault(value); });
}

SmallVector<SmallVector<SmallVector<Value>>>
mlir::moe::detail::emitStarts(KernelBuilder &b, const GroupedKernel &kernel,
                              const KernelOperands &operands, const Tile &tile,
                              Value column, int64_t columnTiles) {
  Value zero = b.zero(b.f32);
  SmallVector<SmallVector<SmallVector<Value>>> starts(
      kernel.sums(), SmallVector<SmallVector<Value>>(
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
            kernel.blockColumns() % kernel.schedule.tileN == 0
                ? load().front()
                : b.choose(b.compare(Predicate::slt, at, tile.endColumn),
                           {b.f32}, load,
                           [&]() -> SmallVector<Value> { return {zero}; })
                      .front();
      }
  }
  return starts;
}

namespace {
/// The epilogue and the stores of one tile. Where it can, a row's results of 16
/// bits leave as 16 bytes per lane: four lanes have two neighbours each of four
/// columns of tiles, and exchange them so that each has one tile's eight.
class ResultWriter {
public:
  ResultWriter(KernelBuilder &b, const GroupedKernel &kernel,
               const KernelOperands &operands, const Tile &tile,
               const Fragment &fragment)
      : b(b), kernel(kernel), operands(operands), tile(tile),
        fragment(fragment), columns(kernel.columns()),
        // Rows, and a tile's columns in them, begin at multiples of it.
        unit(std::gcd(columns, kernel.blockColumns())),
        hasEdge(kernel.blockColumns() % kernel.schedule.tileN != 0),
        access(b, unit), firstColumn(b.add(tile.column, fragment.column)) {
    isWide = unit % 8 == 0 && llvm::all_of(kernel.results, [](Type type) {
               return bytesOf(type) == 2;
             });
    lane = b.rem(b.thread(), 32);
  }
  void write();

private:
  using Pair = std::pair<Value, Value>;
  using Pairs = SmallVector<Pair>;
  void findRow(int64_t i, int64_t h);
  SmallVector<Value> loadScalars();
  /// `loaded`: the words of the elements, null for those that are not loaded.
  Pairs compute(int64_t i, int64_t h, int64_t j, ArrayRef<Value> scalars,
                ArrayRef<Value> loaded);
  SmallVector<Value> loadFour(Value base, Value isInside, Value index);
  void storePair(int64_t i, int64_t h, int64_t j, ArrayRef<Value> scalars);
  void storeFour(int64_t i, int64_t h, int64_t j, ArrayRef<Value> scalars);
  SmallVector<Value> exchange(ArrayRef<Value> words);
  Value columnOf(int64_t j) { return b.add(firstColumn, 8 * j); }
  /// Whether a pair has a second element: where rows are of odd length.
  Value hasSecond(Value column) {
    return hasEdge && unit % 2
               ? b.compare(Predicate::slt, b.add(column, 1), tile.endColumn)
               : Value();
  }

  KernelBuilder &b;
  const GroupedKernel &kernel;
  const KernelOperands &operands;
  const Tile &tile;
  const Fragment &fragment;
  int64_t columns, unit;
  bool hasEdge, isWide;
  PairAccess access;
  Value firstColumn, lane;
  /// Of the 8 rows that are written: this lane's, and whether it exists.
  Value row, exists;
};
} // namespace

void ResultWriter::findRow(int64_t i, int64_t h) {
  Value inTile = b.add(fragment.rows[i], 8 * h);
  if (kernel.contraction) {
    Value at = b.add(tile.resultRow, inTile);
    exists = b.compare(Predicate::slt, at, kernel.n);
    row = b.add(b.mul(b.widen(tile.expert), kernel.n), b.widen(at));
    return;
  }
  Value at = b.add(tile.firstRow, inTile);
  exists = b.compare(Predicate::slt, at, tile.endRow);
  row = b.widen(at);
}

SmallVector<Value> ResultWriter::loadScalars() {
  SmallVector<Value> scalars;
  for (auto [base, type] : llvm::zip(operands.scalars, kernel.scalars))
    scalars.push_back(b.load(b.at(base, b.mul(row, bytesOf(type))), type));
  return scalars;
}

/// Two neighbours of each result.
ResultWriter::Pairs ResultWriter::compute(int64_t i, int64_t h, int64_t j,
                                          ArrayRef<Value> scalars,
                                          ArrayRef<Value> loaded) {
  Value column = columnOf(j);
  SmallVector<Value> first, second;
  for (int64_t w = 0; w < kernel.sums(); ++w) {
    first.push_back(fragment.sum(w, i, j, 2 * h));
    second.push_back(fragment.sum(w, i, j, 2 * h + 1));
  }
  auto add = [&](Pair pair) {
    first.push_back(pair.first);
    second.push_back(pair.second);
  };
  Value wide = b.widen(column);
  if (!operands.vectors.empty()) {
    Value index = b.add(b.mul(b.widen(tile.expert), columns), wide);
    for (auto [base, type] : llvm::zip(operands.vectors, kernel.vectors))
      add(access.load(base, index, type, hasSecond(column)));
  }
  for (size_t e = 0; e < operands.elements.size(); ++e) {
    Type type = kernel.elements[e];
    if (e < loaded.size() && loaded[e])
      add(access.unpack(loaded[e], type));
    else
      add(access.load(operands.elements[e], b.add(b.mul(row, columns), wide),
                      type, hasSecond(column)));
  }
  first.append(scalars.begin(), scalars.end());
  second.append(scalars.begin(), scalars.end());
  return llvm::map_to_vector(llvm::zip(applyEpilogue(b, kernel, first),
                                       applyEpilogue(b, kernel, second)),
                             [](auto both) {
                               auto [one, next] = both;
                               return Pair(one, next);
                             });
}

void ResultWriter::storePair(int64_t i, int64_t h, int64_t j,
                             ArrayRef<Value> scalars) {
  auto store = [&] {
    Pairs pairs = compute(i, h, j, scalars, {});
    Value column = columnOf(j);
    Value index = b.add(b.mul(row, columns), b.widen(column));
    for (auto [result, pair] : llvm::zip(operands.results, pairs))
      access.store(result, index, pair.first, pair.second, hasSecond(column));
  };
  if (hasEdge)
    b.when(b.compare(Predicate::slt, columnOf(j), tile.endColumn), store);
  else
    store();
}

/// Transposes four words of four neighbouring lanes: lane q gets the q-th of
/// each, in the order of lanes.
SmallVector<Value> ResultWriter::exchange(ArrayRef<Value> words) {
  auto swap = [&](Value value, int64_t distance) -> Value {
    return b.makeHere<NVVM::ShflOp>(__FILE__, __LINE__, b.i32, b.number(-1),
                                    value, b.number(distance), b.number(31),
                                    NVVM::ShflKind::bfly, UnitAttr());
  };
  auto isSet = [&](int64_t bit) {
    return b.compare(Predicate::ne, b.bitAnd(lane, b.number(bit)), 0);
  };
  Value isOdd = isSet(1), isUpper = isSet(2);
  SmallVector<Value> pairs;
  for (int64_t t = 0; t < 4; t += 2) {
    Value other = swap(b.select(isOdd, words[t], words[t + 1]), 1);
    pairs.push_back(b.select(isOdd, other, words[t]));
    pairs.push_back(b.select(isOdd, words[t + 1], other));
  }
  SmallVector<Value> low, high;
  for (int64_t v = 0; v < 2; ++v) {
    Value other = swap(b.select(isUpper, pairs[v], pairs[2 + v]), 2);
    low.push_back(b.select(isUpper, other, pairs[v]));
    high.push_back(b.select(isUpper, pairs[2 + v], other));
  }
  return {low[0], low[1], high[0], high[1]};
}

/// Eight neighbours of 16 bits per lane, exchanged: a word of each tile.
SmallVector<Value> ResultWriter::loadFour(Value base, Value isInside,
                                          Value index) {
  return exchange(b.choose(
      isInside, SmallVector<Type>(4, b.i32),
      [&] {
        Value all =
            b.load(b.at(base, b.mul(index, 2)), VectorType::get({4}, b.i32));
        SmallVector<Value> words;
        for (int64_t t = 0; t < 4; ++t)
          words.push_back(b.make<LLVM::ExtractElementOp>(all, b.number(t)));
        return words;
      },
      [&] { return SmallVector<Value>(4, b.number(0)); }));
}

void ResultWriter::storeFour(int64_t i, int64_t h, int64_t j,
                             ArrayRef<Value> scalars) {
  // What this lane reads and writes: all of one tile's columns.
  Value column =
      b.add(b.add(b.sub(firstColumn, b.mul(b.rem(lane, 4), 2)), 8 * j),
            b.mul(b.rem(lane, 4), 8));
  Value isOwnInside = exists;
  if (hasEdge)
    isOwnInside =
        b.bitAnd(exists, b.compare(Predicate::slt, column, tile.endColumn));
  Value index = b.add(b.mul(row, columns), b.widen(column));
  SmallVector<SmallVector<Value>> elements;
  for (auto [base, type] : llvm::zip(operands.elements, kernel.elements))
    elements.push_back(bytesOf(type) == 2 ? loadFour(base, isOwnInside, index)
                                          : SmallVector<Value>(4));
  // words[r][t]: of result r, two of tile t.
  size_t count = kernel.results.size();
  SmallVector<SmallVector<Value>> words(count);
  for (int64_t t = 0; t < 4; ++t) {
    Value isInside = exists;
    if (hasEdge)
      isInside = b.bitAnd(
          exists, b.compare(Predicate::slt, columnOf(j + t), tile.endColumn));
    SmallVector<Value> now = b.choose(
        isInside, SmallVector<Type>(count, b.i32),
        [&]() -> SmallVector<Value> {
          SmallVector<Value> loaded;
          for (ArrayRef<Value> four : elements)
            loaded.push_back(four[t]);
          return llvm::map_to_vector(
              compute(i, h, j + t, scalars, loaded),
              [&](Pair pair) { return access.pack(pair.first, pair.second); });
        },
        [&] { return SmallVector<Value>(count, b.number(0)); });
    for (auto [all, word] : llvm::zip(words, now))
      all.push_back(word);
  }
  // All lanes of the warp, whether they have a row or not.
  for (SmallVector<Value> &all : words)
    all = exchange(all);
  b.when(isOwnInside, [&] {
    for (auto [result, four] : llvm::zip(operands.results, words)) {
      Value all = b.make<LLVM::PoisonOp>(VectorType::get({4}, b.i32));
      for (int64_t t = 0; t < 4; ++t)
        all = b.make<LLVM::InsertElementOp>(all, four[t], b.number(t));
      b.store(all, b.at(result, b.mul(index, 2)));
    }
  });
}

void ResultWriter::write() {
  SmallVector<Type> scalarTypes(kernel.scalars);
  for (int64_t i = 0; i < fragment.rowTiles; ++i)
    for (int64_t h = 0; h < 2; ++h) {
      findRow(i, h);
      int64_t j = 0;
      if (isWide && fragment.columnTiles >= 4) {
        SmallVector<Value> scalars;
        if (!scalarTypes.empty())
          scalars = b.choose(
              exists, scalarTypes, [&] { return loadScalars(); },
              [&] {
                return llvm::map_to_vector(
                    scalarTypes, [&](Type type) { return b.zero(type); });
              });
        for (; j + 4 <= fragment.columnTiles; j += 4)
          storeFour(i, h, j, scalars);
      }
      if (j == fragment.columnTiles)
        continue;
      b.when(exists, [&] {
        SmallVector<Value> scalars = loadScalars();
        for (; j < fragment.columnTiles; ++j)
          storePair(i, h, j, scalars);
      });
    }
}

void mlir::moe::detail::emitResults(KernelBuilder &b,
                                    const GroupedKernel &kernel,
                                    const KernelOperands &operands,
                                    const Tile &tile,
                                    const Fragment &fragment) {
  ResultWriter(b, kernel, operands, tile, fragment).write();
}
