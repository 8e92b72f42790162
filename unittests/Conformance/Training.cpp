// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/Training.h"

#include "moira/jit.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <fstream>
#include <sstream>

using namespace moira;
using namespace moira::conformance;

std::string conformance::readText(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::shared_ptr<const runtime::Program>
conformance::compileTraining(const std::string &text,
                             const std::vector<std::string> &updates,
                             bool isOracle) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      text, mlir::ParserConfig(&context));
  EXPECT_TRUE(bool(module));
  if (!module)
    return nullptr;
  JitOptions options;
  options.pipeline.gradients = true;
  options.pipeline.oracle = isOracle;
  options.pipeline.updates.assign(updates.begin(), updates.end());
  options.optLevel = isOracle ? 1 : 3;
  auto program = compile(*module, options);
  EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
  return program ? *program : nullptr;
}
