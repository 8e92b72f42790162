// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The register tile of a grouped matmul: a few rows by a few vectors of columns
// whose accumulators stay in registers over a block of the contraction.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe {

/// Where a tile stands. All values are of index type.
struct TilePosition {
  Value expert;
  /// First row of the tile in the result, and (without gather) in the rows.
  Value row;
  /// Index of the panel, and first column of the tile inside the panel.
  Value panel, panelColumn;
  /// First column of the tile in the result.
  Value column;
};

/// The part `[begin, end)` of the contraction that a tile does. The
/// accumulators of an element are kept in `sums` between blocks and continue
/// the same chain, so that blocks change no bit.
struct ContractionBlock {
  Value begin, end;
  /// Whether this is the first and the last block (i1); null: always.
  Value first, last;
  /// memref<rows x (weights * columns)> of accumulators, and the tile's first
  /// row in it; null when there is one block only.
  Value sums, sumsRow;
  /// memref<row tile x k> that holds the tile's rows widened to the
  /// accumulator's type, column 0 standing for `begin`; null when they need no
  /// widening.
  Value stage;
};

/// What to prefetch while a tile runs: rows of a panel from `row` on, as many
/// per group of steps as `rate` says, starting `start` groups in.
struct TilePrefetch {
  Value panel, row;
  /// Fixed-point numbers (16 bits): rows per group, and rows done before.
  Value rate, start;
};

/// Emits register tiles of one grouped matmul over panels. Memrefs come with
/// their row dims collapsed ([rows, features]).
class RegisterTile {
public:
  RegisterTile(GroupedMatmulOp op, Value rows, Value result,
               SmallVector<Value> elements, SmallVector<Value> scalars,
               int64_t lanes, int64_t vectorsPerWeight)
      : op(op), rows(rows), result(result), elements(std::move(elements)),
        scalars(std::move(scalars)), lanes(lanes),
        vectorsPerWeight(vectorsPerWeight) {}

  /// Steps of the contraction per loop iteration: block sizes are multiples.
  static constexpr int64_t kUnroll = 4;

  /// Columns of each weight that one tile covers.
  int64_t columns() const { return lanes * vectorsPerWeight; }
  /// Whether rows must be widened before they are broadcast.
  bool needsStage();

  /// Emits a tile of exactly `numRows` rows.
  void emit(ImplicitLocOpBuilder &b, const TilePosition &position,
            const ContractionBlock &block,
            const std::optional<TilePrefetch> &prefetch, int64_t numRows);

private:
  using Accumulators = SmallVector<Value>;

  /// Accumulator of (row, weight, vector) in a flat list.
  int64_t index(int64_t row, int64_t weight, int64_t vector) {
    return (row * op.getWeights().size() + weight) * vectorsPerWeight + vector;
  }
  SmallVector<Value> emitMasks(ImplicitLocOpBuilder &b, Value column);
  SmallVector<Value> emitRowIndices(ImplicitLocOpBuilder &b, Value row,
                                    int64_t numRows);
  Accumulators emitInit(ImplicitLocOpBuilder &b, const TilePosition &position,
                        int64_t numRows);
  Accumulators moveSums(ImplicitLocOpBuilder &b, const ContractionBlock &block,
                        int64_t numRows, const Accumulators *toStore);
  void emitStage(ImplicitLocOpBuilder &b, const ContractionBlock &block,
                 ArrayRef<Value> rowIndices);
  void emitStep(ImplicitLocOpBuilder &b, const TilePosition &position,
                const ContractionBlock &block, ArrayRef<Value> rowIndices,
                Value k, MutableArrayRef<Value> accumulators);
  void emitPrefetch(ImplicitLocOpBuilder &b, const TilePosition &position,
                    const TilePrefetch &prefetch, Value from, Value to);
  Accumulators emitContraction(ImplicitLocOpBuilder &b,
                               const TilePosition &position,
                               const ContractionBlock &block,
                               const std::optional<TilePrefetch> &prefetch,
                               ArrayRef<Value> rowIndices, Accumulators init);
  void emitEpilogue(ImplicitLocOpBuilder &b, const TilePosition &position,
                    int64_t numRows, const Accumulators &accumulators);
  void emitStores(ImplicitLocOpBuilder &b, const TilePosition &position,
                  int64_t numRows, const Accumulators &accumulators,
                  ArrayRef<Value> masks);
  /// Loads `lanes` elements at [leading, column].
  Value load(ImplicitLocOpBuilder &b, Value memref, Value leading, Value column,
             Value mask);

  GroupedMatmulOp op;
  Value rows, result;
  SmallVector<Value> elements, scalars;
  int64_t lanes, vectorsPerWeight;
};

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H
