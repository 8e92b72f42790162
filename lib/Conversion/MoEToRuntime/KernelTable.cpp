// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DeviceCalls.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/NV/IR/NVDialect.h"
#include "moira/device_abi.h"
#include "moira/emulator_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"

using namespace mlir;
using namespace mlir::moe;
namespace json = llvm::json;

static bool isKernel(LLVM::LLVMFuncOp function) {
  return function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName());
}

static Attribute nameOf(gpu::GPUModuleOp image, LLVM::LLVMFuncOp kernel) {
  return SymbolRefAttr::get(
      image.getSymNameAttr(),
      FlatSymbolRefAttr::get(kernel.getContext(), kernel.getSymName()));
}

KernelTable::KernelTable(ModuleOp module) : module(module) {
  for (auto image : module.getOps<gpu::GPUModuleOp>()) {
    forDevice = true;
    for (auto function : image.getOps<LLVM::LLVMFuncOp>())
      if (isKernel(function))
        shared.insert({nameOf(image, function), 0});
  }
  module.walk([&](nv::LaunchOp launch) {
    auto found = shared.find(launch.getKernel());
    if (found != shared.end())
      found->second =
          std::max<int64_t>(found->second, int64_t(launch.getShared()));
  });
}

int64_t KernelTable::find(SymbolRefAttr kernel) const {
  auto found = shared.find(kernel);
  return found == shared.end() ? -1 : found - shared.begin();
}

/// Bytes of each parameter: of tensor maps by value those of the map.
static json::Array parametersOf(LLVM::LLVMFuncOp kernel) {
  DataLayout layout = DataLayout::closest(kernel);
  json::Array bytes;
  for (auto [i, type] : llvm::enumerate(kernel.getFunctionType().getParams())) {
    auto byValue = dyn_cast_or_null<TypeAttr>(
        kernel.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName()));
    Type given = byValue ? byValue.getValue() : type;
    bytes.push_back(int64_t(layout.getTypeSize(given).getFixedValue()));
  }
  return bytes;
}

static int64_t threadsOf(LLVM::LLVMFuncOp kernel) {
  int64_t threads = 1;
  if (auto given = kernel->getAttrOfType<DenseI32ArrayAttr>(
          NVVM::NVVMDialect::getReqntidAttrName()))
    for (int32_t size : given.asArrayRef())
      threads *= size;
  return threads;
}

json::Object KernelTable::describe() {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  LLVM::GlobalOp::create(b, module.getLoc(), b.getI64Type(),
                         /*isConstant=*/true, LLVM::Linkage::Internal,
                         kKernelBaseName, b.getI64IntegerAttr(0));
  std::string code;
  json::Array images, kernels;
  for (auto image : module.getOps<gpu::GPUModuleOp>()) {
    json::Object object{{"name", image.getName()}};
    auto arch = image->getAttrOfType<StringAttr>(nv::kArchAttrName);
    object["arch"] = arch ? arch.getValue() : "sm_80";
    auto add = [&](StringRef key, StringRef attribute) {
      auto bytes = image->getAttrOfType<StringAttr>(attribute);
      if (!bytes)
        return;
      object[key] = json::Array{int64_t(code.size()), int64_t(bytes.size())};
      code += bytes.getValue();
    };
    add("ptx", nv::kPTXAttrName);
    add("cubin", nv::kCubinAttrName);
    if (image->hasAttr(nv::kEmulatedAttrName))
      object["emulated"] =
          (StringRef(MOIRA_EMU_MODULE_PREFIX) + image.getName()).str();
    for (auto function : image.getOps<LLVM::LLVMFuncOp>())
      if (isKernel(function))
        kernels.push_back(
            json::Object{{"name", function.getSymName()},
                         {"image", int64_t(images.size())},
                         {"threads", threadsOf(function)},
                         {"shared", shared.lookup(nameOf(image, function))},
                         {"parameters", parametersOf(function)}});
    images.push_back(std::move(object));
  }
  if (!code.empty())
    module->setAttr(kGPUCodeAttrName,
                    StringAttr::get(module.getContext(), code));
  return json::Object{{"abi", int64_t(MOIRA_DEVICE_ABI_VERSION)},
                      {"images", std::move(images)},
                      {"kernels", std::move(kernels)}};
}
