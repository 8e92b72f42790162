// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LoadedProgram.h"

#include "moira/JIT/ParseProgram.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Path.h"

#include <chrono>

using namespace moira;
using namespace moira::tools;

llvm::Error LoadedProgram::openSource(const std::string &path) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  warnings = std::make_unique<WarningPrinter>(context.get(), runToolName);
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> parsed =
      parseProgram(path, *context);
  if (!parsed)
    return parsed.takeError();
  module = std::move(*parsed);
  return llvm::Error::success();
}

llvm::Error LoadedProgram::openBundle() {
  auto file = runtime::BundleFile::open(options.program);
  if (!file.ok())
    return toError(file.status());
  auto grids = runtime::listGrids((*file)->contents().manifest);
  if (!grids.ok())
    return toError(grids.status().within(options.program));
  // Of several grids the one for the ranks that there are; one grid is checked
  // against them later.
  int32_t ranks = grids->size() > 1 ? int32_t(options.jit.pipeline.ranks) : 0;
  auto loaded = runtime::Program::load(*file, ranks);
  if (!loaded.ok())
    return toError(loaded.status().within(options.program));
  main = *loaded;
  return llvm::Error::success();
}

llvm::Error LoadedProgram::chooseEntry() {
  const runtime::Manifest &manifest = main->manifest();
  if (!options.entry.empty())
    entryIndex = manifest.findEntry(options.entry);
  else if (manifest.mainEntry() >= 0)
    entryIndex = manifest.mainEntry();
  else if (manifest.entries.size() > 1)
    entryIndex = manifest.findEntry("main");
  if (entryIndex >= 0 && !manifest.entries.empty()) {
    ownResultCount = entry().programResults();
    if (!options.grad || backward())
      return llvm::Error::success();
    return llvm::createStringError(options.program +
                                   ": --grad: expected a bundle compiled with "
                                   "--gradients, got one without");
  }
  std::string known;
  for (const runtime::EntrySpec &entry : manifest.entries)
    known += (known.empty() ? "'" : ", '") + entry.name + "'";
  return llvm::createStringError(
      options.program + ": --entry: expected one of " +
      (known.empty() ? "the program's entries (it has none)" : known) +
      ", got '" + options.entry + "'");
}

runtime::EntrySpec LoadedProgram::signature() const {
  runtime::EntrySpec signature = entry();
  if (options.grad)
    signature.inputs.insert(signature.inputs.end(),
                            backward()->inputs.begin() + entry().residuals,
                            backward()->inputs.end());
  return signature;
}

/// The function that the manifest's entry was made from.
static mlir::func::FuncOp findFunction(mlir::ModuleOp module,
                                       const std::string &name) {
  return module.lookupSymbol<mlir::func::FuncOp>(name);
}

llvm::Expected<std::unique_ptr<LoadedProgram>>
LoadedProgram::load(const RunOptions &options) {
  std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(options));
  const std::string &source =
      options.isBundle ? options.source : options.program;
  if (!source.empty())
    if (llvm::Error error = loaded->openSource(source))
      return error;
  if (options.isBundle) {
    if (llvm::Error error = loaded->openBundle())
      return error;
  } else {
    if (llvm::Error error = loaded->compileMain())
      return error;
  }
  if (llvm::Error error = loaded->chooseEntry())
    return error;
  if (!loaded->hasSource())
    return loaded;
  const std::string &name = loaded->entry().name;
  mlir::func::FuncOp function = findFunction(*loaded->module, name);
  if (!function)
    return llvm::createStringError(source + ": expected a function '" + name +
                                   "', got none");
  loaded->ownResultCount = function.getNumResults();
  return loaded;
}

JitOptions LoadedProgram::jitOptions() const {
  JitOptions jit = options.jit;
  const std::string &path = options.isBundle ? options.source : options.program;
  jit.pipeline.moduleName =
      path == "-" ? "stdin" : llvm::sys::path::filename(path).str();
  return jit;
}

llvm::Error LoadedProgram::compileMain() {
  JitOptions jit = jitOptions();
  jit.pipeline.exposeRouting = options.verify;
  auto started = std::chrono::steady_clock::now();
  auto program = options.variants
                     ? compileVariants(*module, jit, *options.variants)
                     : compile(*module, jit);
  if (!program)
    return program.takeError();
  main = *program;
  seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started)
          .count();
  return llvm::Error::success();
}

llvm::Expected<std::shared_ptr<const runtime::Program>>
LoadedProgram::compileAs(const CompileAs &as) const {
  JitOptions jit = jitOptions();
  jit.pipeline.oracle = as.oracle;
  jit.pipeline.device = {}; // comparisons are made on the processor
  jit.pipeline.exposeRouting = as.exposeRouting;
  jit.pipeline.replayRouting = as.replayRouting;
  jit.pipeline.entry = entry().name;
  // The folder has the phases of the program itself.
  jit.dumpDirectory.clear();
  jit.pipeline.ranks = 1;
  jit.pipeline.tokenBlocks = as.tokenBlocks ? entry().ranks : 0;
  // The order of sums that the ranks have.
  if (jit.pipeline.hiddenBlocks == 0)
    jit.pipeline.hiddenBlocks = main->manifest().hiddenBlocks;
  if (jit.pipeline.hiddenBlocks == 0)
    jit.pipeline.hiddenBlocks = countHiddenBlocks(*module, entry().ranks);
  return compile(*module, jit);
}

std::vector<GateInfo> LoadedProgram::gates(size_t expected) const {
  std::vector<GateInfo> found;
  mlir::func::FuncOp function = findFunction(*module, entry().name);
  function.walk([&](mlir::moe::GateOp gate) {
    mlir::moe::RouterAttr router = gate.getRouter();
    GateInfo info;
    info.isTopKOfLogits = gate->getNumOperands() == 1 &&
                          router.getGroups() == 1 && !router.getExpertChoice();
    info.takesReplay = !router.getExpertChoice();
    found.push_back(info);
  });
  if (found.size() != expected)
    found.assign(expected, GateInfo());
  return found;
}

size_t LoadedProgram::replayedGates() const {
  size_t count = 0;
  if (options.jit.pipeline.replayRouting)
    findFunction(*module, entry().name).walk([&](mlir::moe::GateOp gate) {
      count += gate.getRouter().getExpertChoice() ? 0 : 1;
    });
  return count;
}

std::string LoadedProgram::tokenDependence() const {
  std::string reason;
  mlir::ModuleOp source = *module;
  source.walk([&](mlir::Operation *op) {
    if (auto assign = llvm::dyn_cast<mlir::moe::AssignOp>(op))
      reason = assign.getCapacity() ? "moe.assign has a capacity" : "";
    else if (auto gate = llvm::dyn_cast<mlir::moe::GateOp>(op))
      reason = gate.getRouter().getExpertChoice()
                   ? "moe.gate lets experts choose tokens"
                   : "";
    else if (llvm::isa<mlir::moe::NoiseOp>(op))
      reason = "moe.noise draws by token number";
    return reason.empty() ? mlir::WalkResult::advance()
                          : mlir::WalkResult::interrupt();
  });
  return reason;
}
