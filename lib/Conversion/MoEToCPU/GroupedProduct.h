// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A grouped matmul in mode rows as work items over (block of rows, range of
// panels): what the two directions of panels have in common.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_GROUPEDPRODUCT_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_GROUPEDPRODUCT_H

#include "BlockedProduct.h"
#include "Epilogue.h"
#include "Groups.h"

namespace mlir::moe::detail {

/// Emits the parallel loop of one op. In order: the constructor, what the user
/// needs before the loop, `begin`, the user's `blocks.findPanel` and scratch,
/// `finish`.
class GroupedProduct {
public:
  /// The op's N and K are static; panels of `format.width` columns do not cross
  /// hidden blocks.
  GroupedProduct(PatternRewriter &rewriter, GroupedMatmulOp op,
                 const TileFormat &format, const CPUTileOptions &options);

  /// Steps of a chain of the op's contraction.
  static int64_t countSteps(GroupedMatmulOp op, bool pairs);
  /// The hidden block of columns that a panel belongs to, and its first column
  /// in the block.
  Value blockOf(Value panel);
  Value columnInBlock(Value panel);
  /// The hidden block of the contraction that a chain belongs to: those of its
  /// products follow one another.
  Value partOf(Value chain);
  /// The one of `values`, of one type, that a chain of `chained` reads.
  Value chooseOf(Value chain, ValueRange values);

  /// Enters the body of the loop: `block` is the item's.
  void begin();
  /// Finds what item `number` reads first: its expert and first panel.
  using FindFirst = llvm::function_ref<PanelPlace(Value expert, Value panel)>;
  /// Emits the item, and leaves the body. `findNext` for items that prefetch.
  void finish(std::optional<FindFirst> findNext);

private:
  Epilogue::Columns columnsOf(Value panel);

  PatternRewriter &rewriter;
  GroupedMatmulOp op;
  TileFormat format;
  int64_t columnBlocks, parts, terms, chains, steps, blockPanels, panels,
      rowBlock, mostPanels;
  ImplicitLocOpBuilder ib;
  FlatOperands flat;
  Groups groups;
  RowBlocks rowBlocks;

public:
  LoopBuilder b;
  BlockedProduct blocks;
  RowBlock block;

private:
  Value range, ranges, items, number;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_GROUPEDPRODUCT_H
