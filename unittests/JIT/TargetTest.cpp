// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Target/HostTarget.h"
#include "moira/Target/Link.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

#include <gtest/gtest.h>

using namespace moira;

namespace {

/// Machine code of LLVM IR for a processor.
std::unique_ptr<llvm::MemoryBuffer> compileIR(llvm::StringRef text,
                                              llvm::StringRef cpu,
                                              HostTarget::Output output) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module =
      llvm::parseAssemblyString(text, diagnostic, context);
  EXPECT_TRUE(module) << diagnostic.getMessage().str();
  HostProcessor processor = llvm::cantFail(resolveProcessor(cpu));
  std::unique_ptr<HostTarget> target =
      llvm::cantFail(HostTarget::create(processor, 3));
  module->setTargetTriple(llvm::Triple(processor.triple));
  target->optimize(*module, {"exported"});
  return llvm::cantFail(target->emit(*module, output));
}

TEST(Target, HostHasNameAndFeatures) {
  HostProcessor host = llvm::cantFail(resolveProcessor("host"));
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_NE(host.cpu, "host");
  EXPECT_FALSE(host.features.empty());
  for (llvm::StringRef feature : llvm::split(host.features, ','))
    EXPECT_TRUE(feature.starts_with("+"))
        << "a manifest lists what code needs, not what it does without: "
        << feature.str();
}

TEST(Target, EveryListedProcessorResolves) {
  std::vector<std::string> names = listProcessors();
  EXPECT_GT(names.size(), 10u);
  for (const std::string &name : names) {
    llvm::Expected<HostProcessor> processor = resolveProcessor(name);
    ASSERT_TRUE(bool(processor)) << llvm::toString(processor.takeError());
    EXPECT_EQ(processor->cpu, name);
  }
}

TEST(Target, UnknownProcessorsAreRefused) {
  for (llvm::StringRef name : {"", "pentium", "foo", "x86-64-v9"}) {
    llvm::Expected<HostProcessor> processor = resolveProcessor(name);
    ASSERT_FALSE(bool(processor)) << name.str();
    std::string message = llvm::toString(processor.takeError());
    EXPECT_NE(message.find("expected 'host' or a processor that LLVM knows"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("got '" + name.str() + "'"), std::string::npos)
        << message;
  }
}

#if defined(__x86_64__)
TEST(Target, VectorWidthFollowsTheProcessor) {
  EXPECT_EQ(llvm::cantFail(resolveProcessor("x86-64-v2")).vectorBits, 128u);
  EXPECT_EQ(llvm::cantFail(resolveProcessor("x86-64-v3")).vectorBits, 256u);
  EXPECT_EQ(llvm::cantFail(resolveProcessor("x86-64-v4")).vectorBits, 512u);
}

TEST(Target, PrefetchLevelFollowsTheProcessor) {
  EXPECT_EQ(llvm::cantFail(resolveProcessor("znver5")).prefetchLevel, 1u);
  for (llvm::StringRef name : {"znver4", "sapphirerapids", "x86-64-v4"})
    EXPECT_EQ(llvm::cantFail(resolveProcessor(name)).prefetchLevel, 2u)
        << name.str();
}

TEST(Target, MultiplyAndAddStayTwoRoundings) {
  constexpr llvm::StringLiteral ir = R"(
    define float @exported(float %a, float %b, float %c) {
      %m = fmul float %a, %b
      %s = fadd float %m, %c
      ret float %s
    })";
  auto code = compileIR(ir, "x86-64-v3", HostTarget::Output::Assembly);
  EXPECT_FALSE(code->getBuffer().contains("fmadd")) << code->getBuffer().str();
  EXPECT_TRUE(code->getBuffer().contains("mulss"));
}
#endif

TEST(Target, OptimisationLevelsAreChecked) {
  HostProcessor host = llvm::cantFail(resolveProcessor("host"));
  auto target = HostTarget::create(host, 4);
  ASSERT_FALSE(bool(target));
  EXPECT_EQ(llvm::toString(target.takeError()),
            "expected an optimisation level of 0 to 3, got 4");
}

TEST(Link, ResolvesTheSystemsLibraries) {
  constexpr llvm::StringLiteral ir = R"(
    declare double @pow(double, double)
    define double @exported(double %x, double %y) {
      %p = call double @pow(double %x, double %y)
      ret double %p
    })";
  auto object = compileIR(ir, "host", HostTarget::Output::Object);
  auto linked = linkSharedObject(object->getMemBufferRef());
  ASSERT_TRUE(bool(linked)) << llvm::toString(linked.takeError());
  EXPECT_TRUE((*linked)->getBuffer().starts_with("\x7f"
                                                 "ELF"));
  EXPECT_TRUE((*linked)->getBuffer().contains("libm.so.6"));
}

TEST(Link, RefusesOtherSymbols) {
  constexpr llvm::StringLiteral ir = R"(
    declare void @moira_unknown()
    define void @exported() {
      call void @moira_unknown()
      ret void
    })";
  auto object = compileIR(ir, "host", HostTarget::Output::Object);
  auto linked = linkSharedObject(object->getMemBufferRef());
  ASSERT_FALSE(bool(linked));
  std::string message = llvm::toString(linked.takeError());
  EXPECT_NE(message.find("moira_unknown"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Link, FindsSymbolsOfTheSystem) {
  const SystemLibraries &libraries = SystemLibraries::get();
  EXPECT_TRUE(libraries.find("expf"));
  EXPECT_TRUE(libraries.find("memcpy"));
  EXPECT_FALSE(libraries.find("moira_version"));
}

} // namespace
