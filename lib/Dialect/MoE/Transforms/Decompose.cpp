// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"

#include "moira/Dialect/MoE/Transforms/DecomposeExpert.h"
#include "moira/Dialect/MoE/Transforms/Passes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::moe {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
struct DecomposePass : public moe::impl::DecomposePassBase<DecomposePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<GateOp> gates;
    getOperation()->walk([&](GateOp gate) { gates.push_back(gate); });
    for (GateOp gate : gates) {
      rewriter.setInsertionPoint(gate);
      (void)clipChoices(gate, rewriter);
    }

    SmallVector<Operation *> ops;
    WalkResult walked = getOperation()->walk([&](Operation *op) {
      if (!isa<MoEDialect>(op->getDialect()) || isa<VariantsOp, YieldOp>(op))
        return WalkResult::advance();
      if (hasBufferForm(op)) {
        op->emitError("expected '")
            << op->getName() << "' in tensor form, got its buffer form";
        return WalkResult::interrupt();
      }
      ops.push_back(op);
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    for (Operation *op : ops) {
      rewriter.setInsertionPoint(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case<GateOp, CountOp, CapacityOp, AssignOp, NoiseOp, LossOp,
                DispatchOp, CombineOp, SourcesOp, GroupedMatmulOp, PackOp,
                GateGradientOp, PairDotOp>(
              [&](auto typed) { decompose(rewriter, typed); })
          .Case([&](ExpertOp expert) { lowerExpertToLoops(rewriter, expert); })
          .Case([&](ReplicateOp op) { rewriter.replaceOp(op, op.getValue()); });
    }
    orderContractions(rewriter, getOperation());
  }
};
} // namespace
