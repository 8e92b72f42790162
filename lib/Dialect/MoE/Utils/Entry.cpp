// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Utils/Entry.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

using namespace mlir;
using namespace mlir::moe;

/// The name of the function that computes the gradients of `op`, or empty.
static StringRef getBackward(Operation &op) {
  auto name = op.getAttrOfType<FlatSymbolRefAttr>(kBackwardAttrName);
  return name ? name.getValue() : StringRef();
}

bool mlir::moe::isBackward(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  return llvm::any_of(*module.getBody(), [&](Operation &op) {
    return getBackward(op) == function.getName();
  });
}

FailureOr<func::FuncOp> mlir::moe::findEntry(ModuleOp module, StringRef name) {
  if (name.empty()) {
    SmallVector<func::FuncOp> candidates;
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic() && !function.isExternal() &&
          !isBackward(function))
        candidates.push_back(function);
    if (candidates.size() == 1)
      return candidates.front();
    name = "main";
  }
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function || function.isExternal())
    return module.emitError("expected a function '")
           << name << "' with a body as entry, got none";
  return function;
}

FailureOr<SmallVector<func::FuncOp>> mlir::moe::findEntries(ModuleOp module,
                                                            StringRef name) {
  FailureOr<func::FuncOp> entry = findEntry(module, name);
  if (failed(entry))
    return failure();
  SmallVector<func::FuncOp> entries{*entry};
  StringRef backward = getBackward(**entry);
  if (backward.empty())
    return entries;
  auto function = module.lookupSymbol<func::FuncOp>(backward);
  if (!function || function.isExternal())
    return entry->emitOpError("expected a function '")
           << backward << "' with a body as its way back, got none";
  entries.push_back(function);
  return entries;
}
