// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Sharding/Passes.h"

namespace mlir::moe {
#define GEN_PASS_DEF_FOLDREPLICATESPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

struct FoldReplicates
    : public moe::impl::FoldReplicatesPassBase<FoldReplicates> {
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (auto replicate = dyn_cast<ReplicateOp>(op))
        return replace(op, replicate.getValue());
      auto gather = dyn_cast<GatherWeightsOp>(op);
      if (!gather || hasBufferForm(gather))
        return;
      PlacementAttr placement = gather.getPlacement();
      bool moves = placement.getCopies() == 0 ||
                   (gather.getDim() && placement.getPartsPerGroup() > 1);
      Value weights = gather.getWeights();
      if (!moves && op->getResult(0).getType() == weights.getType())
        replace(op, weights);
    });
  }

private:
  static void replace(Operation *op, Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  }
};

} // namespace
