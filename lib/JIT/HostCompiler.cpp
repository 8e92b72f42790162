// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/HostCompiler.h"

#include "moira/Conversion/Passes.h"
#include "moira/JIT/Diagnostics.h"
#include "session/Manifest.h"

#include "mlir/IR/Verifier.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace moira;

HostCompiler::HostCompiler(JitOptions settings,
                           std::unique_ptr<HostTarget> machine)
    : settings(std::move(settings)), machine(std::move(machine)) {}

llvm::Expected<HostCompiler> HostCompiler::create(const JitOptions &options) {
  llvm::Expected<HostProcessor> processor = resolveProcessor(options.cpu);
  if (!processor)
    return processor.takeError();
  llvm::Expected<std::unique_ptr<HostTarget>> machine =
      HostTarget::create(*processor, options.optLevel);
  if (!machine)
    return machine.takeError();
  JitOptions settings = options;
  settings.pipeline.triple = processor->triple;
  settings.pipeline.cpu = processor->cpu;
  settings.pipeline.features = processor->features;
  settings.pipeline.vectorBits = processor->vectorBits;
  settings.pipeline.dotBF16 = processor->dotBF16;
  settings.pipeline.prefetchLevel = processor->prefetchLevel;
  return HostCompiler(std::move(settings), std::move(*machine));
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// Writes `module` as "NUMBER-PHASE.mlir" into `directory`.
static llvm::Error dumpPhase(mlir::ModuleOp module, llvm::StringRef directory,
                             Phase phase) {
  std::error_code error = llvm::sys::fs::create_directories(directory);
  llvm::SmallString<128> path(directory);
  llvm::sys::path::append(path, llvm::Twine(static_cast<int>(phase)) + "-" +
                                    stringifyPhase(phase) + ".mlir");
  if (!error) {
    llvm::raw_fd_ostream stream(path, error);
    if (!error) {
      module->print(stream);
      stream << '\n';
      stream.close();
      error = stream.error();
      stream.clear_error();
    }
  }
  if (!error)
    return llvm::Error::success();
  return llvm::createStringError(error, "%s: expected to write, got '%s'",
                                 path.c_str(), error.message().c_str());
}

llvm::Error HostCompiler::lower(mlir::ModuleOp module, Phase last) const {
  mlir::MLIRContext *context = module.getContext();
  PipelineOptions pipeline = settings.pipeline;
  if (pipeline.hiddenBlocks == 0)
    pipeline.hiddenBlocks = countHiddenBlocks(module, pipeline.ranks);
  ErrorCollector errors(context);
  auto run = [&](mlir::PassManager &manager, Phase phase) -> llvm::Error {
    if (mlir::failed(manager.run(module)))
      return errors.take("expected phase '" + stringifyPhase(phase) +
                         "' to succeed, got a failure without a message");
    return llvm::Error::success();
  };
  if (settings.dumpDirectory.empty()) {
    mlir::PassManager manager(context);
    // Once at the end instead of after each pass: a quarter of the time.
    manager.enableVerifier(false);
    buildPipeline(manager, last, pipeline);
    if (llvm::Error error = run(manager, last))
      return error;
    if (mlir::failed(mlir::verify(module)))
      return errors.take("expected a valid module at the end of phase '" +
                         stringifyPhase(last) + "', got another");
    return llvm::Error::success();
  }
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    Phase phase = static_cast<Phase>(i);
    mlir::PassManager manager(context);
    buildPhase(manager, phase, pipeline);
    if (llvm::Error error = run(manager, phase))
      return error;
    if (llvm::Error error = dumpPhase(module, settings.dumpDirectory, phase))
      return error;
  }
  return llvm::Error::success();
}

std::string moira::getGPUCode(mlir::ModuleOp module) {
  auto code =
      module->getAttrOfType<mlir::StringAttr>(mlir::moe::kGPUCodeAttrName);
  return code ? code.getValue().str() : "";
}

llvm::Expected<std::string> moira::getManifest(mlir::ModuleOp module) {
  auto text =
      module->getAttrOfType<mlir::StringAttr>(mlir::moe::kManifestAttrName);
  if (!text)
    return llvm::createStringError(
        "expected a module with the attribute 'moira.manifest', got none");
  return text.getValue().str();
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

std::vector<std::string> moira::listSymbols(const runtime::Manifest &manifest) {
  std::vector<std::string> symbols;
  for (const runtime::EntrySpec &entry : manifest.entries)
    for (const runtime::VariantSpec &variant : entry.variants) {
      symbols.push_back(variant.step);
      symbols.push_back(variant.workspace);
      if (!variant.shapes.empty())
        symbols.push_back(variant.shapes);
    }
  for (const runtime::ParameterSpec &parameter : manifest.parameters)
    symbols.push_back(parameter.pack);
  if (manifest.device)
    for (const runtime::ImageSpec &image : manifest.device->images)
      if (!image.emulated.empty())
        symbols.push_back(image.emulated);
  return symbols;
}

llvm::Expected<std::vector<std::string>>
moira::listSymbols(llvm::StringRef manifest) {
  Result<std::vector<int32_t>> grids = runtime::listGrids(manifest);
  if (!grids.ok())
    return llvm::createStringError(grids.status().message);
  std::vector<std::string> symbols;
  for (int32_t ranks : *grids) {
    Result<runtime::Manifest> grid = runtime::Manifest::parse(manifest, ranks);
    if (!grid.ok())
      return llvm::createStringError(grid.status().message);
    llvm::append_range(symbols, listSymbols(*grid));
  }
  return symbols;
}

llvm::Expected<std::unique_ptr<llvm::Module>>
HostCompiler::translate(mlir::ModuleOp module,
                        llvm::LLVMContext &context) const {
  llvm::Expected<std::string> text = getManifest(module);
  if (!text)
    return text.takeError();
  llvm::Expected<std::vector<std::string>> exported = listSymbols(*text);
  if (!exported)
    return exported.takeError();
  ErrorCollector errors(module.getContext());
  llvm::Expected<std::unique_ptr<llvm::Module>> translated =
      machine->translate(module, context);
  if (!translated)
    return errors.take(llvm::toString(translated.takeError()));
  machine->optimize(**translated, *exported);
  return translated;
}

llvm::Expected<CompiledObject>
HostCompiler::compile(mlir::ModuleOp module) const {
  if (llvm::Error error = lower(module, Phase::Target))
    return error;
  return emit(module);
}

llvm::Expected<CompiledObject> HostCompiler::emit(mlir::ModuleOp module) const {
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> translated =
      translate(module, context);
  if (!translated)
    return translated.takeError();
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> object =
      machine->emit(**translated, HostTarget::Output::Object);
  if (!object)
    return object.takeError();
  return CompiledObject{llvm::cantFail(getManifest(module)), std::move(*object),
                        getGPUCode(module)};
}
