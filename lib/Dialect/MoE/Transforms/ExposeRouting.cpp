// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Transforms/Passes.h"

#include "moira/Dialect/MoE/Utils/BlockChoice.h"
#include "moira/Dialect/MoE/Utils/Entry.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/CallInterfaces.h"

namespace mlir::moe {
#define GEN_PASS_DEF_EXPOSEROUTINGPASS
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// Finds the gates of `function`, and checks that their values can be returned.
static LogicalResult collectGates(func::FuncOp function,
                                  SmallVectorImpl<GateOp> &gates) {
  WalkResult walked = function.walk([&](GateOp gate) {
    if (choosesInBlock(gate))
      return WalkResult::advance();
    if (gate->getParentOp() != function) {
      gate.emitOpError("expected to stand at the top level of '")
          << function.getSymName() << "', to expose its routing";
      return WalkResult::interrupt();
    }
    if (hasBufferForm(gate)) {
      gate.emitOpError("expected tensor form, to expose its routing");
      return WalkResult::interrupt();
    }
    gates.push_back(gate);
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

static LogicalResult exposeGates(func::FuncOp function, ArrayRef<GateOp> gates,
                                 bool replay) {
  if (!function.getBody().hasOneBlock())
    return function.emitOpError(
        "expected one block, to expose the routing inside");
  Operation *terminator = function.getBody().front().getTerminator();
  // What is for the way back alone stays last.
  unsigned position = function.getNumResults();
  if (function->hasAttr(kResidualsAttrName))
    function->setAttr(kRoutingAttrName, Builder(function).getI64IntegerAttr(
                                            2 * int64_t(gates.size())));
  if (auto residuals = function->getAttrOfType<IntegerAttr>(kResidualsAttrName))
    position -= residuals.getInt();
  for (GateOp gate : gates) {
    for (Value value : {Value(gate.getLogits()), Value(gate->getResult(0))}) {
      if (failed(function.insertResult(position, value.getType(), {})))
        return failure();
      terminator->insertOperands(position++, value);
    }
    if (!replay || gate.getRouter().getExpertChoice() || replaysBlocks(gate))
      continue;
    unsigned index = function.getNumArguments();
    if (failed(function.insertArgument(index, gate->getResult(0).getType(), {},
                                       gate.getLoc())))
      return failure();
    gate.getReplayMutable().assign(function.getArgument(index));
  }
  return success();
}

namespace {
struct ExposeRoutingPass
    : public moe::impl::ExposeRoutingPassBase<ExposeRoutingPass> {
  using ExposeRoutingPassBase::ExposeRoutingPassBase;

  void runOnOperation() override {
    if (!function.empty() &&
        !getOperation().lookupSymbol<func::FuncOp>(function)) {
      getOperation().emitError("expected a function '") << function << "'";
      return signalPassFailure();
    }
    for (auto candidate : getOperation().getOps<func::FuncOp>())
      if (isChosen(candidate) && failed(expose(candidate)))
        return signalPassFailure();
  }

private:
  bool isChosen(func::FuncOp candidate) {
    if (candidate.isDeclaration())
      return false;
    return function.empty() ? candidate.isPublic() && !isBackward(candidate)
                            : candidate.getSymName() == function;
  }

  LogicalResult expose(func::FuncOp candidate) {
    SmallVector<GateOp> gates;
    if (failed(collectGates(candidate, gates)))
      return failure();
    if (gates.empty())
      return success();
    if (auto uses = candidate.getSymbolUses(getOperation()))
      for (SymbolTable::SymbolUse use : *uses)
        if (isa<CallOpInterface>(use.getUser()))
          return use.getUser()->emitOpError("expected no call of '")
                 << candidate.getSymName()
                 << "', whose routing is to be exposed";
    return exposeGates(candidate, gates, replay);
  }
};
} // namespace
