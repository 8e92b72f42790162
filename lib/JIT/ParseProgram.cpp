// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/ParseProgram.h"

#include "moira/JIT/Diagnostics.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace moira;

/// Keeps the names that arguments of functions have in the text: `%x` becomes
/// `moe.name = "x"`, unless the argument has a name or only a number.
static void keepNames(mlir::func::FuncOp function,
                      const mlir::AsmParserState &text) {
  if (function.isExternal())
    return;
  mlir::Block *block = &function.getBody().front();
  const mlir::AsmParserState::BlockDefinition *definition =
      text.getBlockDef(block);
  if (!definition)
    return;
  mlir::StringAttr name =
      mlir::StringAttr::get(function.getContext(), "moe.name");
  for (unsigned i = 0; i < definition->arguments.size(); ++i) {
    llvm::SMRange range = definition->arguments[i].loc;
    if (i >= function.getNumArguments() || !range.isValid() ||
        function.getArgAttr(i, name))
      continue;
    llvm::StringRef spelling(range.Start.getPointer(),
                             range.End.getPointer() - range.Start.getPointer());
    uint64_t number = 0;
    if (spelling.consume_front("%") && spelling.getAsInteger(10, number))
      function.setArgAttr(
          i, name, mlir::StringAttr::get(function.getContext(), spelling));
  }
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
moira::parseProgram(llvm::StringRef path, mlir::MLIRContext &context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (std::error_code error = file.getError())
    return llvm::createStringError(error,
                                   path + ": expected a readable file, got '" +
                                       error.message() + "'");
  bool isText = !mlir::isBytecode((*file)->getMemBufferRef());
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  ErrorCollector errors(&context);
  mlir::ParserConfig config(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module;
  if (isText) {
    mlir::Block block;
    mlir::AsmParserState text;
    if (mlir::succeeded(
            mlir::parseAsmSourceFile(sources, &block, config, &text))) {
      block.walk(
          [&](mlir::func::FuncOp function) { keepNames(function, text); });
      module = mlir::detail::constructContainerOpForParserIfNecessary<
          mlir::ModuleOp>(&block, &context,
                          mlir::FileLineColLoc::get(&context, path, 1, 1));
    }
  } else {
    module = mlir::parseSourceFile<mlir::ModuleOp>(sources, config);
  }
  if (!module)
    return errors.take(path + ": expected an MLIR module, got something else");
  return module;
}
