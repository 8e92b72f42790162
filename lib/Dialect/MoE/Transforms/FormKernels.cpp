// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FormKernels.h"

#include "moira/Dialect/MoE/Transforms/DecomposeExpert.h"
#include "moira/Dialect/MoE/Transforms/Fusions.h"
#include "moira/Dialect/MoE/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::moe {
#define GEN_PASS_DEF_FORMKERNELSPASS
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// Erases what the formed kernels have replaced.
void eraseDeadOps(RewriterBase &rewriter, Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      rewriter.eraseOp(&op);
}

/// Checks that shards of parameters are whole blocks.
LogicalResult checkShards(func::FuncOp function, int64_t blocks) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto shard = function.getArgAttrOfType<ShardAttr>(i, kShardAttrName);
    if (shard && shard.getDim() && blocks % shard.getShards() != 0)
      return function.emitOpError("expected hidden blocks that ")
             << shard.getShards() << " shards of parameter #" << i
             << " divide, got " << blocks;
  }
  return success();
}

struct FormKernels : public moe::impl::FormKernelsPassBase<FormKernels> {
  using FormKernelsPassBase::FormKernelsPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    llvm::Expected<Fusions> fusions = parseFusions(*disableFusion);
    if (!fusions)
      return emitError(UnknownLoc::get(context),
                       "disable-fusion: " +
                           llvm::toString(fusions.takeError()));
    disabled = *fusions;
    return success();
  }

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isExternal())
      return;
    if (hiddenBlocks < 1) {
      function.emitError("expected at least one hidden block, got ")
          << hiddenBlocks.getValue();
      return signalPassFailure();
    }
    if (failed(checkShards(function, hiddenBlocks)))
      return signalPassFailure();
    IRRewriter rewriter(&getContext());
    SmallVector<ExpertOp> experts;
    function->walk([&](ExpertOp expert) { experts.push_back(expert); });
    for (ExpertOp expert : experts)
      formExpert(rewriter, expert);
    if (dense)
      for (Block &block : function.getFunctionBody())
        numFormed += formDenseKernels(
            rewriter, block, disabled,
            [&](const Mismatch &mismatch) { report(mismatch); });
    for (Block &block : function.getFunctionBody()) {
      eraseDeadOps(rewriter, block);
      if (!bitEnumContainsAny(disabled, Fusions::Gather))
        numGathers += fuseGathers(rewriter, block);
    }
    // What stays sums in the order of the kernels.
    orderContractions(rewriter, function);
  }

private:
  void report(const Mismatch &mismatch) {
    remark::missed(mismatch.op->getLoc(),
                   remark::RemarkOpts::name("FormKernels")
                       .category(getArgument())
                       .function(getOperation().getName()))
        << remark::add("'{0}' stays: {1}",
                       mismatch.op->getName().getStringRef().str(),
                       mismatch.reason);
  }

  void formExpert(RewriterBase &rewriter, ExpertOp expert) {
    Mismatch mismatch{expert, ""};
    std::optional<Separability> separability;
    int64_t blocks = 1;
    if (hiddenBlocks > 1) {
      separability.emplace(expert);
      if (separability->isSeparable())
        blocks = countHiddenBlocks(expert, *separability, hiddenBlocks);
    }
    bool isCut = blocks > 1 && separability->getHiddenSize() % blocks == 0;
    FailureOr<unsigned> formed = formExpertKernels(
        rewriter, expert, disabled, isCut ? &*separability : nullptr, blocks,
        mismatch, [&](const Mismatch &missed) { report(missed); });
    if (succeeded(formed)) {
      numFormed += *formed;
      return;
    }
    if (!mismatch.op)
      mismatch.op = expert;
    report(mismatch);
    ++numFallback;
    // Sums have the same order in loops.
    if (isCut)
      cutLastProducts(rewriter, *separability, blocks);
    lowerExpertToLoops(rewriter, expert);
  }

  Fusions disabled{};
};

} // namespace
