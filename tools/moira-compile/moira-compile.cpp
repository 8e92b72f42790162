// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a program to a bundle, or stops on the way.

#include "Describe.h"
#include "Options.h"

#include "io/AtomicFile.h"
#include "moira/Conversion/Passes.h"
#include "moira/JIT/HostCompiler.h"
#include "moira/JIT/ParseProgram.h"
#include "moira/JIT/Variants.h"
#include "moira/Target/Link.h"
#include "support/Adapt.h"
#include "support/CommandLine.h"
#include "support/Twin.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"

using namespace moira;
using namespace moira::tools;

static constexpr llvm::StringLiteral toolName = "moira-compile";

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

static llvm::Error writeOutput(const CommandLine &line, llvm::StringRef bytes,
                               bool isText, llvm::StringRef extension) {
  llvm::SmallString<128> path(line.output.getValue());
  if (path.empty() && (isText || line.input == "-"))
    path = "-";
  if (path.empty()) {
    path = llvm::sys::path::filename(line.input);
    llvm::sys::path::replace_extension(path, extension);
  }
  if (path != "-")
    return toError(io::writeFile(path.str().str(), bytes.data(), bytes.size()));
  if (!isText && llvm::sys::Process::StandardOutIsDisplayed())
    return llvm::createStringError(
        "expected a file for binary output (-o FILE), got a terminal");
  llvm::outs() << bytes;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

static llvm::Error describeContents(const CommandLine &line,
                                    const runtime::BundleContents &contents) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  std::optional<runtime::Calibration> calibration;
  if (!line.calibration.empty()) {
    llvm::Expected<runtime::Calibration> read =
        readCalibration(line.calibration);
    if (!read)
      return read.takeError();
    calibration = std::move(*read);
  }
  if (llvm::Error error =
          line.json ? describeJson(contents, calibration, stream)
                    : describe(contents, line.input, calibration, stream))
    return error;
  return writeOutput(line, text, /*isText=*/true, "");
}

static llvm::Error describeBundle(const CommandLine &line) {
  if (!line.describe)
    return llvm::createStringError(
        line.input +
        ": expected a program to compile, got a bundle (--describe "
        "prints what it holds)");
  auto file = runtime::BundleFile::open(line.input);
  if (!file.ok())
    return toError(file.status());
  return describeContents(line, (*file)->contents());
}

static llvm::Error emitBundle(const CommandLine &line,
                              const HostCompiler &compiler,
                              mlir::ModuleOp module) {
  llvm::Expected<CompiledObject> compiled = compiler.emit(module);
  if (!compiled)
    return compiled.takeError();
  auto linked = linkSharedObject(compiled->object->getMemBufferRef());
  if (!linked)
    return linked.takeError();
  llvm::StringRef code = (*linked)->getBuffer();
  runtime::BundleContents contents;
  contents.manifest = compiled->manifest;
  contents.hostCode = std::string_view(code.data(), code.size());
  contents.gpuCode = compiled->gpuCode;
  if (line.describe)
    return describeContents(line, contents);
  std::vector<unsigned char> bytes = runtime::encodeBundle(contents);
  return writeOutput(
      line,
      llvm::StringRef(reinterpret_cast<char *>(bytes.data()), bytes.size()),
      /*isText=*/false, "moira");
}

static llvm::Error emitCode(const CommandLine &line,
                            const HostCompiler &compiler,
                            mlir::ModuleOp module) {
  llvm::LLVMContext context;
  auto translated = compiler.translate(module, context);
  if (!translated)
    return translated.takeError();
  if (line.emit == "llvm") {
    std::string text;
    llvm::raw_string_ostream stream(text);
    (*translated)->print(stream, nullptr);
    return writeOutput(line, text, /*isText=*/true, "");
  }
  bool isText = line.emit == "asm";
  auto code =
      compiler.target().emit(**translated, isText ? HostTarget::Output::Assembly
                                                  : HostTarget::Output::Object);
  if (!code)
    return code.takeError();
  return writeOutput(line, (*code)->getBuffer(), isText, "o");
}

static llvm::Error emitPhase(const CommandLine &line, mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  stream << '\n';
  return writeOutput(line, text, /*isText=*/true, "");
}

/// Notes in the manifest of a merged module what the program's twin shows.
static llvm::Error qualify(mlir::ModuleOp source, mlir::ModuleOp merged,
                           const JitOptions &options,
                           const VariantOptions &variants) {
  llvm::Expected<TwinOutcome> outcome = checkTwin(source, options, variants);
  if (!outcome)
    return outcome.takeError();
  llvm::Expected<std::string> text = getManifest(merged);
  if (!text)
    return text.takeError();
  text = addOutcome(*text, *outcome);
  if (!text)
    return text.takeError();
  merged->setAttr(mlir::moe::kManifestAttrName,
                  mlir::StringAttr::get(merged->getContext(), *text));
  return llvm::Error::success();
}

static llvm::Error run(const CommandLine &line) {
  if (!line.calibration.empty() && !line.describe)
    return llvm::createStringError(
        "--calibration: expected --describe beside it, got none");
  if (line.json && !line.describe)
    return llvm::createStringError(
        "--json: expected --describe beside it, got none");
  if (!llvm::is_contained({"bundle", "object", "llvm", "asm"}, line.emit))
    return llvm::createStringError("--emit: expected bundle, object, llvm or "
                                   "asm, got '" +
                                   line.emit + "'");
  bool stopsEarly = !line.compileTo.empty() || line.emit != "bundle";
  if (line.describe && stopsEarly)
    return llvm::createStringError("--describe: expected a bundle to be made, "
                                   "got another --emit or --compile-to");
  if (!line.compileTo.empty() && line.emit.getNumOccurrences() > 0)
    return llvm::createStringError("expected --compile-to or --emit, got both");
  if (line.input != "-" && looksLikeBundle(line.input))
    return describeBundle(line);

  llvm::Expected<JitOptions> options = makeOptions(line);
  if (!options)
    return options.takeError();
  llvm::Expected<std::optional<VariantOptions>> variants =
      readVariants(line, options->pipeline);
  if (!variants)
    return variants.takeError();
  if (line.qualify && !*variants)
    return llvm::createStringError(
        "--qualify: expected --variants beside it, got none");
  llvm::Expected<Phase> phase = readPhase(line, variants->has_value());
  if (!phase)
    return phase.takeError();
  llvm::Expected<HostCompiler> compiler = HostCompiler::create(*options);
  if (!compiler)
    return compiler.takeError();
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  WarningPrinter warnings(&context, toolName);
  if (llvm::Error error = enableRemarks(context, line.remarks))
    return error;
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> module =
      parseProgram(line.input, context);
  if (!module)
    return module.takeError();
  if (*variants) {
    auto merged = lowerVariants(**module, *options, **variants);
    if (!merged)
      return merged.takeError();
    if (line.qualify)
      if (llvm::Error error = qualify(**module, **merged, *options, **variants))
        return error;
    *module = std::move(*merged);
  } else if (llvm::Error error = compiler->lower(**module, *phase)) {
    return error;
  }
  if (!line.compileTo.empty())
    return emitPhase(line, **module);
  if (line.emit == "bundle")
    return emitBundle(line, *compiler, **module);
  return emitCode(line, *compiler, **module);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareTool();
  CommandLine line;
  if (llvm::Error error = parseCommandLine(
          argc, argv,
          "Compiles a Moira program to a bundle, or stops on the way\n"))
    return fail(toolName, std::move(error));
  if (llvm::Error error = run(line))
    return fail(toolName, std::move(error));
  return 0;
}
