// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What has no kernel of its own: loops over memrefs of a step become kernels,
// one thread per iteration of a parallel loop, one thread for all of another.
// Simple and right; what is worth more has a builder.

#include "Outliner.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::moe {
#define GEN_PASS_DEF_OUTLINEKERNELSPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Whether `op` does something that only the host can: then what is around it
/// is the host's.
static bool isOfHost(Operation *op) {
  return isa<scf::ParallelOp, nv::LaunchOp, nv::TensorMapOp, memref::AllocOp,
             memref::DeallocOp, func::CallOp>(op) ||
         isa<MoEDialect>(op->getDialect());
}

static bool hasWorkOfHost(Operation *op) {
  auto check = [&](Operation *inner) {
    return inner != op && isOfHost(inner) ? WalkResult::interrupt()
                                          : WalkResult::advance();
  };
  return op->walk(check).wasInterrupted();
}

/// Whether `op` reads or writes memory that a memref leads to.
static bool touchesMemory(Operation *op) {
  auto check = [](Operation *inner) {
    return isa<memref::LoadOp, memref::StoreOp, memref::CopyOp,
               memref::AtomicRMWOp, vector::LoadOp, vector::StoreOp,
               vector::TransferReadOp, vector::TransferWriteOp>(inner)
               ? WalkResult::interrupt()
               : WalkResult::advance();
  };
  return op->walk(check).wasInterrupted();
}

/// Whether threads can run the iterations of `loop`.
static LogicalResult checkParallel(scf::ParallelOp loop) {
  WalkResult result = loop->walk([](Operation *op) {
    if (auto inner = dyn_cast<scf::ParallelOp>(op)) {
      if (inner.getNumResults() == 0)
        return WalkResult::advance();
      inner.emitOpError("expected a loop without reductions on a GPU, got one "
                        "with");
      return WalkResult::interrupt();
    }
    if (!isa<memref::AllocOp, func::CallOp>(op))
      return WalkResult::advance();
    op->emitOpError("expected no such op in a kernel, got one");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// What the runtime answers may name memory of the device; a function of the
/// host may not.
static LogicalResult checkCall(func::CallOp call) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
  if ((callee && callee->hasAttr("moe.abi")) ||
      llvm::none_of(call->getOperandTypes(), llvm::IsaPred<MemRefType>))
    return success();
  return call.emitOpError("expected a kernel for a GPU, got a call of '")
         << call.getCallee() << "'";
}

namespace {
struct OutlineKernels
    : public mlir::moe::impl::OutlineKernelsPassBase<OutlineKernels> {
  using OutlineKernelsPassBase::OutlineKernelsPassBase;
  void runOnOperation() override;

private:
  static LogicalResult outline(Block &block, Launches &launches);
};
} // namespace

/// Whether the host runs `op` itself: it is in no loop that becomes a kernel.
static bool isRunByHost(Operation *op) {
  for (Operation *parent = op->getParentOp(); !isa<func::FuncOp>(parent);
       parent = parent->getParentOp())
    if (isa<scf::ParallelOp>(parent) || !hasWorkOfHost(parent))
      return false;
  return true;
}

/// Numbers that only the host writes and reads, such as tickets of transfers,
/// stay with it.
static void keepOnHost(func::FuncOp function) {
  function.walk([](memref::AllocOp alloc) {
    bool isOfHost = llvm::all_of(alloc->getUsers(), [](Operation *user) {
      return isa<memref::LoadOp, memref::StoreOp>(user) && isRunByHost(user);
    });
    if (isOfHost && alloc.getType().getElementType().isIndex())
      alloc->setAttr(nv::kOnHostAttrName, UnitAttr::get(alloc.getContext()));
  });
}

/// Whether `op` accesses memory that stays with the host.
static bool isAccessOnHost(Operation *op) {
  Value memref;
  if (auto store = dyn_cast<memref::StoreOp>(op))
    memref = store.getMemRef();
  Operation *definition = memref ? memref.getDefiningOp() : nullptr;
  return definition && definition->hasAttr(nv::kOnHostAttrName);
}

/// Constants are memory of the host: steps work on a copy.
static void copyConstants(func::FuncOp function) {
  SmallVector<memref::GetGlobalOp> constants;
  function.walk([&](memref::GetGlobalOp op) { constants.push_back(op); });
  for (memref::GetGlobalOp constant : constants) {
    OpBuilder b(constant);
    b.setInsertionPointAfter(constant);
    auto type = constant.getType();
    Value copy = memref::AllocOp::create(
        b, constant.getLoc(),
        MemRefType::get(type.getShape(), type.getElementType()));
    constant.replaceAllUsesWith(copy);
    memref::CopyOp::create(b, constant.getLoc(), constant, copy);
  }
}

LogicalResult OutlineKernels::outline(Block &block, Launches &launches) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto loop = dyn_cast<scf::ParallelOp>(op)) {
      if (failed(checkParallel(loop)))
        return failure();
      Outliner(&op, launches).outlineParallel(loop);
      continue;
    }
    if (isa<scf::ForOp, scf::IfOp, scf::WhileOp>(op)) {
      if (!hasWorkOfHost(&op)) {
        if (touchesMemory(&op) &&
            failed(Outliner(&op, launches).outlineSerial()))
          return failure();
        continue;
      }
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          if (failed(outline(inner, launches)))
            return failure();
      continue;
    }
    if (auto call = dyn_cast<func::CallOp>(op)) {
      if (failed(checkCall(call)))
        return failure();
      continue;
    }
    // The host reads and copies by itself.
    if (isa<memref::LoadOp, memref::CopyOp>(op) || isAccessOnHost(&op) ||
        !touchesMemory(&op))
      continue;
    if (failed(Outliner(&op, launches).outlineSerial()))
      return failure();
  }
  return success();
}

void OutlineKernels::runOnOperation() {
  Launches launches(getOperation());
  for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
    if (!isOfDevice(function))
      continue;
    copyConstants(function);
    keepOnHost(function);
    for (Block &block : function.getBody())
      if (failed(outline(block, launches)))
        return signalPassFailure();
  }
  numKernels += launches.count();
}
