// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/jit.h"

#include "LoadedObject.h"
#include "ObjectCache.h"
#include "moira/JIT/HostCompiler.h"
#include "moira/JIT/Variants.h"
#include "session/HostCode.h"
#include "session/Program.h"

using namespace moira;

static llvm::Error toError(const Status &status) {
  return llvm::createStringError(status.message);
}

/// A program from an object and its manifest, if this machine can run it.
static llvm::Expected<std::shared_ptr<const runtime::Program>>
load(CompiledObject compiled, const JitSymbols &symbols) {
  Result<runtime::Manifest> manifest =
      runtime::Manifest::parse(compiled.manifest);
  if (!manifest.ok())
    return toError(manifest.status());
  if (Status status = runtime::checkTarget(manifest->target); !status.ok())
    return toError(status);
  llvm::Expected<std::shared_ptr<LoadedObject>> object = LoadedObject::load(
      std::move(compiled.object), listSymbols(*manifest), symbols);
  if (!object)
    return object.takeError();
  auto resolve = [&](const char *symbol) { return (*object)->find(symbol); };
  Result<std::shared_ptr<const runtime::Program>> program =
      runtime::Program::create(std::move(*manifest), resolve, *object, {},
                               compiled.gpuCode);
  if (!program.ok())
    return toError(program.status());
  return *program;
}

llvm::Expected<std::shared_ptr<const runtime::Program>>
moira::compile(mlir::ModuleOp module, const JitOptions &options) {
  llvm::Expected<HostCompiler> compiler = HostCompiler::create(options);
  if (!compiler)
    return compiler.takeError();
  const JitOptions &settings = compiler->options();

  ObjectCache cache(settings.cacheDirectory);
  std::string path;
  if (!settings.cacheDirectory.empty()) {
    path = cache.pathOf(module, settings);
    std::optional<CompiledObject> kept;
    if (settings.dumpDirectory.empty())
      kept = cache.read(path);
    if (kept) {
      llvm::Expected<std::shared_ptr<const runtime::Program>> program =
          load(std::move(*kept), settings.symbols);
      if (program)
        return program;
      // Not damaged, and still of no use: compile again, which rewrites it.
      llvm::consumeError(program.takeError());
    }
  }

  mlir::OwningOpRef<mlir::ModuleOp> clone = module.clone();
  llvm::Expected<CompiledObject> compiled = compiler->compile(*clone);
  if (!compiled)
    return compiled.takeError();
  if (!path.empty())
    cache.write(path, *compiled);
  return load(std::move(*compiled), settings.symbols);
}

llvm::Expected<std::shared_ptr<const runtime::Program>>
moira::compileVariants(mlir::ModuleOp module, const JitOptions &options,
                       const VariantOptions &variants) {
  llvm::Expected<HostCompiler> compiler = HostCompiler::create(options);
  if (!compiler)
    return compiler.takeError();
  VariantOptions one = variants;
  one.grids = {options.pipeline.ranks};
  auto merged = lowerVariants(module, compiler->options(), one);
  if (!merged)
    return merged.takeError();
  llvm::Expected<CompiledObject> compiled = compiler->emit(**merged);
  if (!compiled)
    return compiled.takeError();
  return load(std::move(*compiled), options.symbols);
}
