// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Which tile of a grouped product is next, and how chains become one sum.

#include "GroupedCommon.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Where the columns of the tile `across` are.
static void placeInBlock(KernelBuilder &b, const GroupedKernel &kernel,
                         Value across, int64_t blockTiles, Tile &tile) {
  if (kernel.columnBlocks == 1) {
    tile.block = b.number(0);
    tile.column = tile.columnInBlock = b.mul(across, kernel.schedule.tileN);
    tile.endColumn = b.number(kernel.columns());
    return;
  }
  tile.block = b.div(across, blockTiles);
  tile.columnInBlock = b.mul(b.rem(across, blockTiles), kernel.schedule.tileN);
  Value begin = b.mul(tile.block, kernel.blockColumns());
  tile.column = b.add(begin, tile.columnInBlock);
  tile.endColumn = b.add(begin, kernel.blockColumns());
}

SmallVector<Value> mlir::moe::detail::forEachTile(
    KernelBuilder &b, const GroupedKernel &kernel,
    const KernelOperands &operands, ValueRange carried,
    function_ref<SmallVector<Value>(const Tile &, ValueRange)> body) {
  const GPUSchedule &s = kernel.schedule;
  int64_t blockTiles = llvm::divideCeil(kernel.blockColumns(), s.tileN);
  int64_t tilesN = kernel.columnBlocks * blockTiles;
  int64_t tilesM = llvm::divideCeil(kernel.n, s.tileM);
  Value experts = b.number(kernel.experts);
  auto sizeOf = [&](Value expert) {
    return b.load(b.at(operands.sizes, b.mul(b.widen(expert), 4)), b.i32);
  };
  Value grid = b.blocks();

  // tile, expert, first tile of the expert, first row of the expert.
  SmallVector<Value> start{b.block(), b.number(0), b.number(0), b.number(0)};
  start.append(carried.begin(), carried.end());
  SmallVector<Value> end = b.loopWhile(
      start,
      [&](ValueRange now) -> SmallVector<Value> {
        SmallVector<Value> place = b.loopWhile(
            now.slice(1, 3),
            [&](ValueRange at) -> SmallVector<Value> {
              Value expert = at[0], base = at[1], row = at[2];
              Value exists = b.compare(Predicate::ult, expert, experts);
              SmallVector<Value> next = b.choose(
                  exists, {b.i1, b.i32, b.i32},
                  [&]() -> SmallVector<Value> {
                    Value size = sizeOf(expert);
                    Value tiles = kernel.contraction
                                      ? b.number(tilesM * tilesN)
                                      : b.mul(b.ceilDiv(size, s.tileM), tilesN);
                    Value after = b.add(base, tiles);
                    return {b.compare(Predicate::uge, now[0], after), after,
                            b.add(row, size)};
                  },
                  [&]() -> SmallVector<Value> {
                    return {b.zero(b.i1), base, row};
                  });
              Value goesOn = next[0];
              return {goesOn, b.select(goesOn, b.add(expert, 1), expert),
                      b.select(goesOn, next[1], base),
                      b.select(goesOn, next[2], row)};
            },
            [](ValueRange at) { return SmallVector<Value>(at); });
        SmallVector<Value> values{b.compare(Predicate::ult, place[0], experts),
                                  now[0]};
        values.append(place);
        llvm::append_range(values, now.drop_front(4));
        return values;
      },
      [&](ValueRange now) -> SmallVector<Value> {
        Value local = b.sub(now[0], now[2]);
        Tile tile;
        tile.expert = now[1];
        Value first =
            kernel.padded ? b.mul(tile.expert, operands.stride) : Value(now[3]);
        tile.endRow = b.add(first, sizeOf(tile.expert));
        Value down = b.mul(b.div(local, tilesN), s.tileM);
        Value across = b.rem(local, tilesN);
        placeInBlock(b, kernel, across, blockTiles, tile);
        tile.resultRow = down;
        tile.firstRow = kernel.contraction ? first : b.add(first, down);
        SmallVector<Value> next{b.add(now[0], grid), now[1], now[2], now[3]};
        next.append(body(tile, now.drop_front(4)));
        return next;
      });
  return SmallVector<Value>(ArrayRef<Value>(end).drop_front(4));
}

//===----------------------------------------------------------------------===//
// Chains
//===----------------------------------------------------------------------===//

/// How often a number of chains is halved.
static int64_t halvings(int64_t chains) {
  return llvm::countr_zero(static_cast<uint64_t>(chains));
}

ChainFolder::ChainFolder(KernelBuilder &b, int64_t chains)
    : b(b), levels(halvings(chains)) {}

int64_t ChainFolder::depth(int64_t chains) {
  // One of each level waits for its neighbour, and one of the last for the
  // next in order, while another is summed.
  bool isPower = (chains & (chains - 1)) == 0;
  return halvings(chains) + (isPower ? 1 : 2);
}

void ChainFolder::add(ArrayRef<Value> sums) {
  parts.push_back({0, SmallVector<Value>(sums)});
  while (parts.size() > 1 &&
         parts[parts.size() - 2].level == parts.back().level) {
    Part last = parts.pop_back_val();
    Part &before = parts.back();
    for (auto [sum, other] : llvm::zip(before.sums, last.sums))
      sum = b.make<arith::AddFOp>(sum, other);
    before.level = std::min(before.level + 1, levels);
  }
}

SmallVector<Value> ChainFolder::take() {
  assert(parts.size() == 1 && "all chains are in one sum");
  return std::move(parts.front().sums);
}
