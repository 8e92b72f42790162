// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace mlir::moe {
#define GEN_PASS_DEF_SEPARATEEMPTIESPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;

namespace {
struct SeparateEmpties
    : public moe::impl::SeparateEmptiesPassBase<SeparateEmpties> {
  void runOnOperation() override {
    SmallVector<tensor::EmptyOp> empties;
    getOperation()->walk([&](tensor::EmptyOp op) { empties.push_back(op); });
    for (tensor::EmptyOp empty : empties) {
      OpBuilder builder(empty);
      for (OpOperand &use : llvm::make_early_inc_range(empty->getUses()))
        if (isa<LoopLikeOpInterface>(use.getOwner()) && !empty->hasOneUse())
          use.set(builder.clone(*empty)->getResult(0));
    }
  }
};
} // namespace
