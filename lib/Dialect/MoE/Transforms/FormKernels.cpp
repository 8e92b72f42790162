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
    FailureOr<unsigned> formed =
        formExpertKernels(rewriter, expert, disabled, mismatch);
    if (succeeded(formed)) {
      numFormed += *formed;
      return;
    }
    if (!mismatch.op)
      mismatch.op = expert;
    report(mismatch);
    ++numFallback;
    lowerExpertToLoops(rewriter, expert);
  }

  Fusions disabled{};
};

} // namespace
