// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which function of a module is compiled.

#ifndef MOIRA_DIALECT_MOE_UTILS_ENTRY_H
#define MOIRA_DIALECT_MOE_UTILS_ENTRY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::moe {

/// Returns the function `name`; for an empty name the only public function with
/// a body, or @main where there are several. The way back of another one
/// (`moe.backward`) does not count. Reports an error if there is none.
FailureOr<func::FuncOp> findEntry(ModuleOp module, StringRef name);

/// The same, and then the entry's way back where it has one.
FailureOr<SmallVector<func::FuncOp>> findEntries(ModuleOp module,
                                                 StringRef name);

/// Whether `function` computes the gradients of another one of its module.
bool isBackward(func::FuncOp function);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_ENTRY_H
