// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the sums of a block of rows and a panel to the result.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_EPILOGUE_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_EPILOGUE_H

#include "Groups.h"
#include "TileKernel.h"

namespace mlir::moe::detail {

/// Starts and finishes the sums of a grouped matmul in mode rows. Sums are laid
/// out as in a TileCall.
class Epilogue {
public:
  Epilogue(GroupedMatmulOp op, const FlatOperands &flat,
           const TileFormat &format)
      : op(op), flat(flat), format(format) {}

  /// Where a panel's columns stand in the result, and where they end.
  struct Columns {
    Value first, end;
  };
  /// Writes the bias of `expert` to the sums of `rows` rows.
  void emitStart(LoopBuilder &b, Value expert, const Columns &columns,
                 Value rows, Value sums, Value offset);
  /// Whether the epilogue reads rows of other tensors.
  bool readsRows() const { return !flat.elements.empty(); }
  /// Asks for what it will read of them.
  void emitPrefetches(LoopBuilder &b, const RowBlock &block,
                      const Columns &columns);
  /// Applies the op's epilogue and stores the block's rows.
  void emit(LoopBuilder &b, const RowBlock &block, const Columns &columns,
            Value sums, Value offset);

private:
  void emitRows(LoopBuilder &b, const RowBlock &block, const Columns &columns,
                Value sums, Value offset, bool masked);
  /// The lanes of a vector at `column` that the result has.
  Value emitMask(LoopBuilder &b, const Columns &columns, Value column);
  /// Columns of a hidden block of the result, which panels do not cross.
  int64_t blockColumns() { return op.getN() / op.getBlocks(HiddenDim::N); }
  Value load(LoopBuilder &b, Value memref, Value leading, Value column,
             Value mask);
  void store(LoopBuilder &b, const Columns &columns, Value value, Value result,
             Value row, Value column, Value mask);

  GroupedMatmulOp op;
  const FlatOperands &flat;
  const TileFormat &format;
};

/// The row of the op's rows that row `row` of the product reads.
Value emitSourceRow(LoopBuilder &b, GroupedMatmulOp op, Value row);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_EPILOGUE_H
