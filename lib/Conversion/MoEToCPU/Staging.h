// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of parts of operands in the form that tile kernels read.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H

#include "BlockedProduct.h"

namespace mlir::moe::detail {

/// Columns `[first, first + size)` of a matrix.
struct Columns {
  Value first;
  int64_t size;
};

/// Copies `count` rows of `source` [rows, K] to the stage; `findRow(r)` is the
/// source of row r, and step 0 is at the first of `columns`. Widens elements,
/// or makes pairs of them, as `format` says; a missing second index of a pair
/// is 0.
void emitStageRows(LoopBuilder &b, const TileFormat &format, Value source,
                   Columns columns, Value count,
                   function_ref<Value(Value)> findRow, StepRange range,
                   StagePlace place);

/// The halves of every word of a vector change places.
Value swapHalves(LoopBuilder &b, Value words);

/// Part of a matrix [rows, columns] in memory.
struct MatrixBlock {
  Value source;
  /// First row and column; how many rows there are from the first on.
  Value row, column, rows;
};

/// Where steps go: step s at `offset + s * stride`, in elements of `memref`:
/// those of panels, or of the stage.
struct StepsPlace {
  Value memref, offset, stride;
};

/// Copies rows of the block, `count` columns from column `block.column` on, to
/// `place`: a row widened to each step, or where `format` has pairs two rows.
/// Whole vectors are written, of pairs two at a time: there is room for them,
/// and `block.column` is a multiple of that. Rows beyond `block.rows` and
/// columns beyond the matrix are 0.
void emitStageSteps(LoopBuilder &b, const TileFormat &format,
                    const MatrixBlock &block, Value count, StepRange range,
                    const StepsPlace &place);

/// Makes a block of `format.width` columns, from `column` on, of a transposed
/// panel: `panels` is the flat memref of packed weights and `base` where the
/// expert's panels begin, of `steps` steps and `width` columns, in pairs as
/// `format` says.
void emitTransposedPanel(LoopBuilder &b, const TileFormat &format, Value panels,
                         Value base, int64_t steps, int64_t width, Value column,
                         StepRange range, const PanelPlace &place);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H
