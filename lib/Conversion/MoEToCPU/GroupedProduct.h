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

/// Packed weights `[E, panels, steps, width]`, or with pairs of steps.
struct PanelShape {
  explicit PanelShape(MemRefType type)
      : panels(type.getDimSize(1)), steps(type.getDimSize(2)),
        width(type.getDimSize(3)), pairs(type.getRank() == 5) {}
  int64_t panels, steps, width;
  bool pairs;
};

/// Emits the parallel loop of one op. In order: the constructor, what the user
/// needs before the loop, `begin`, the user's `blocks.findPanel` and scratch,
/// `finish`.
class GroupedProduct {
public:
  /// `steps` of the contraction and `panels` of `format.width` columns.
  GroupedProduct(PatternRewriter &rewriter, GroupedMatmulOp op,
                 const TileFormat &format, int64_t steps, int64_t panels);

  /// Enters the body of the loop: `block` is the item's.
  void begin();
  /// Finds what item `number` reads first: its expert and first panel.
  using FindFirst = llvm::function_ref<PanelPlace(Value expert, Value panel)>;
  /// Emits the item, and leaves the body. `findNext` for items that prefetch.
  void finish(std::optional<FindFirst> findNext);

private:
  PatternRewriter &rewriter;
  GroupedMatmulOp op;
  TileFormat format;
  int64_t steps, panels, rowBlock, mostPanels;
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
