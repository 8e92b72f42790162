// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Pipelines/Passes.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Pipelines/Pipelines.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringExtras.h"

namespace mlir::moe {
#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "moira/Pipelines/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// The parameter argument that `value` is a view of, or null.
static BlockArgument findParameter(Value value) {
  while (Operation *view = value.getDefiningOp()) {
    if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
             tensor::ExtractSliceOp, tensor::CastOp, PackOp>(view))
      return {};
    value = view->getOperand(0);
  }
  auto argument = cast<BlockArgument>(value);
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  if (!function || !argument.getOwner()->isEntryBlock() ||
      !function.getArgAttr(argument.getArgNumber(), kParamAttrName))
    return {};
  return argument;
}

/// Whether `op` has a meaning only among several ranks.
static bool isOfRanks(Operation *op) {
  return isCollective(op) ||
         isa<RankOp, ChunksOp, ReceiveSizesOp, SlotShardsOp, MergeRowsOp>(op);
}

static LogicalResult verifyInput(Operation *op) {
  if (isOfRanks(op))
    return op->emitOpError("expected no collective at the end of phase input");
  return success();
}

/// The chunk that `op` works on, if it is one of the ops that have one.
static Value getChunk(Operation *op) {
  if (auto sizes = dyn_cast<ReceiveSizesOp>(op))
    return sizes.getChunk();
  if (auto merge = dyn_cast<MergeRowsOp>(op))
    return merge.getChunk();
  auto exchange = dyn_cast<ExchangeOp>(op);
  return exchange ? exchange.getChunk() : Value();
}

static LogicalResult verifyTensorForm(Operation *op, StringRef phase) {
  if (isOfRanks(op) &&
      (hasBufferForm(op) || isa<StartExchangeOp, StartGatherOp,
                                StartAllReduceOp, StartReduceOp, WaitOp>(op)))
    return op->emitOpError("expected no asynchronous or buffer form at the end "
                           "of phase ")
           << phase;
  return success();
}

static LogicalResult verifySharded(Operation *op, StringRef phase) {
  if (isa<ChunksOp>(op) || getChunk(op))
    return op->emitOpError("expected no chunks at the end of phase ") << phase;
  return verifyTensorForm(op, phase);
}

static LogicalResult verifyScheduled(Operation *op) {
  if (Value chunk = getChunk(op)) {
    auto argument = dyn_cast<BlockArgument>(chunk);
    auto loop = argument
                    ? dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp())
                    : scf::ForOp();
    if (!loop || loop.getInductionVar() != chunk ||
        !loop.getUpperBound().getDefiningOp<ChunksOp>())
      return op->emitOpError(
          "expected the chunk of a loop over 'moe.chunks' at "
          "the end of phase scheduled");
  }
  return verifyTensorForm(op, "scheduled");
}

static LogicalResult verifyKernels(Operation *op, bool rowMajor) {
  if (isa<ExpertOp>(op))
    return op->emitOpError("expected no expert at the end of phase kernels");
  auto matmul = dyn_cast<GroupedMatmulOp>(op);
  if (!matmul || matmul.hasPanels() || rowMajor)
    return success();
  for (Value weight : matmul.getWeights())
    if (findParameter(weight))
      return matmul.emitOpError("expected the panels of a parameter at the end "
                                "of phase kernels, got layout ")
             << stringifyWeightLayout(matmul.getLayout());
  return success();
}

static LogicalResult verifyBufferized(Operation *op) {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      if (isTensor(type))
        return op->emitOpError("expected no tensors at the end of phase "
                               "bufferized, got ")
               << type;
  if (auto function = dyn_cast<func::FuncOp>(op))
    for (TypeRange types : {TypeRange(function.getArgumentTypes()),
                            TypeRange(function.getResultTypes())})
      for (Type type : types)
        if (isTensor(type))
          return op->emitOpError("expected no tensors at the end of phase "
                                 "bufferized, got ")
                 << type;
  if (isa<ExchangeOp, GatherWeightsOp, AllReduceOp, ReduceWeightsOp>(op))
    return op->emitOpError("expected a start and a wait at the end of phase "
                           "bufferized");
  if (isa<bufferization::BufferizationDialect>(op->getDialect()))
    return op->emitOpError(
        "expected no bufferization op at the end of phase bufferized");
  return success();
}

static LogicalResult verifyTarget(Operation *op) {
  if (isa<ModuleOp>(op)) {
    if (!op->hasAttr(moe::kManifestAttrName))
      return op->emitOpError("expected '" + moe::kManifestAttrName +
                             "' at the end of phase target");
    return success();
  }
  if (!isa<LLVM::LLVMDialect>(op->getDialect()))
    return op->emitOpError(
        "expected only the LLVM dialect at the end of phase target");
  auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
  if (function && function.isExternal() &&
      (function.getName().starts_with("moira_") ||
       function.getName().starts_with("moe_")))
    return op->emitOpError("expected a definition at the end of phase target");
  return success();
}

static LogicalResult verify(moira::Phase end, Operation *op, bool rowMajor) {
  switch (end) {
  case moira::Phase::Input:
    return verifyInput(op);
  case moira::Phase::Sharded:
  case moira::Phase::Differentiated:
    return verifySharded(op, moira::stringifyPhase(end));
  case moira::Phase::Scheduled:
    return verifyScheduled(op);
  case moira::Phase::Kernels:
    return verifyKernels(op, rowMajor);
  case moira::Phase::Bufferized:
    return verifyBufferized(op);
  case moira::Phase::Target:
    return verifyTarget(op);
  }
  llvm_unreachable("not a phase");
}

namespace {
struct VerifyPhase : public moe::impl::VerifyPhasePassBase<VerifyPhase> {
  using VerifyPhasePassBase::VerifyPhasePassBase;

  void runOnOperation() override {
    std::optional<moira::Phase> end = moira::symbolizePhase(phase);
    if (!end) {
      getOperation().emitError("expected phase ")
          << llvm::join(llvm::map_range(moira::kPhases, moira::stringifyPhase),
                        ", ")
          << ", got '" << phase << "'";
      return signalPassFailure();
    }
    WalkResult result = getOperation()->walk([&](Operation *op) {
      return failed(verify(*end, op, rowMajor)) ? WalkResult::interrupt()
                                                : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
