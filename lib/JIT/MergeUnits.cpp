// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "VariantUnits.h"

#include "moira/Conversion/Passes.h"
#include "moira/JIT/Diagnostics.h"
#include "moira/Variants/Passes.h"
#include "session/ManifestDevice.h"
#include "session/ManifestMerge.h"
#include "session/Predictions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringSet.h"

using namespace moira;
using namespace mlir;

/// Gives all that a unit defines names that no other unit has.
static void renameSymbols(CompiledUnit &unit, StringRef prefix) {
  MLIRContext *context = unit.module->getContext();
  DenseMap<StringAttr, StringAttr> names;
  for (Operation &op : *unit.module->getBody()) {
    // Functions of the C library keep theirs.
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (function && function.isExternal())
      continue;
    if (StringAttr name = SymbolTable::getSymbolName(&op)) {
      names[name] = StringAttr::get(context, prefix + name.getValue());
      SymbolTable::setSymbolName(&op, names[name]);
    }
  }
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](FlatSymbolRefAttr symbol) -> std::optional<Attribute> {
        auto it = names.find(symbol.getAttr());
        if (it == names.end())
          return std::nullopt;
        return FlatSymbolRefAttr::get(it->second);
      });
  replacer.recursivelyReplaceElementsIn(*unit.module, /*replaceAttrs=*/true);

  auto rename = [&](std::string &symbol) {
    if (!symbol.empty())
      symbol = (prefix + symbol).str();
  };
  for (runtime::EntrySpec &entry : unit.manifest.entries)
    for (runtime::VariantSpec &variant : entry.variants) {
      rename(variant.step);
      rename(variant.workspace);
      rename(variant.shapes);
    }
  for (runtime::ParameterSpec &parameter : unit.manifest.parameters)
    rename(parameter.pack);
  if (unit.manifest.device)
    for (runtime::ImageSpec &image : unit.manifest.device->images)
      rename(image.emulated);
}

/// The kernels of all units: every session of the program has them.
struct MergedKernels {
  runtime::DeviceSpec device;
  std::string code;
};

/// Numbers the unit's kernels behind those of the units before it.
static void addKernels(CompiledUnit &unit, StringRef prefix,
                       MergedKernels &kernels) {
  if (!unit.manifest.device)
    return;
  std::string name = (prefix + mlir::moe::kKernelBaseName).str();
  auto base = unit.module->lookupSymbol<LLVM::GlobalOp>(name);
  // A unit that launches nothing has lost it.
  if (base)
    base.setValueAttr(Builder(base.getContext())
                          .getI64IntegerAttr(kernels.device.kernels.size()));
  runtime::addDevice(kernels.device, *unit.manifest.device,
                     static_cast<int64_t>(kernels.code.size()));
  kernels.code += getGPUCode(*unit.module);
}

static void nameVariants(CompiledUnit &unit) {
  std::string name = unit.unit.name();
  for (runtime::EntrySpec &entry : unit.manifest.entries)
    if (entry.update.empty())
      for (runtime::VariantSpec &variant : entry.variants)
        variant.name = name + "-" + variant.name;
}

/// Moves what `unit` defines, and declares what no unit before it has.
static void moveInto(ModuleOp target, CompiledUnit &unit) {
  for (Operation &op : llvm::make_early_inc_range(*unit.module->getBody())) {
    StringAttr name = SymbolTable::getSymbolName(&op);
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (function && function.isExternal() && target.lookupSymbol(name))
      continue;
    op.remove();
    target.push_back(&op);
  }
}

/// Erases what can be reached from no symbol of the manifest: pack functions of
/// all units of a grid but the first.
static void eraseUnused(ModuleOp module, const llvm::StringSet<> &roots) {
  llvm::StringMap<Operation *> defined;
  for (Operation &op : *module.getBody())
    if (StringAttr name = SymbolTable::getSymbolName(&op))
      defined[name] = &op;
  llvm::StringSet<> reached;
  SmallVector<StringRef> worklist;
  for (const auto &root : roots)
    worklist.push_back(root.getKey());
  while (!worklist.empty()) {
    StringRef name = worklist.pop_back_val();
    Operation *op = defined.lookup(name);
    if (!op || !reached.insert(name).second)
      continue;
    op->walk([&](Operation *inner) {
      for (NamedAttribute attribute : inner->getAttrDictionary())
        attribute.getValue().walk([&](FlatSymbolRefAttr symbol) {
          worklist.push_back(symbol.getValue());
        });
    });
  }
  for (const auto &[name, op] : defined)
    if (!reached.contains(name))
      op->erase();
}

static int64_t countFunctions(ModuleOp module) {
  return llvm::count_if(module.getOps<LLVM::LLVMFuncOp>(),
                        [](auto function) { return !function.isExternal(); });
}

static llvm::Error fold(ModuleOp module) {
  ErrorCollector errors(module.getContext());
  PassManager manager(module.getContext());
  manager.enableVerifier(false);
  manager.addPass(moe::createFoldFunctionsPass());
  if (failed(manager.run(module)))
    return errors.take("expected functions to fold, got a failure");
  return llvm::Error::success();
}

/// The grid's manifest; symbols are those of the units.
static llvm::Expected<runtime::Manifest> mergeManifests(CompiledGrid &grid) {
  if (grid.units.size() > 1)
    for (CompiledUnit &unit : grid.units)
      nameVariants(unit);
  runtime::Manifest manifest = grid.units.front().manifest;
  for (CompiledUnit &unit : llvm::drop_begin(grid.units)) {
    Status status = runtime::mergeVariants(manifest, unit.manifest);
    if (!status.ok())
      return llvm::createStringError(status.message);
  }
  for (runtime::EntrySpec &entry : manifest.entries) {
    auto predictions = runtime::predictVariants(entry, runtime::predictedRows);
    if (!predictions.ok())
      return llvm::createStringError(predictions.status().message);
    for (auto [variant, one] : llvm::zip(entry.variants, *predictions))
      variant.peakBytes = one.peakBytes;
  }
  return std::move(manifest);
}

llvm::Expected<OwningOpRef<ModuleOp>>
moira::mergeUnits(std::vector<CompiledGrid> grids, int64_t hiddenBlocks) {
  ModuleOp first = *grids.front().units.front().module;
  OwningOpRef<ModuleOp> merged(ModuleOp::create(first.getLoc()));
  (*merged)->setAttrs(first->getAttrDictionary());
  std::vector<runtime::GridManifest> manifests;
  std::vector<std::string> notes;
  llvm::StringSet<> roots;
  MergedKernels kernels;
  for (CompiledGrid &grid : grids) {
    for (CompiledUnit &unit : grid.units) {
      std::string prefix;
      if (grids.size() > 1)
        prefix = "g" + std::to_string(grid.ranks) + "_";
      if (grid.units.size() > 1)
        prefix += unit.unit.name() + "_";
      std::replace(prefix.begin(), prefix.end(), '-', '_');
      renameSymbols(unit, prefix);
      addKernels(unit, prefix, kernels);
      moveInto(*merged, unit);
    }
    llvm::Expected<runtime::Manifest> manifest = mergeManifests(grid);
    if (!manifest)
      return manifest.takeError();
    for (const std::string &symbol : listSymbols(*manifest))
      roots.insert(symbol);
    llvm::append_range(notes, grid.notes);
    manifests.push_back({int32_t(grid.ranks), std::move(*manifest)});
  }
  for (const runtime::ImageSpec &image : kernels.device.images)
    roots.insert(image.emulated);
  eraseUnused(*merged, roots);
  int64_t before = countFunctions(*merged);
  if (llvm::Error error = fold(*merged))
    return std::move(error);
  int64_t after = countFunctions(*merged);
  notes.insert(notes.begin(), "folded " + std::to_string(before) +
                                  " functions of all variants into " +
                                  std::to_string(after));
  for (runtime::GridManifest &grid : manifests) {
    grid.manifest.notes = notes;
    grid.manifest.hiddenBlocks = hiddenBlocks;
    if (grid.manifest.device)
      grid.manifest.device = kernels.device;
  }
  if (!kernels.code.empty())
    (*merged)->setAttr(mlir::moe::kGPUCodeAttrName,
                       StringAttr::get(merged->getContext(), kernels.code));
  (*merged)->setAttr(mlir::moe::kManifestAttrName,
                     StringAttr::get(merged->getContext(),
                                     runtime::serializeGrids(manifests)));
  return merged;
}
