// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/MoE/Utils/BlockChoice.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::moe {
#define GEN_PASS_DEF_NUMBERLAYERSPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct NumberLayers : public moe::impl::NumberLayersPassBase<NumberLayers> {
  void runOnOperation() override {
    Builder b(&getContext());
    int64_t next = 0, current = -1;
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (choosesInBlock(op))
        return;
      if (isa<GateOp>(op)) {
        if (auto given = op->getAttrOfType<IntegerAttr>("layer"))
          current = given.getInt();
        else
          current = next;
        next = std::max(next, current + 1);
      }
      if (current >= 0 && !op->hasAttr("layer") &&
          isa<GateOp, AssignOp, DispatchOp, ExpertOp, CombineOp, ChunksOp,
              GatherCountsOp, ReceiveSizesOp, ExchangeOp, SlotShardsOp,
              MergeRowsOp>(op))
        op->setAttr("layer", b.getI64IntegerAttr(current));
      // Gathers may stand before the gate of their layer.
      if (auto expert = dyn_cast<ExpertOp>(op))
        for (Value weight : expert.getPerExpert())
          if (auto gather = weight.getDefiningOp<GatherWeightsOp>();
              gather && !gather.getLayer())
            gather.setLayerAttr(expert.getLayerAttr());
    });
  }
};
} // namespace
