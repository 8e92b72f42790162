// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Raise.h"

#include "moira/Conversion/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::moe {
#define GEN_PASS_DEF_RAISENVVMPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// "nvvm.reqntid" = "128" or "16,8" of a function's further attributes.
static SmallVector<int32_t> requiredThreads(LLVM::LLVMFuncOp function) {
  SmallVector<int32_t> sizes;
  ArrayAttr attributes = function.getPassthroughAttr();
  for (Attribute attribute :
       attributes ? attributes.getValue() : ArrayRef<Attribute>()) {
    auto pair = dyn_cast<ArrayAttr>(attribute);
    if (!pair || pair.size() != 2 ||
        cast<StringAttr>(pair[0]) != NVVM::NVVMDialect::getReqntidAttrName())
      continue;
    for (StringRef text : llvm::split(cast<StringAttr>(pair[1]), ',')) {
      int32_t size = 0;
      if (text.getAsInteger(10, size))
        return {};
      sizes.push_back(size);
    }
    sizes.resize(3, 1);
  }
  return sizes;
}

/// Keeps of a function's attributes what a kernel has here. What LLVM proved
/// for a GPU (which memory it touches) is not so for calls of an emulator.
static void cleanFunction(LLVM::LLVMFuncOp function) {
  OpBuilder b(function.getContext());
  bool isKernel = function.getCConv() == LLVM::CConv::PTX_Kernel;
  SmallVector<int32_t> threads = requiredThreads(function);
  LLVM::LLVMFuncOp clean = LLVM::LLVMFuncOp::create(
      b, function.getLoc(), function.getName(), function.getFunctionType(),
      isKernel ? LLVM::Linkage::External : function.getLinkage());
  clean.getBody().takeBody(function.getBody());
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    for (StringRef kept : {LLVM::LLVMDialect::getByValAttrName(),
                           LLVM::LLVMDialect::getAlignAttrName()})
      if (Attribute value = function.getArgAttr(i, kept))
        clean.setArgAttr(i, kept, value);
  if (isKernel)
    clean->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  if (!threads.empty())
    clean->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                   b.getDenseI32ArrayAttr(threads));
  function->getBlock()->getOperations().insert(function->getIterator(), clean);
  function.erase();
}

namespace {
struct RaiseNVVM : public mlir::moe::impl::RaiseNVVMPassBase<RaiseNVVM> {
  using RaiseNVVMPassBase::RaiseNVVMPassBase;
  void runOnOperation() override;
};
} // namespace

void RaiseNVVM::runOnOperation() {
  gpu::GPUModuleOp module = getOperation();
  for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
    if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op)) {
      // Declarations of intrinsics that calls do not need.
      if (function.isExternal() &&
          SymbolTable::symbolKnownUseEmpty(function, module))
        function.erase();
      else
        cleanFunction(function);
    } else if (!isa<LLVM::GlobalOp>(op)) {
      // Flags, identification, metadata.
      op.erase();
    }
  }
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<LLVM::CallIntrinsicOp, LLVM::InlineAsmOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    Raise raise(op);
    if (auto assembly = dyn_cast<LLVM::InlineAsmOp>(op)) {
      if (failed(raise.raise(assembly)))
        return signalPassFailure();
      continue;
    }
    auto call = cast<LLVM::CallIntrinsicOp>(op);
    if (failed(raise.raise(call))) {
      op->emitOpError("expected an intrinsic with an NVVM op, got '")
          << call.getIntrin() << "'";
      return signalPassFailure();
    }
  }
}
