// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Transpose.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::moe::detail;

/// Bits within which a processor shuffles at least cost; wider vectors are
/// lanes of so many, whose exchange is a shuffle of its own.
static constexpr int64_t kShuffleBits = 128;

namespace {
/// Shuffles of pairs of vectors that hold `lanes` lanes of `width` elements.
struct LaneShuffles {
  LoopBuilder &b;
  int64_t lanes, width;

  /// Runs of `run` elements from both by turns, lane by lane: those of the
  /// lower or of the upper half of every lane.
  Value interleave(Value first, Value second, int64_t run, bool upper) const {
    SmallVector<int64_t> mask;
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t i = 0; i < width; ++i) {
        int64_t from = (upper ? width / 2 : 0) + i / (2 * run) * run + i % run;
        mask.push_back((i / run % 2) * lanes * width + lane * width + from);
      }
    return b.make<vector::ShuffleOp>(first, second, mask);
  }
  /// Every `step`-th lane of a part of the first, then those of the second;
  /// `odd`: the part's other lanes.
  Value join(Value first, Value second, int64_t step, bool odd) const {
    SmallVector<int64_t> mask;
    for (int64_t source = 0; source < 2; ++source)
      for (int64_t i = 0; i < lanes / 2; ++i) {
        int64_t lane = step == 1 ? i + (odd ? lanes / 2 : 0) : step * i + odd;
        for (int64_t e = 0; e < width; ++e)
          mask.push_back((source * lanes + lane) * width + e);
      }
    return b.make<vector::ShuffleOp>(first, second, mask);
  }
  /// Exchanges lanes and vectors, of which there are as many.
  SmallVector<Value> exchange(ArrayRef<Value> v) const {
    if (lanes == 1)
      return SmallVector<Value>(v);
    if (lanes == 2)
      return {join(v[0], v[1], 1, false), join(v[0], v[1], 1, true)};
    Value low0 = join(v[0], v[1], 1, false), high0 = join(v[0], v[1], 1, true);
    Value low1 = join(v[2], v[3], 1, false), high1 = join(v[2], v[3], 1, true);
    return {join(low0, low1, 2, false), join(low0, low1, 2, true),
            join(high0, high1, 2, false), join(high0, high1, 2, true)};
  }
};
} // namespace

/// Exchanges the lanes of vectors among which squares of a lane's size are
/// transposed already: `perLane` neighbours are the columns of one square.
static SmallVector<Value> exchangeLanes(const LaneShuffles &shuffles,
                                        ArrayRef<Value> rows, int64_t perLane) {
  SmallVector<Value> columns(rows.size());
  for (int64_t m = 0; m < perLane; ++m) {
    SmallVector<Value> group;
    for (int64_t lane = 0; lane < shuffles.lanes; ++lane)
      group.push_back(rows[lane * perLane + m]);
    for (auto [lane, value] : llvm::enumerate(shuffles.exchange(group)))
      columns[lane * perLane + m] = value;
  }
  return columns;
}

SmallVector<Value> mlir::moe::detail::emitTranspose(LoopBuilder &b,
                                                    SmallVector<Value> rows) {
  int64_t size = rows.size();
  int64_t bits = cast<VectorType>(rows[0].getType()).getElementTypeBitWidth();
  int64_t perLane = std::min(size, kShuffleBits / bits);
  LaneShuffles shuffles{b, size / perLane, perLane};
  assert(shuffles.lanes <= 4 && "expected vectors of at most 512 bits");
  // In every lane, pairs of rows become runs twice as long.
  for (int64_t run = 1; run < perLane; run *= 2) {
    SmallVector<Value> next(rows);
    for (int64_t i = 0; i < size; ++i) {
      if (i & run)
        continue;
      // Where the lower half of a pair goes: columns are counted in order.
      int64_t base = i / (2 * run) * (2 * run), column = i % run;
      next[base + 2 * column] =
          shuffles.interleave(rows[i], rows[i + run], run, false);
      next[base + 2 * column + 1] =
          shuffles.interleave(rows[i], rows[i + run], run, true);
    }
    rows = std::move(next);
  }
  return exchangeLanes(shuffles, rows, perLane);
}

SmallVector<Value> mlir::moe::detail::emitPairTranspose(LoopBuilder &b,
                                                        ArrayRef<Value> rows) {
  int64_t size = rows.size(), half = size / 2;
  auto type = VectorType::get({2 * size}, b.builder.getI16Type());
  int64_t perLane = kShuffleBits / 16, lanes = 2 * size / perLane;
  LaneShuffles shuffles{b, lanes, perLane};
  // Two words of a row, four elements, become two words of the transpose.
  constexpr int64_t order[] = {3, 1, 2, 0};
  auto pick = [&](Value first, Value second, int64_t word) {
    SmallVector<int64_t> mask;
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t source = 0; source < 2; ++source)
        for (int64_t e : order)
          mask.push_back((source * lanes + lane) * perLane + 4 * word + e);
    return b.make<vector::ShuffleOp>(first, second, mask);
  };
  SmallVector<Value> columns(size);
  for (int64_t part = 0; part < 2; ++part) {
    SmallVector<Value> picked;
    for (int64_t i = part * half; i < (part + 1) * half; i += 2) {
      Value first = b.make<vector::BitCastOp>(type, rows[i]);
      Value second = b.make<vector::BitCastOp>(type, rows[i + 1]);
      picked.push_back(pick(first, second, 0));
      picked.push_back(pick(first, second, 1));
    }
    for (auto [i, value] :
         llvm::enumerate(exchangeLanes(shuffles, picked, /*perLane=*/2)))
      columns[2 * i + part] = value;
  }
  return columns;
}
