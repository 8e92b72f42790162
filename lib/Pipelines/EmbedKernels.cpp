// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/NV/IR/NVDialect.h"
#include "moira/Pipelines/Passes.h"
#include "moira/Target/PTX.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::moe {
#define GEN_PASS_DEF_EMBEDKERNELSPASS
#define GEN_PASS_DEF_ERASEKERNELSPASS
#include "moira/Pipelines/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct EmbedKernels : public moe::impl::EmbedKernelsPassBase<EmbedKernels> {
  using EmbedKernelsPassBase::EmbedKernelsPassBase;

  void runOnOperation() override {
    for (auto image : getOperation().getOps<gpu::GPUModuleOp>()) {
      Builder b(&getContext());
      if (!image->hasAttr(nv::kArchAttrName))
        image->setAttr(nv::kArchAttrName, b.getStringAttr(arch));
      if (emulated)
        image->setAttr(nv::kEmulatedAttrName, b.getUnitAttr());
      if (!ptx)
        continue;
      llvm::Error error = embed(image, b);
      if (!error)
        continue;
      image.emitError() << llvm::toString(std::move(error));
      return signalPassFailure();
    }
  }

private:
  llvm::Error embed(gpu::GPUModuleOp image, Builder &b) {
    moira::GPUTarget target;
    target.chip = image->getAttrOfType<StringAttr>(nv::kArchAttrName).str();
    llvm::Expected<std::string> text = moira::translateToPTX(image, target);
    if (!text)
      return text.takeError();
    image->setAttr(nv::kPTXAttrName, b.getStringAttr(*text));
    if (moira::findPtxas().empty())
      return llvm::Error::success();
    llvm::Expected<moira::Assembly> assembly =
        moira::assemblePTX(*text, target);
    if (!assembly)
      return assembly.takeError();
    image->setAttr(nv::kCubinAttrName,
                   b.getStringAttr(assembly->cubin->getBuffer()));
    return llvm::Error::success();
  }
};

struct EraseKernels : public moe::impl::EraseKernelsPassBase<EraseKernels> {
  void runOnOperation() override {
    for (auto image :
         llvm::make_early_inc_range(getOperation().getOps<gpu::GPUModuleOp>()))
      image.erase();
    getOperation()->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
  }
};
} // namespace
