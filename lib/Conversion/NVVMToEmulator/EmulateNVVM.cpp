// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Emulation.h"

#include "moira/Conversion/Passes.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"

namespace mlir::moe {
#define GEN_PASS_DEF_EMULATENVVMPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static constexpr unsigned sharedSpace = unsigned(NVVM::NVVMMemorySpace::Shared);

Emulation::Emulation(ModuleOp host, gpu::GPUModuleOp module, bool instrument)
    : host(host), module(module), context(host.getContext()), builder(context),
      location(module.getLoc()), moduleName(module.getName()),
      instrument(instrument), i1(builder.getI1Type()),
      i32(builder.getI32Type()), i64(builder.getI64Type()),
      f32(builder.getF32Type()), pointer(LLVM::LLVMPointerType::get(context)),
      none(LLVM::LLVMVoidType::get(context)),
      tableName(symbol("moira_emu_table")) {}

std::string Emulation::symbol(StringRef name) const {
  return (name + "_" + moduleName).str();
}

LogicalResult Emulation::placeShared() {
  DataLayout layout(host);
  SmallVector<LLVM::GlobalOp> dynamic;
  int64_t dynamicAlignment = 16;
  for (auto global : module.getOps<LLVM::GlobalOp>()) {
    if (global.getAddrSpace() != sharedSpace)
      continue;
    int64_t alignment = global.getAlignment().value_or(16);
    auto array = dyn_cast<LLVM::LLVMArrayType>(global.getType());
    if (array && array.getNumElements() == 0) {
      dynamic.push_back(global);
      dynamicAlignment = std::max(dynamicAlignment, alignment);
      continue;
    }
    staticBytes = llvm::alignTo(staticBytes, alignment);
    shared[global.getSymName()] = {staticBytes, false};
    staticBytes += layout.getTypeSize(global.getType()).getFixedValue();
  }
  // All that is dynamic begins at one place, as on the hardware.
  dynamicOffset = llvm::alignTo(staticBytes, dynamicAlignment);
  for (LLVM::GlobalOp global : dynamic)
    shared[global.getSymName()] = {dynamicOffset, true};
  return success();
}

LogicalResult Emulation::collectKernels() {
  for (Operation &op : *module.getBody()) {
    if (isa<LLVM::GlobalOp>(op))
      continue;
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (!function)
      return op.emitOpError("expected functions and globals of the LLVM "
                            "dialect in a GPU module");
    moved.push_back(function);
    if (!function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()) &&
        !function->hasAttr(gpu::GPUDialect::getKernelFuncAttrName()))
      continue;
    Kernel kernel;
    kernel.function = function;
    kernel.name = function.getSymName().str();
    for (auto [i, type] :
         llvm::enumerate(function.getFunctionType().getParams())) {
      auto byValue = dyn_cast_or_null<TypeAttr>(
          function.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName()));
      kernel.parameters.push_back(byValue ? byValue.getValue() : type);
      kernel.byValue.push_back(bool(byValue));
    }
    if (auto threads = function->getAttrOfType<DenseI32ArrayAttr>(
            NVVM::NVVMDialect::getReqntidAttrName())) {
      kernel.threads = 1;
      for (int32_t size : threads.asArrayRef())
        kernel.threads *= size;
    }
    kernels.push_back(std::move(kernel));
  }
  return success();
}

/// The names of the GPU module live in the host's now.
void Emulation::moveOut() {
  llvm::StringMap<std::string> names;
  for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
    auto symbolOp = cast<SymbolOpInterface>(op);
    if (auto global = dyn_cast<LLVM::GlobalOp>(op))
      if (global.getAddrSpace() == sharedSpace) {
        op.erase();
        continue;
      }
    StringRef old = symbolOp.getName();
    // Declared functions are those of the C library or of LLVM.
    bool isDeclared =
        isa<LLVM::LLVMFuncOp>(op) && cast<LLVM::LLVMFuncOp>(op).isExternal();
    if (!isDeclared) {
      std::string name = symbol(old);
      names[old] = name;
      symbolOp.setName(name);
    }
    op.moveBefore(module);
    if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op)) {
      for (NamedAttribute attribute :
           llvm::to_vector(function->getDiscardableAttrs()))
        function->removeDiscardableAttr(attribute.getName());
      function.removeArgAttrsAttr();
      function.setTargetFeaturesAttr({});
      function.setTargetCpuAttr({});
      if (!isDeclared)
        function.setLinkage(LLVM::Linkage::Internal);
    } else {
      cast<LLVM::GlobalOp>(op).setLinkage(LLVM::Linkage::Internal);
      moved.push_back(&op);
    }
  }
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](FlatSymbolRefAttr reference) -> std::optional<Attribute> {
        auto found = names.find(reference.getValue());
        if (found == names.end())
          return std::nullopt;
        return FlatSymbolRefAttr::get(context, found->second);
      });
  for (Operation *op : moved)
    if (isa<LLVM::LLVMFuncOp>(op))
      op->walk([&](Operation *inner) {
        if (inner != op)
          replacer.replaceElementsIn(inner, /*replaceAttrs=*/true);
      });
  module.erase();
}

void Emulation::dropAddressSpaces() {
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](LLVM::LLVMPointerType) { return pointer; });
  for (Operation *op : moved) {
    op->walk([](LLVM::AddrSpaceCastOp cast) {
      cast.getRes().replaceAllUsesWith(cast.getArg());
      cast.erase();
    });
    if (auto global = dyn_cast<LLVM::GlobalOp>(op))
      global.setAddrSpace(0);
    replacer.recursivelyReplaceElementsIn(op, /*replaceAttrs=*/true,
                                          /*replaceLocs=*/false,
                                          /*replaceTypes=*/true);
  }
}

/// What is called must exist on the host; nothing is skipped.
LogicalResult Emulation::checkCalls() {
  LogicalResult result = success();
  for (Operation *op : moved)
    op->walk([&](Operation *inner) {
      if (isa<LLVM::InlineAsmOp, LLVM::CallIntrinsicOp>(inner)) {
        inner->emitOpError("expected an op with an emulation, got one without");
        result = failure();
        return;
      }
      auto call = dyn_cast<LLVM::CallOp>(inner);
      if (!call || !call.getCallee())
        return;
      auto callee = host.lookupSymbol<LLVM::LLVMFuncOp>(*call.getCallee());
      if (callee && callee.isExternal()) {
        call.emitOpError("expected a function with a body, got a declaration "
                         "of '")
            << *call.getCallee() << "'";
        result = failure();
      }
    });
  return result;
}

LogicalResult Emulation::run() {
  // 1. What the launch must know.
  if (failed(placeShared()) || failed(collectKernels()))
    return failure();
  if (module.getOps<LLVM::ModuleFlagsOp>().begin() !=
      module.getOps<LLVM::ModuleFlagsOp>().end())
    return module.emitOpError("expected no module flags, got some");
  // 2. Calls for everything that the hardware does.
  if (instrument)
    watchAccesses();
  watchAccumulators();
  if (failed(lowerOps()) || failed(lowerRounding()))
    return failure();
  lowerSharedPointers();
  // 3. Ordinary functions with ordinary pointers.
  moveOut();
  dropAddressSpaces();
  if (failed(checkCalls()))
    return failure();
  // 4. What the loader looks for.
  makeDescription();
  return success();
}

namespace {
struct EmulateNVVM : public mlir::moe::impl::EmulateNVVMPassBase<EmulateNVVM> {
  using EmulateNVVMPassBase::EmulateNVVMPassBase;
  void runOnOperation() override;
};
} // namespace

void EmulateNVVM::runOnOperation() {
  ModuleOp host = getOperation();
  for (auto module :
       llvm::make_early_inc_range(host.getOps<gpu::GPUModuleOp>()))
    if (failed(Emulation(host, module, instrument).run()))
      return signalPassFailure();
  host->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
}
