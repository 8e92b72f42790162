// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace mlir::moe {
#define GEN_PASS_DEF_BOUNDCAPACITYPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// The ids that were counted into `counts`, or null.
static Value findIds(Value counts) {
  for (Operation *user : counts.getUsers())
    if (auto count = dyn_cast<CountOp>(user))
      if (llvm::is_contained(count.getOuts(), counts))
        return count.getIds();
  return {};
}

static void boundByTokens(CapacityOp op, Value ids) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  b.setInsertionPointAfter(op);
  auto constant = [&](int64_t value) {
    return arith::ConstantIndexOp::create(b, value);
  };
  int64_t alignment = op.getAlignment();
  Value tokens = memref::DimOp::create(b, ids, 0);
  Value most = arith::MaxSIOp::create(b, tokens, constant(op.getMinimum()));
  if (alignment > 1)
    most = arith::MulIOp::create(
        b, arith::CeilDivSIOp::create(b, most, constant(alignment)),
        constant(alignment));
  Value bounded = arith::MinSIOp::create(b, op.getResult(), most);
  op.getResult().replaceAllUsesExcept(bounded, bounded.getDefiningOp());
}

namespace {
struct BoundCapacity : public moe::impl::BoundCapacityPassBase<BoundCapacity> {
  void runOnOperation() override {
    getOperation().walk([](CapacityOp op) {
      if (!op.getCounts())
        return;
      FloatAttr factor;
      bool isKnown = matchPattern(op.getFactor(), m_Constant(&factor));
      bool isPositive = isKnown && factor.getValueAsDouble() > 0;
      if (op.getRule() != CapacityRule::Tutel || isPositive) {
        op.getCountsMutable().clear();
        return;
      }
      // A positive factor may ask for more than there are tokens.
      if (Value ids = findIds(op.getCounts()); ids && isKnown)
        boundByTokens(op, ids);
    });
  }
};
} // namespace
