// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"

#include "moira/Dialect/MoE/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe {
#define GEN_PASS_DEF_EXPANDLOSSESPASS
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct ExpandLosses : public moe::impl::ExpandLossesPassBase<ExpandLosses> {
  void runOnOperation() override {
    SmallVector<LossOp> losses;
    getOperation()->walk([&](LossOp loss) { losses.push_back(loss); });
    IRRewriter rewriter(&getContext());
    for (LossOp loss : losses) {
      rewriter.setInsertionPoint(loss);
      moe::detail::decompose(rewriter, loss);
    }
    numLosses += losses.size();
  }
};
} // namespace
