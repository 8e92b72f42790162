// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a program to a bundle, or stops on the way.

#include "Describe.h"

#include "io/AtomicFile.h"
#include "moira/JIT/HostCompiler.h"
#include "moira/JIT/ParseProgram.h"
#include "moira/JIT/Variants.h"
#include "moira/Target/Link.h"
#include "support/Adapt.h"
#include "support/CommandLine.h"
#include "support/Devices.h"
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
namespace cl = llvm::cl;

static constexpr llvm::StringLiteral toolName = "moira-compile";

namespace {
/// The command line. A struct, so that options are registered when main asks
/// for them.
struct CommandLine {
  cl::OptionCategory category{"moira-compile options"};
  cl::opt<std::string> input{cl::Positional, cl::desc("FILE.mlir | FILE.moira"),
                             cl::init("-"), cl::cat(category)};
  cl::opt<std::string> output{
      "o", cl::value_desc("file"), cl::cat(category),
      cl::desc("Where the result goes; '-' is standard output. Default: "
               "FILE.moira or FILE.o in the current folder, text to standard "
               "output")};
  cl::opt<std::string> emit{
      "emit", cl::init("bundle"), cl::value_desc("bundle|object|llvm|asm"),
      cl::cat(category), cl::desc("What to make (default: bundle)")};
  cl::opt<std::string> compileTo{
      "compile-to",
      cl::value_desc("input|sharded|differentiated|scheduled|kernels|"
                     "bufferized|target"),
      cl::cat(category), cl::desc("Stop after this phase and print the IR")};
  cl::opt<std::string> dumpPhases{
      "dump-phases", cl::value_desc("folder"), cl::cat(category),
      cl::desc("Also write the IR after each phase into this folder")};
  cl::opt<std::string> cpu{
      "target-cpu", cl::init("host"), cl::value_desc("name"), cl::cat(category),
      cl::desc("Processor to compile for: host (default), x86-64-v3, ...")};
  cl::opt<std::string> optLevel{
      "O",
      cl::Prefix,
      cl::init("3"),
      cl::value_desc("level"),
      cl::cat(category),
      cl::desc("Optimisation level, 0 to 3 (default)")};
  cl::list<std::string> rows{
      "rows", cl::CommaSeparated, cl::value_desc("decode,prefill"),
      cl::cat(category),
      cl::desc("Row classes to compile variants for (default: all)")};
  cl::opt<std::string> entry{
      "entry", cl::value_desc("function"), cl::cat(category),
      cl::desc("Function to compile (default: the public one, or @main)")};
  cl::opt<bool> oracle{"oracle", cl::cat(category),
                       cl::desc("Compile the decomposed program, the "
                                "executable meaning of every operation")};
  cl::opt<bool> gradients{
      "gradients", cl::cat(category),
      cl::desc("Add the way back: a second entry that computes gradients")};
  cl::opt<bool> recompute{
      "moe-recompute", cl::cat(category),
      cl::desc("With --gradients: keep less of the forward pass, and compute "
               "it again on the way back")};
  cl::opt<bool> packGradients{
      "pack-gradients", cl::cat(category),
      cl::desc("With --gradients: gradients of packed parameters come packed")};
  cl::list<std::string> updates{
      "optimizer", cl::CommaSeparated, cl::value_desc("sgd,adam,adamw"),
      cl::cat(category),
      cl::desc("With --gradients: bring the code of these optimizers")};
  cl::list<std::string> disableFusion{
      "disable-fusion", cl::CommaSeparated, cl::value_desc("names"),
      cl::cat(category), cl::desc(disableFusionHelp())};
  cl::list<std::string> grid{
      "grid", cl::CommaSeparated, cl::value_desc("ranks"), cl::cat(category),
      cl::desc("Ranks that run the program together, or several numbers of "
               "them, of which a run takes one (default: 1)")};
  cl::opt<std::string> variants{
      "variants", cl::value_desc("list"), cl::cat(category),
      cl::desc("Put several variants into the bundle: \"r=auto "
               "schedule=equal,groups rows=decode,prefill\" is all that are "
               "legal; r takes numbers, too")};
  cl::opt<bool> qualify{
      "qualify", cl::cat(category),
      cl::desc(
          "With --variants: run every variant on a twin of the program "
          "with small tensors and say in the bundle which gave the bits of "
          "the decomposed program")};
  cl::opt<std::string> remarks{
      "remarks-filter", cl::value_desc("regex"), cl::cat(category),
      cl::desc("Print remarks of these categories, such as moe-variants, "
               "which names what was left out and why")};
  cl::opt<std::string> copies{
      "r", cl::init("1"), cl::value_desc("number"), cl::cat(category),
      cl::desc("How often rows travel: 0 gathers weights instead, else a "
               "divisor of the ranks that share an expert (default: 1)")};
  cl::opt<std::string> schedule{
      "schedule", cl::init("equal"), cl::value_desc("equal|groups"),
      cl::cat(category),
      cl::desc("How exchanges are cut: in equal chunks, as many as the plan's "
               "degree (default), or by groups of ranks")};
  cl::opt<std::string> spareSlots{
      "spare-slots", cl::init("0"), cl::value_desc("number"), cl::cat(category),
      cl::desc("Slots of each rank beyond those that the experts need "
               "(default: 0)")};
  cl::opt<std::string> hiddenBlocks{
      "hidden-blocks", cl::value_desc("number"), cl::cat(category),
      cl::desc("Blocks that the hidden dimension of experts is summed in; "
               "bundles with the same number agree bit for bit (default: the "
               "ranks that share an expert)")};
  cl::list<std::string> target{
      "target", cl::CommaSeparated, cl::value_desc("cpu|cuda,emulated"),
      cl::cat(category),
      cl::desc("What steps run on: cpu (default), cuda, the emulated GPU, or "
               "both of these")};
  cl::list<std::string> arch{"arch", cl::CommaSeparated,
                             cl::value_desc("sm_80,sm_90a"), cl::cat(category),
                             cl::desc("With --target: the GPUs to compile for "
                                      "(default: sm_80)")};
  cl::opt<bool> describe{"describe", cl::cat(category),
                         cl::desc("Print what the bundle holds; with a "
                                  "program, compile it for that")};
  cl::opt<std::string> calibration{
      "calibration", cl::value_desc("file"), cl::cat(category),
      cl::desc("With --describe: predict times for this machine, as moira-run "
               "--calibrate measured it (default: an assumed machine)")};
  cl::opt<bool> json{"json", cl::cat(category),
                     cl::desc("With --describe: print JSON")};
};
} // namespace

/// More ranks than this is a mistake in an option.
static constexpr int64_t most = 65536;

/// Several grids or variants; nothing for one program of one form.
static llvm::Expected<std::optional<VariantOptions>>
readVariants(const CommandLine &line, PipelineOptions &pipeline) {
  VariantOptions variants;
  if (!line.grid.empty())
    variants.grids.clear();
  for (const std::string &text : line.grid) {
    llvm::Expected<int64_t> ranks = readNumber("grid", text, 1, most);
    if (!ranks)
      return ranks.takeError();
    if (llvm::is_contained(variants.grids, *ranks))
      return llvm::createStringError(
          "--grid: expected each number of ranks once, got '" + text +
          "' twice");
    variants.grids.push_back(*ranks);
  }
  pipeline.ranks = variants.grids.front();
  if (line.variants.getNumOccurrences() > 0) {
    if (llvm::Error error =
            expectNone("variants", {line.copies, line.schedule, line.rows}))
      return std::move(error);
    if (llvm::Error error =
            parseVariants(line.variants.getValue(), variants, pipeline))
      return std::move(error);
    return variants;
  }
  if (variants.grids.size() == 1)
    return std::nullopt;
  variants.copies = {pipeline.copies};
  variants.schedules = {pipeline.schedule};
  return variants;
}

/// How the program is spread over ranks.
static llvm::Error readGrid(const CommandLine &line,
                            PipelineOptions &pipeline) {
  if (llvm::Error error = readInto(pipeline.copies, line.copies, 0, most))
    return error;
  if (llvm::Error error =
          readInto(pipeline.spareSlots, line.spareSlots, 0, most))
    return error;
  if (llvm::Error error =
          readInto(pipeline.hiddenBlocks, line.hiddenBlocks, 1, most))
    return error;
  std::optional<mlir::moe::Schedule> schedule =
      mlir::moe::symbolizeSchedule(line.schedule);
  if (!schedule)
    return llvm::createStringError(
        "--schedule: expected 'equal' or 'groups', got '" + line.schedule +
        "'");
  pipeline.schedule = *schedule;
  return llvm::Error::success();
}

/// What the program brings for training.
static llvm::Error readGradients(const CommandLine &line,
                                 PipelineOptions &pipeline) {
  pipeline.gradients = line.gradients;
  pipeline.recompute = line.recompute;
  pipeline.packGradients = line.packGradients;
  for (const std::string &rule : line.updates) {
    if (!llvm::is_contained({"sgd", "adam", "adamw"}, rule))
      return llvm::createStringError(
          "--optimizer: expected 'sgd', 'adam' or 'adamw', got '" + rule + "'");
    if (llvm::is_contained(pipeline.updates, rule))
      return llvm::createStringError(
          "--optimizer: expected each rule once, got '" + rule + "' twice");
    pipeline.updates.push_back(rule);
  }
  llvm::StringRef option = line.recompute          ? "--moe-recompute"
                           : line.packGradients    ? "--pack-gradients"
                           : !line.updates.empty() ? "--optimizer"
                                                   : "";
  if (!line.gradients && !option.empty())
    return llvm::createStringError(
        option + ": expected --gradients beside it, got none");
  return llvm::Error::success();
}

/// The GPU that steps run on, if they do.
static llvm::Error readTarget(const CommandLine &line, DeviceOptions &device) {
  for (const std::string &name : line.target) {
    if (name != "cpu" && name != "cuda" && name != "emulated")
      return llvm::createStringError(
          "--target: expected cpu, cuda or emulated, got '" + name + "'");
    if (name == "cpu" && line.target.size() > 1)
      return llvm::createStringError(
          "--target: expected cpu alone, or cuda and emulated, got both");
    device.ptx |= name == "cuda";
    device.emulated |= name == "emulated";
  }
  // Which checks a run will want is not known.
  device.instrument = device.emulated;
  if (device.ptx || device.emulated) {
    llvm::Expected<std::string> arch = readArchs(line.arch);
    if (!arch)
      return arch.takeError();
    device.arch = *arch;
  } else if (line.arch.getNumOccurrences() > 0) {
    return llvm::createStringError(
        "--arch: expected --target=cuda or emulated beside it, got neither");
  }
  return llvm::Error::success();
}

static llvm::Expected<JitOptions> makeOptions(const CommandLine &line) {
  JitOptions options;
  options.cpu = line.cpu;
  llvm::Expected<int64_t> level =
      readNumber("O", line.optLevel.getValue(), 0, 3);
  if (!level)
    return level.takeError();
  options.optLevel = *level;
  options.dumpDirectory = line.dumpPhases;
  options.pipeline.entry = line.entry;
  options.pipeline.oracle = line.oracle;
  llvm::Expected<mlir::moe::Fusions> disabled = readFusions(line.disableFusion);
  if (!disabled)
    return disabled.takeError();
  options.pipeline.disabledFusions = *disabled;
  options.pipeline.moduleName =
      line.input == "-" ? "stdin" : llvm::sys::path::filename(line.input).str();
  if (llvm::Error error = readGrid(line, options.pipeline))
    return std::move(error);
  if (llvm::Error error = readTarget(line, options.pipeline.device))
    return std::move(error);
  if (llvm::Error error = readGradients(line, options.pipeline))
    return std::move(error);
  if (!line.rows.empty())
    options.pipeline.rowClasses.clear();
  for (const std::string &name : line.rows) {
    std::optional<mlir::moe::RowClass> rows =
        mlir::moe::symbolizeRowClass(name);
    if (!rows)
      return llvm::createStringError(
          "--rows: expected 'decode' or 'prefill', got '" + name + "'");
    if (llvm::is_contained(options.pipeline.rowClasses, *rows))
      return llvm::createStringError("--rows: expected each class once, got '" +
                                     name + "' twice");
    options.pipeline.rowClasses.push_back(*rows);
  }
  return options;
}

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

/// Where compilation stops.
static llvm::Expected<Phase> readPhase(const CommandLine &line,
                                       bool hasVariants) {
  if (line.compileTo.empty())
    return Phase::Target;
  std::optional<Phase> phase = symbolizePhase(line.compileTo);
  if (!phase)
    return llvm::createStringError(
        "--compile-to: expected input, sharded, "
        "differentiated, scheduled, kernels, bufferized or target, "
        "got '" +
        line.compileTo + "'");
  if (hasVariants && *phase != Phase::Target)
    return llvm::createStringError(
        "--compile-to: expected target where there are several variants or "
        "grids, got '" +
        line.compileTo + "' (--dump-phases writes all phases of each)");
  return *phase;
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
  merged->setAttr("moira.manifest",
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
