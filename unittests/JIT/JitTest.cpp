// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/jit.h"

#include "moira/JIT/ParseProgram.h"
#include "session/Session.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <thread>

using namespace moira;
using namespace moira::runtime;

namespace {

/// y = x + x.
constexpr llvm::StringLiteral doubling = R"(
  #id = affine_map<(m, n) -> (m, n)>
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %c0 = arith.constant 0 : index
    %t = tensor.dim %x, %c0 : tensor<?x4xf32>
    %e = tensor.empty(%t) : tensor<?x4xf32>
    %y = linalg.generic {indexing_maps = [#id, #id],
                         iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
    ^bb0(%a: f32, %out: f32):
      %s = arith.addf %a, %a : f32
      linalg.yield %s : f32
    } -> tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  })";

using ProgramOrError = llvm::Expected<std::shared_ptr<const Program>>;

ProgramOrError compileText(llvm::StringRef text, const JitOptions &options) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      text, mlir::ParserConfig(&context));
  if (!module)
    return llvm::createStringError("does not parse");
  // The program outlives its module and context.
  return compile(*module, options);
}

/// Runs the doubling program on two rows.
std::vector<float> runDoubling(std::shared_ptr<const Program> program) {
  SessionOptions options;
  options.threads = 1;
  auto session = Session::create(std::move(program), options);
  EXPECT_TRUE(session.ok()) << session.status().message;
  std::vector<float> input{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<ResultTensor> results;
  Status status = (*session)->invoke(
      "main", {{DataType::F32, {2, 4}, input.data()}}, results);
  EXPECT_TRUE(status.ok()) << status.message;
  if (!status.ok())
    return {};
  const auto *data = static_cast<const float *>(results[0].data);
  return std::vector<float>(data, data + 8);
}

const std::vector<float> doubled{2, 4, 6, 8, 10, 12, 14, 16};

/// A folder that is gone when the object is.
struct TemporaryFolder {
  TemporaryFolder() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("moira-jit", path));
  }
  ~TemporaryFolder() { llvm::sys::fs::remove_directories(path); }

  /// The object files in it.
  std::vector<std::string> objects() const {
    std::vector<std::string> found;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator at(path, error), end; at != end;
         at.increment(error))
      if (llvm::sys::path::filename(at->path()).starts_with("llvmcache-"))
        found.push_back(at->path());
    return found;
  }

  llvm::SmallString<128> path;
};

TEST(Jit, CompilesAndRuns) {
  for (unsigned level : {0u, 3u}) {
    JitOptions options;
    options.optLevel = level;
    ProgramOrError program = compileText(doubling, options);
    ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
    EXPECT_EQ(runDoubling(*program), doubled);
  }
}

TEST(Jit, DoesNotChangeTheModule) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      doubling, mlir::ParserConfig(&context));
  std::string before, after;
  llvm::raw_string_ostream(before) << *module;
  ASSERT_TRUE(bool(compile(*module, JitOptions())));
  llvm::raw_string_ostream(after) << *module;
  EXPECT_EQ(before, after);
}

TEST(Jit, TheErrorIsTheFirstDiagnostic) {
  JitOptions options;
  options.pipeline.entry = "missing";
  ProgramOrError program = compileText(doubling, options);
  ASSERT_FALSE(bool(program));
  std::string message = llvm::toString(program.takeError());
  EXPECT_NE(message.find("missing"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Jit, RefusesProcessorsThatThisMachineIsNot) {
  JitOptions options;
  options.cpu = "nothing";
  ProgramOrError program = compileText(doubling, options);
  ASSERT_FALSE(bool(program));
  EXPECT_NE(llvm::toString(program.takeError()).find("got 'nothing'"),
            std::string::npos);
}

TEST(Jit, ThreadsCompileAtTheSameTime) {
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (std::vector<float> &result : results)
    threads.emplace_back([&result] {
      ProgramOrError program = compileText(doubling, JitOptions());
      if (program)
        result = runDoubling(*program);
      else
        llvm::consumeError(program.takeError());
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::vector<float> &result : results)
    EXPECT_EQ(result, doubled);
}

TEST(JitCache, KeepsObjectsByContentAndOptions) {
  TemporaryFolder folder;
  JitOptions options;
  options.cacheDirectory = std::string(folder.path);
  for (int i = 0; i < 2; ++i) {
    ProgramOrError program = compileText(doubling, options);
    ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
    EXPECT_EQ(runDoubling(*program), doubled);
    EXPECT_EQ(folder.objects().size(), 1u);
  }
  // A comment changes nothing, an option does.
  ASSERT_TRUE(bool(compileText("// A comment.\n" + doubling.str(), options)));
  EXPECT_EQ(folder.objects().size(), 1u);
  options.optLevel = 1;
  ASSERT_TRUE(bool(compileText(doubling, options)));
  EXPECT_EQ(folder.objects().size(), 2u);
}

/// Takes ptxas's place while it is there: says a version, makes no code.
struct StandInAssembler {
  explicit StandInAssembler(llvm::StringRef folder) : path(folder) {
    llvm::sys::path::append(path, "ptxas");
    if (const char *before = getenv("MOIRA_PTXAS"))
      given = before;
    setenv("MOIRA_PTXAS", path.c_str(), 1);
  }
  ~StandInAssembler() {
    given ? setenv("MOIRA_PTXAS", given->c_str(), 1) : unsetenv("MOIRA_PTXAS");
  }
  void setVersion(llvm::StringRef version) {
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << "#!/bin/sh\necho " << version << "\n";
    EXPECT_FALSE(error);
    EXPECT_FALSE(
        llvm::sys::fs::setPermissions(path, llvm::sys::fs::perms::owner_all));
  }

  llvm::SmallString<128> path;
  std::optional<std::string> given;
};

TEST(JitCache, TellsAssemblersOfKernelsApart) {
  TemporaryFolder folder;
  StandInAssembler assembler(folder.path);
  auto objects = [&](bool ptx, llvm::StringRef version) {
    assembler.setVersion(version);
    JitOptions options;
    options.cacheDirectory = std::string(folder.path);
    options.pipeline.device.ptx = ptx;
    ProgramOrError program = compileText(doubling, options);
    EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
    return folder.objects().size();
  };
  EXPECT_EQ(objects(false, "release 12.4"), 1u);
  EXPECT_EQ(objects(false, "release 13.0"), 1u); // no kernels, no assembler
  EXPECT_EQ(objects(true, "release 12.4"), 2u);
  EXPECT_EQ(objects(true, "release 12.4"), 2u);
  EXPECT_EQ(objects(true, "release 13.0"), 3u);
  EXPECT_EQ(objects(true, "release 12.4"), 3u); // that is still there
}

TEST(JitCache, MakesDamagedObjectsAgain) {
  TemporaryFolder folder;
  JitOptions options;
  options.cacheDirectory = std::string(folder.path);
  ASSERT_TRUE(bool(compileText(doubling, options)));
  ASSERT_EQ(folder.objects().size(), 1u);
  std::string path = folder.objects()[0];
  std::string whole =
      llvm::cantFail(llvm::errorOrToExpected(llvm::MemoryBuffer::getFile(path)))
          ->getBuffer()
          .str();
  for (const std::string &damaged :
       {std::string(), whole.substr(0, whole.size() / 2), "x" + whole}) {
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << damaged;
    ASSERT_FALSE(error);
    ProgramOrError program = compileText(doubling, options);
    ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
    EXPECT_EQ(runDoubling(*program), doubled);
    auto now = llvm::MemoryBuffer::getFile(path);
    ASSERT_TRUE(bool(now));
    EXPECT_EQ((*now)->getBuffer(), whole);
  }
}

TEST(JitCache, AnUnusableFolderIsNoError) {
  JitOptions options;
  options.cacheDirectory = "/proc/nowhere";
  ProgramOrError program = compileText(doubling, options);
  ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
}

TEST(ParseProgram, KeepsTheNamesOfArguments) {
  TemporaryFolder folder;
  llvm::SmallString<128> path(folder.path);
  llvm::sys::path::append(path, "names.mlir");
  std::error_code error;
  llvm::raw_fd_ostream(path, error)
      << "func.func @main(%x: index, %0: index, %y: index {moe.name = \"z\"})"
         " { return }";
  ASSERT_FALSE(error);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = parseProgram(path, context);
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  auto function = (*module)->lookupSymbol<mlir::func::FuncOp>("main");
  auto name = [&](unsigned argument) {
    auto text =
        function.getArgAttrOfType<mlir::StringAttr>(argument, "moe.name");
    return text ? text.getValue().str() : "";
  };
  EXPECT_EQ(name(0), "x");
  EXPECT_EQ(name(1), "");
  EXPECT_EQ(name(2), "z");
}

} // namespace
