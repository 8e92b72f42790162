// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Utils/Entry.h"

using namespace mlir;

FailureOr<func::FuncOp> mlir::moe::findEntry(ModuleOp module, StringRef name) {
  if (name.empty()) {
    SmallVector<func::FuncOp> candidates;
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic() && !function.isExternal())
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
