// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/EmulatedKernels.h"

#include "LoadedObject.h"
#include "moira/Conversion/Passes.h"
#include "moira/JIT/Diagnostics.h"
#include "moira/Target/HostTarget.h"

#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMIRToLLVMTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/LLVMIRToNVVMTranslation.h"
#include "mlir/Target/LLVMIR/Import.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Support/SourceMgr.h"

using namespace moira;

static constexpr llvm::StringLiteral moduleName = "kernels";

/// An error that begins with the path.
static llvm::Error errorOf(llvm::StringRef path, llvm::Error error) {
  return llvm::createStringError(path + ": " +
                                 llvm::toString(std::move(error)));
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
moira::importKernels(llvm::StringRef path, mlir::MLIRContext &context) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::DLTIDialect>();
  mlir::registerLLVMDialectImport(registry);
  mlir::registerNVVMDialectImport(registry);
  context.appendDialectRegistry(registry);

  llvm::LLVMContext own;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> read = llvm::parseIRFile(path, diagnostic, own);
  if (!read) {
    std::string line = diagnostic.getLineNo() > 0
                           ? ":" + std::to_string(diagnostic.getLineNo())
                           : "";
    return llvm::createStringError(path + line + ": expected LLVM IR, got '" +
                                   diagnostic.getMessage() + "'");
  }
  // Sizes and alignments are those of pointers of 64 bits from here on.
  read->setDataLayout("");
  ErrorCollector errors(&context);
  mlir::OwningOpRef<mlir::ModuleOp> imported = mlir::translateLLVMIRToModule(
      std::move(read), &context, /*emitExpensiveWarnings=*/false);
  if (!imported)
    return errorOf(path, errors.take("expected LLVM IR that can be imported"));

  mlir::Location loc = imported->getLoc();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder b(module->getBodyRegion());
  auto kernels = mlir::gpu::GPUModuleOp::create(b, loc, moduleName);
  mlir::Block *body = kernels.getBody();
  body->getOperations().splice(body->begin(),
                               imported->getBody()->getOperations());
  mlir::PassManager manager(&context);
  manager.nest<mlir::gpu::GPUModuleOp>().addPass(
      mlir::moe::createRaiseNVVMPass());
  if (mlir::failed(manager.run(*module)))
    return errorOf(path, errors.take("expected kernels that can be raised"));
  return module;
}

EmulatedKernels::EmulatedKernels() = default;
EmulatedKernels::~EmulatedKernels() = default;

llvm::Expected<std::unique_ptr<EmulatedKernels>>
EmulatedKernels::compile(mlir::ModuleOp module, llvm::StringRef name) {
  ErrorCollector errors(module.getContext());
  mlir::PassManager manager(module.getContext());
  auto &nested = manager.nest<mlir::gpu::GPUModuleOp>();
  nested.addPass(mlir::createCanonicalizerPass());
  nested.addPass(mlir::createCSEPass());
  nested.addPass(mlir::moe::createLowerGPUModulePass());
  nested.addPass(mlir::createCanonicalizerPass());
  nested.addPass(mlir::createCSEPass());
  manager.addPass(mlir::moe::createEmulateNVVMPass());
  if (mlir::failed(manager.run(module)))
    return errors.take("expected kernels that the emulated device can run");

  llvm::Expected<HostProcessor> processor = resolveProcessor("host");
  if (!processor)
    return processor.takeError();
  auto machine = HostTarget::create(*processor, 2);
  if (!machine)
    return machine.takeError();
  llvm::LLVMContext context;
  auto translated = (*machine)->translate(module, context);
  if (!translated)
    return translated.takeError();
  std::string symbol = (MOIRA_EMU_MODULE_PREFIX + name).str();
  (*machine)->optimize(**translated, {symbol});
  auto emitted = (*machine)->emit(**translated, HostTarget::Output::Object);
  if (!emitted)
    return emitted.takeError();
  auto loaded = LoadedObject::load(std::move(*emitted), {symbol}, JitSymbols());
  if (!loaded)
    return loaded.takeError();
  std::unique_ptr<EmulatedKernels> kernels(new EmulatedKernels);
  kernels->object = *loaded;
  kernels->description =
      static_cast<const moira_emu_module *>(kernels->object->find(symbol));
  return kernels;
}
