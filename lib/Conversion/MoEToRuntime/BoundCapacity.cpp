// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::moe {
#define GEN_PASS_DEF_BOUNDCAPACITYPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct BoundCapacity : public moe::impl::BoundCapacityPassBase<BoundCapacity> {
  void runOnOperation() override {
    getOperation().walk([](CapacityOp op) {
      if (!op.getCounts())
        return;
      ImplicitLocOpBuilder b(op.getLoc(), op);
      b.setInsertionPointAfter(op);
      auto constant = [&](int64_t value) {
        return arith::ConstantIndexOp::create(b, value);
      };
      int64_t alignment = op.getAlignment();
      Value most =
          arith::MaxSIOp::create(b, op.getTokens(), constant(op.getMinimum()));
      if (alignment > 1)
        most = arith::MulIOp::create(
            b, arith::CeilDivSIOp::create(b, most, constant(alignment)),
            constant(alignment));
      Value bounded = arith::MinSIOp::create(b, op.getResult(), most);
      op.getResult().replaceAllUsesExcept(bounded, bounded.getDefiningOp());
    });
  }
};
} // namespace
