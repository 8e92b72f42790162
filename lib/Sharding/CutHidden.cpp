// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"
#include "moira/Sharding/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CUTHIDDENPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

struct CutHidden : public moe::impl::CutHiddenPassBase<CutHidden> {
  using CutHiddenPassBase::CutHiddenPassBase;

  void runOnOperation() override {
    if (blocks < 1) {
      getOperation().emitError("expected at least one hidden block, got ")
          << blocks.getValue();
      return signalPassFailure();
    }
    if (blocks == 1)
      return;
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](ExpertOp expert) {
      Separability separability(expert);
      int64_t hidden = separability.getHiddenSize();
      if (!separability.isSeparable())
        return report(separability.getObstacle(), separability.getReason());
      if (hidden % blocks != 0)
        return report(expert, "a hidden dimension of " + Twine(hidden) +
                                  " has no " + Twine(blocks) + " equal blocks");
      cutLastProducts(rewriter, separability, blocks);
      numCut += separability.getLastProducts().size();
    });
  }

private:
  void report(Operation *op, const Twine &reason) {
    remark::missed(op->getLoc(), remark::RemarkOpts::name("CutHidden")
                                     .category(getArgument())
                                     .function(getOperation().getName()))
        << remark::add("'{0}' stays: {1}", op->getName().getStringRef().str(),
                       reason.str());
  }
};

} // namespace
