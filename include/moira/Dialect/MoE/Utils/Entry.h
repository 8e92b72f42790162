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
/// a body, or @main where there are several. Reports an error if there is none.
FailureOr<func::FuncOp> findEntry(ModuleOp module, StringRef name);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_ENTRY_H
