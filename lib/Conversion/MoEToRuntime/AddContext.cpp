// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AbiBuilder.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/MoE/Utils/Entry.h"

namespace mlir::moe {
#define GEN_PASS_DEF_ADDCONTEXTPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct AddContext : public moe::impl::AddContextPassBase<AddContext> {
  using AddContextPassBase::AddContextPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool any = false;
    for (auto variants : module.getOps<VariantsOp>())
      for (auto [i, name] : llvm::enumerate(variants.getFunctions())) {
        auto function = module.lookupSymbol<func::FuncOp>(
            cast<FlatSymbolRefAttr>(name).getValue());
        auto rowClass = cast<RowClassAttr>(variants.getClasses()[i]).getValue();
        addStep(function, variants.getSymName(), stringifyRowClass(rowClass));
        any = true;
      }
    if (!any) {
      FailureOr<SmallVector<func::FuncOp>> functions =
          findEntries(module, entry);
      if (failed(functions))
        return signalPassFailure();
      for (func::FuncOp function : *functions)
        addStep(function, function.getName(), "only");
    }
    for (auto function : module.getOps<func::FuncOp>())
      if (function->hasAttr("moe.update"))
        addStep(function, function.getName(), "only");
    addPacks();
    eraseOthers();
  }

private:
  void addStep(func::FuncOp function, StringRef entryName, StringRef variant) {
    Builder b(&getContext());
    addContext(function, "step");
    function->setAttr("moe.variant",
                      b.getDictionaryAttr(
                          {b.getNamedAttr("entry", b.getStringAttr(entryName)),
                           b.getNamedAttr("name", b.getStringAttr(variant))}));
  }

  void addContext(func::FuncOp function, StringRef kind) {
    Builder b(&getContext());
    (void)function.insertArgument(0, LLVM::LLVMPointerType::get(&getContext()),
                                  DictionaryAttr(), function.getLoc());
    function->setAttr(kKindAttrName, b.getStringAttr(kind));
  }

  /// Functions that the entry does not reach: other programs of the file.
  void eraseOthers() {
    ModuleOp module = getOperation();
    bool changed = true;
    while (changed) {
      changed = false;
      for (auto function : llvm::to_vector(module.getOps<func::FuncOp>())) {
        if (function.isDeclaration() || !getKind(function).empty() ||
            !SymbolTable::symbolKnownUseEmpty(function, module))
          continue;
        function.erase();
        changed = true;
      }
    }
  }

  /// Functions named by the packing of a parameter.
  void addPacks() {
    ModuleOp module = getOperation();
    for (auto function : llvm::to_vector(module.getOps<func::FuncOp>()))
      for (unsigned i = 0; i < function.getNumArguments(); ++i) {
        auto packing =
            function.getArgAttrOfType<DictionaryAttr>(i, "moe.packing");
        if (!packing)
          continue;
        auto name = packing.getAs<FlatSymbolRefAttr>("function");
        if (!name)
          continue;
        auto pack = module.lookupSymbol<func::FuncOp>(name.getValue());
        if (pack && getKind(pack).empty())
          addContext(pack, "pack");
      }
  }
};
} // namespace
