// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One work item of a grouped product: a block of rows times a range of panels.
// Decides the blocks of the contraction and the order of work; where the
// factors come from and what becomes of the sums is its user's.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_BLOCKEDPRODUCT_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_BLOCKEDPRODUCT_H

#include "TileKernel.h"

namespace mlir::moe::detail {

/// A part of one chain of the contraction. All of index type.
struct StepRange {
  Value begin, steps, chain;
};

/// Where staged rows go: row r at `r * stride`, or where steps come first step
/// s at `s * stride`.
struct StagePlace {
  Value memref, stride;
};

/// Where a panel's steps are: the first at `offset`, in each of `memrefs`.
struct PanelPlace {
  SmallVector<Value> memrefs;
  Value offset;
};

/// What the steps of a panel are made from: `chunks` of `kPrefetchBytes`, as a
/// TileCall has them.
struct PanelSource {
  Value memref, offset, chunks, stride, shift, run;
};

class BlockedProduct {
public:
  /// `steps`: of a chain, or kDynamic. The sums of `chains` chains are added
  /// in pairs.
  BlockedProduct(const TileFormat &format, const CPUTileOptions &options,
                 int64_t steps, int64_t rowBlock, int64_t panelRange,
                 int64_t chains = 1);

  /// Bytes of the copy that `findPanel` makes, of every block then; 0: none.
  int64_t scratchBytes = 0;
  /// Neighbours among the chains, as many as divide them, each of which goes on
  /// from the sums of the one before instead of being added to them.
  int64_t links = 1;

  /// Writes the item's rows of a part of the contraction to the stage.
  std::function<void(StepRange, StagePlace)> stageRows;
  /// Finds, or makes, the steps of a panel.
  std::function<PanelPlace(Value panel, StepRange)> findPanel;
  /// Where it is set: what `findPanel` will make a panel of, to be fetched
  /// while the one before is multiplied.
  std::function<PanelSource(Value panel, StepRange)> findSource;
  /// Writes the start of every chain of a panel to `sums` from `offset` on;
  /// null: 0.
  std::function<void(Value panel, Value sums, Value offset)> startSums;
  /// Uses the sums of a panel.
  std::function<void(Value panel, Value sums, Value offset)> finishSums;
  /// Where it is set, asks memory for what `finishSums` will need, while the
  /// last steps are computed.
  std::function<void(Value panel)> prepareFinish;
  /// Where the format has a result: where that of a panel goes. Of one chain,
  /// and `finishSums` is not used.
  std::function<TileResult(Value panel)> findResult;

  /// What one item does. All of index type.
  struct Item {
    /// At least 1 and at most the row block.
    Value rows;
    /// Panels `begin` to `end - 1`, at most the range.
    Value begin, end;
    /// Steps of a chain.
    Value steps;
    /// What the next item reads first; null: nothing is prefetched.
    std::optional<PanelPlace> next;
  };

  /// Emits memory that items use, at the top of a parallel body.
  void emitScratch(LoopBuilder &b);
  /// Emits memory for a panel that `findPanel` makes.
  Value emitPanelScratch(LoopBuilder &b);
  void emit(LoopBuilder &b, Operation *op, const Item &item);

private:
  void emitChain(LoopBuilder &b, Operation *op, const Item &item, Value chain);
  /// Whether sums of all panels are kept at a time whatever the parts.
  bool keepsSums() const { return links > 1; }
  void finishPanel(LoopBuilder &b, const Item &item, Value panel, Value chain,
                   Value offset);
  void addInPairs(LoopBuilder &b, const Item &item, Value panel, Value block,
                  int64_t blocks, Value offset);
  void emitPanel(LoopBuilder &b, Operation *op, const Item &item, Value panel,
                 StepRange part);
  void fetchSource(LoopBuilder &b, const Item &item, TileCall &call,
                   Value panel, StepRange range, Value done);
  void choosePrefetch(LoopBuilder &b, const Item &item, TileCall &call,
                      Value panel, StepRange part, Value done);
  int64_t stageElements() const;
  int64_t stepStride() const;
  bool makesPanels() const { return scratchBytes > 0; }
  /// Steps of a block of so many bytes of all panels.
  int64_t stepsOf(int64_t bytes) const;
  int64_t blockSteps() const {
    return stepsOf(makesPanels() ? scratchBytes : options.blockBytes());
  }

  TileFormat format;
  CPUTileOptions options;
  int64_t steps, rowBlock, panelRange, chains;
  Value stage, sums, totals;
  /// Of the item being emitted: number of tiles, steps of a block and of a
  /// staged part, distance of staged rows.
  Value isSingle, block, part, stride;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_BLOCKEDPRODUCT_H
