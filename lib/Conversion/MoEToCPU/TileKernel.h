// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inner kernel of grouped matmuls: a block of staged rows times a block of
// one panel, added to accumulators in memory. It is a private function, one per
// module and format, so that every product, variant and mode shares its code.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_TILEKERNEL_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_TILEKERNEL_H

#include "LoopUtils.h"

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe::detail {

/// What the code of a tile kernel depends on. A *step* is one index of the
/// contraction, or two of them where panels hold pairs.
struct TileFormat {
  /// Of the panels in memory.
  FloatType element;
  FloatType accumulator;
  /// Panels side by side, and the columns of each.
  int64_t weights = 1, width = 1;
  /// Whether panels hold pairs of steps for the target's dot product: element
  /// `2 c` of a step is column c of its second index, `2 c + 1` of its first.
  bool pairs = false;
  /// Whether numbers of steps may be no multiples of `kUnroll`.
  bool ragged = false;
  /// Whether the stage has all rows of a step together: what is staged are
  /// columns of a matrix, which so need no transpose.
  bool stepsFirst = false;
  /// Lanes of a vector of accumulators, vectors of a tile's row per weight.
  int64_t lanes = 1, vectors = 1;
  /// Rows of a full tile.
  int64_t rows = 1;
  /// Whether the next block is fetched to the first-level cache.
  bool fetchesNear = false;

  /// Where it is set, complete sums are rounded to it and leave the kernel as
  /// results; each row of results has `resultRows` rows of sums, 1 or 2, of
  /// which the later one stands first in every pair.
  FloatType result;
  int64_t resultRows = 1;

  /// Steps per turn of the innermost loop.
  static constexpr int64_t kUnroll = 4;

  /// Chooses lanes and vectors for panels of the given kind.
  static TileFormat get(FloatType element, FloatType accumulator,
                        int64_t weights, int64_t width, bool pairs,
                        const CPUTileOptions &options);

  /// Elements of one step of one panel.
  int64_t stepElements() const { return width * (pairs ? 2 : 1); }
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }
  int64_t stepBytes() const { return stepElements() * elementBytes(); }
  /// Accumulators of one row: all columns of all weights.
  int64_t rowSums() const { return weights * width; }
  /// Columns of each weight in one tile.
  int64_t columns() const { return lanes * vectors; }
  /// Element of the stage: an accumulator, or a pair of factors as a word whose
  /// high half is the first index.
  Type stageElement() const;
  /// Whether results are rounded two vectors at once, by the instruction that
  /// is there where dot products are; of one row they are neighbours.
  bool roundsTwo() const {
    return pairs && result && result.isBF16() && vectors % 2 == 0;
  }
  /// Whether columns above `width` exist; a kernel needs whole vectors.
  bool isValid() const { return width % columns() == 0; }
};

/// Where a kernel writes results.
struct TileResult {
  /// memref<?xR>; where the first row and column go, and how far rows of
  /// results are apart.
  Value memref, offset, stride;
  /// Each run of 2^runShift columns begins `runStride` elements after the one
  /// before.
  Value runShift, runStride;
  /// i1: whether the sums are complete; whether they go past the caches, for
  /// which every vector is aligned.
  Value isComplete, streams;
};

/// A call of the kernel: `sums[r, c] = (fresh ? 0 : sums[r, c]) + sum over
/// steps of stage[r, s] * panel[s, c]`, one chain per element in increasing s.
/// Offsets are in elements; all values are of index type unless noted.
struct TileCall {
  /// memref<?xS>: rows of the left factor, `stride` elements apart, or with
  /// `stepsFirst` its steps.
  Value stage, stageOffset, stride;
  /// Number of rows, at least 1.
  Value rows;
  /// memref<?xB> per weight, and where the first step is in each.
  SmallVector<Value> panels;
  Value panelOffset;
  /// Number of steps; 0 is allowed.
  Value steps;
  /// memref<?xA>: `rowSums()` consecutive accumulators per row, weight by
  /// weight.
  Value sums, sumsOffset;
  /// i1.
  Value fresh;
  /// Of formats that have a result: then complete sums are not written.
  TileResult result;
  /// What to prefetch meanwhile: memref<?xB> per weight, where it begins, how
  /// many chunks of `kPrefetchBytes`, and how far they are apart; after each
  /// 2^aheadShift of them comes the next run, `aheadRun` elements further.
  SmallVector<Value> ahead;
  Value aheadOffset, aheadChunks, aheadStride, aheadShift, aheadRun;
};

/// A shift of chunks that are one run.
inline constexpr int64_t kOneRun = 62;

/// Bytes that one turn of the prefetching loop covers.
inline constexpr int64_t kPrefetchBytes = 256;

/// Emits a call of the kernel of `format`, which is added to the module around
/// `op` when it is not there.
void emitTileCall(LoopBuilder &b, Operation *op, const TileFormat &format,
                  const TileCall &call);

/// Emits prefetches of chunks `from` to `to - 1` of each memref, of which chunk
/// 0 is at `offset` and each `stride` elements after the one before, in runs of
/// 2^shift chunks that are `run` elements apart where `shift` is given. They go
/// to the second-level cache, or to the first where `isNear` is set.
void emitPrefetches(LoopBuilder &b, ValueRange memrefs, Value offset,
                    Value stride, Value from, Value to, Value shift = {},
                    Value run = {}, bool isNear = false);

/// `memref<?xT>` over all elements of a compact memref.
Value flatten(LoopBuilder &b, Value memref);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_TILEKERNEL_H
