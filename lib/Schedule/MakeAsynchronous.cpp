// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SplitChunks.h"

#include "moira/Schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::moe {
#define GEN_PASS_DEF_MAKEASYNCHRONOUSPASS
#include "moira/Schedule/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
struct MakeAsynchronous
    : public moe::impl::MakeAsynchronousPassBase<MakeAsynchronous> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration())
      return;
    SmallVector<scf::ForOp> loops;
    function.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      numLoops += splitChunks(loop);
    WalkResult result = function.walk([](Operation *op) {
      if (auto gather = dyn_cast<GatherWeightsOp>(op))
        return checkShards(gather);
      if (auto reduce = dyn_cast<ReduceWeightsOp>(op))
        return checkShards(reduce);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    hoistGathers(function);
    SmallVector<Operation *> transfers;
    function.walk([&](Operation *op) {
      if (isa<ExchangeOp, AllReduceOp, ReduceWeightsOp>(op) &&
          hasBufferForm(op))
        transfers.push_back(op);
    });
    for (Operation *op : transfers)
      if (isQueued(op))
        overlapTransfer(op);
      else
        startAndWait(op);
  }

private:
  /// Weights travel as ranges of memory.
  template <typename OpTy> static WalkResult checkShards(OpTy op) {
    if (!hasBufferForm(op) || op.isConcatenation())
      return WalkResult::advance();
    op.emitOpError("expected shards of dim 1 and one part, got dim ")
        << *op.getDim() << " and " << op.getParts() << " parts";
    return WalkResult::interrupt();
  }
  /// Whether others may run beside the transfer. Chunks that could not be split
  /// stay in their order.
  static bool isQueued(Operation *op) {
    auto exchange = dyn_cast<ExchangeOp>(op);
    if (!exchange)
      return true;
    auto queue = op->getAttrOfType<StringAttr>(kQueueAttrName);
    return queue && queue.getValue() == "communication" && !exchange.getChunk();
  }
  static void startAndWait(Operation *op) {
    OpBuilder b(op);
    WaitOp::create(b, op->getLoc(), startTransfer(b, op));
    op->erase();
  }
  static void hoistGathers(func::FuncOp function);
};
} // namespace

/// Whether `memref` is an argument of the entry, or a static view of one: never
/// written, and there from the beginning. Collects the views, outermost first.
static bool isArgument(Value memref, SmallVectorImpl<Operation *> &views) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>()) {
    if (view->getNumOperands() != 1)
      return false;
    views.push_back(view);
    memref = view.getViewSource();
  }
  auto argument = dyn_cast<BlockArgument>(memref);
  return argument && isa<func::FuncOp>(argument.getOwner()->getParentOp());
}

/// The last op before `gather` with a collective of another layer: the queue is
/// that layer's until then. Null if there is none.
static Operation *findLayerBefore(GatherWeightsOp gather) {
  if (!gather.getLayer())
    return nullptr;
  Operation *op = gather->getPrevNode();
  for (; op; op = op->getPrevNode()) {
    WalkResult result = op->walk([&](Operation *inner) {
      auto layer = inner->getAttrOfType<IntegerAttr>("layer");
      bool isOther = layer && layer.getInt() != int64_t(*gather.getLayer());
      // A wait has no layer; its start may be far up.
      return isa<WaitOp>(inner) || (isOther && isCollective(inner) &&
                                    !isa<GatherWeightsOp, StartGatherOp>(inner))
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    if (result.wasInterrupted())
      break;
  }
  return op;
}

static Value startGather(OpBuilder &b, GatherWeightsOp op) {
  return StartGatherOp::create(
      b, op.getLoc(), b.getIndexType(), op.getWeights(), op.getOuts()[0],
      /*replicated=*/!op.getDim(), op.getPlacement(), op.getLayerAttr());
}

void MakeAsynchronous::hoistGathers(func::FuncOp function) {
  SmallVector<GatherWeightsOp> gathers;
  function.walk([&](GatherWeightsOp op) {
    if (hasBufferForm(op))
      gathers.push_back(op);
  });
  Block &entry = function.front();
  // Where the next gather of a place goes, so that they keep their order.
  llvm::SmallDenseMap<Operation *, Operation *> lastAt;
  for (GatherWeightsOp gather : gathers) {
    OpBuilder b(gather);
    SmallVector<Operation *> views;
    Value whole = gather.getOuts()[0];
    auto alloc = whole.getDefiningOp<memref::AllocOp>();
    bool isEarly =
        gather->getBlock() == &entry && alloc && alloc->getNumOperands() == 0 &&
        alloc->getBlock() == &entry && isArgument(gather.getWeights(), views);
    if (!isEarly) {
      WaitOp::create(b, gather.getLoc(), startGather(b, gather));
      gather.erase();
      continue;
    }
    Operation *use = findFirstUse(gather, whole);
    Operation *before = findLayerBefore(gather);
    Operation *&last = lastAt[before];
    if (last)
      b.setInsertionPointAfter(last);
    else if (before)
      b.setInsertionPointAfter(before);
    else
      b.setInsertionPointToStart(&entry);
    for (Operation *view : llvm::reverse(views))
      if (b.getInsertionPoint() == entry.end() ||
          !view->isBeforeInBlock(&*b.getInsertionPoint()))
        view->moveBefore(&entry, b.getInsertionPoint());
    if (!alloc->isBeforeInBlock(&*b.getInsertionPoint()))
      alloc->moveBefore(&entry, b.getInsertionPoint());
    Value ticket = startGather(b, gather);
    last = ticket.getDefiningOp();
    b.setInsertionPoint(use);
    WaitOp::create(b, gather.getLoc(), ticket);
    gather.erase();
  }
}
