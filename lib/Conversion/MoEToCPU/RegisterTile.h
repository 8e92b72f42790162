// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The register tile of a grouped matmul: a few rows by a few vectors of columns
// whose accumulators stay in registers over the whole contraction.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe {

/// Where a tile stands. All values are of index type.
struct TilePosition {
  Value expert;
  /// First row of the tile: in the result, and (without gather) in the rows.
  Value row;
  /// Index of the panel, and first column of the tile inside the panel.
  Value panel, panelColumn;
  /// First column of the tile in the result (panel * width + panelColumn).
  Value column;
};

/// Emits register tiles of one grouped matmul over panels. The op's memrefs are
/// collapsed to two dims ([rows, features]) by the caller where padded.
class RegisterTile {
public:
  /// `rows`, `result`, `elements`, `scalars` are the op's operands with the row
  /// dims collapsed; `vectorsPerWeight` vectors of `lanes` columns are computed
  /// for each weight.
  RegisterTile(GroupedMatmulOp op, Value rows, Value result,
               SmallVector<Value> elements, SmallVector<Value> scalars,
               int64_t lanes, int64_t vectorsPerWeight)
      : op(op), rows(rows), result(result), elements(std::move(elements)),
        scalars(std::move(scalars)), lanes(lanes),
        vectorsPerWeight(vectorsPerWeight) {}

  /// Columns that one tile covers.
  int64_t columns() const { return lanes * vectorsPerWeight; }

  /// Emits a tile of exactly `numRows` rows at `position`. With `masked`,
  /// columns beyond the result's N are neither read nor written.
  void emit(ImplicitLocOpBuilder &b, const TilePosition &position,
            int64_t numRows, bool masked);

private:
  using Accumulators = SmallVector<Value>;

  /// Accumulator of (row, weight, vector) in a flat list.
  int64_t index(int64_t row, int64_t weight, int64_t vector) {
    return (row * op.getWeights().size() + weight) * vectorsPerWeight + vector;
  }
  Accumulators emitInit(ImplicitLocOpBuilder &b, const TilePosition &position,
                        int64_t numRows, ArrayRef<Value> masks);
  Accumulators emitContraction(ImplicitLocOpBuilder &b,
                               const TilePosition &position,
                               ArrayRef<Value> rowIndices, Accumulators init);
  void emitEpilogue(ImplicitLocOpBuilder &b, const TilePosition &position,
                    int64_t numRows, const Accumulators &accumulators,
                    ArrayRef<Value> masks);
  /// Loads `lanes` elements at [index..., column + vector * lanes].
  Value load(ImplicitLocOpBuilder &b, Value memref, Value leading, Value column,
             Value mask);

  GroupedMatmulOp op;
  Value rows, result;
  SmallVector<Value> elements, scalars;
  int64_t lanes, vectorsPerWeight;
};

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_REGISTERTILE_H
