// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Groups.h"

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"
#include "moira/Conversion/MoEToCPU/Routing.h"
#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CONVERTMOETOCPUPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct ConvertMoEToCPU
    : public mlir::moe::impl::ConvertMoEToCPUPassBase<ConvertMoEToCPU> {
  using ConvertMoEToCPUPassBase::ConvertMoEToCPUPassBase;
  void runOnOperation() override;
};
} // namespace

void ConvertMoEToCPU::runOnOperation() {
  RewritePatternSet patterns(&getContext());
  populateRoutingToLoopsPatterns(patterns);
  CPUTileOptions tiles;
  tiles.vectorBits = vectorBits;
  tiles.vectorRegisters = vectorRegisters;
  tiles.dotBF16 = dotBF16;
  tiles.rowTile = rowTile;
  tiles.vectorsPerRow = vectorsPerRow;
  tiles.cacheBytes = cacheBytes;
  tiles.streamRows = streamRows;
  tiles.prefetchLevel = prefetchLevel;
  if (rowTile < 1 || cacheBytes < (int64_t{1} << 16)) {
    getOperation().emitError("expected a tile of at least one row and a cache "
                             "of at least 64 KiB, got ")
        << tiles.rowTile << " and " << tiles.cacheBytes;
    return signalPassFailure();
  }
  if (prefetchLevel != 1 && prefetchLevel != 2) {
    getOperation().emitError("expected a prefetch level of 1 or 2, got ")
        << tiles.prefetchLevel;
    return signalPassFailure();
  }
  if (plain)
    populateUnpackedToLoopsPatterns(patterns);
  else
    populateGroupedMatmulToCPUPatterns(patterns, tiles);
  // The patterns create no moe ops, so one walk is enough.
  walkAndApplyPatterns(getOperation(), std::move(patterns));

  // Ops that say what the program is, not what it computes, and those that the
  // runtime answers.
  WalkResult result = getOperation().walk([](Operation *op) {
    if (!isa<MoEDialect>(op->getDialect()) ||
        isa<VariantsOp, RankOp, ChunksOp>(op) ||
        (isa<ReceiveSizesOp, SlotShardsOp, MergeRowsOp>(op) &&
         hasBufferForm(op)) ||
        (isCollective(op) && (hasBufferForm(op) || isa<WaitOp>(op))))
      return WalkResult::advance();
    op->emitOpError(hasBufferForm(op)
                        ? "expected a lowering to loops, got none"
                        : "expected the buffer form, got the tensor form");
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    signalPassFailure();
}
