// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/ParseProgram.h"

#include "moira/JIT/Diagnostics.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace moira;

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
moira::parseProgram(llvm::StringRef path, mlir::MLIRContext &context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (std::error_code error = file.getError())
    return llvm::createStringError(error,
                                   path + ": expected a readable file, got '" +
                                       error.message() + "'");
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  ErrorCollector errors(&context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(
      sources, mlir::ParserConfig(&context));
  if (!module)
    return errors.take(path + ": expected an MLIR module, got something else");
  return module;
}
