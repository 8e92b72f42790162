// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_JIT_PARSEPROGRAM_H
#define MOIRA_JIT_PARSEPROGRAM_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

namespace moira {

/// Reads and verifies a program: text or bytecode, from a file or, for "-",
/// from standard input. The error is the first diagnostic with its location,
/// or names the file. Names of function arguments stay, as `moe.name`.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
parseProgram(llvm::StringRef path, mlir::MLIRContext &context);

} // namespace moira

#endif // MOIRA_JIT_PARSEPROGRAM_H
