// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Options.h"

#include "support/CommandLine.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

namespace {
/// The command line. A struct, so that options are registered when main asks
/// for them.
struct CommandLine {
  cl::OptionCategory category{"moira-run options"};
  cl::opt<std::string> program{cl::Positional, cl::Required,
                               cl::desc("FILE.mlir | FILE.moira"),
                               cl::cat(category)};
  cl::list<std::string> inputs{
      "input", cl::value_desc("[name=]file"), cl::cat(category),
      cl::desc("An input: x.npy, x.safetensors:tensor, or name=number for a "
               "scalar; in order, or by name (default: random)")};
  cl::opt<std::string> weights{
      "weights", cl::value_desc("path"), cl::cat(category),
      cl::desc("Checkpoint: a .safetensors file, or a folder with one or with "
               "an index and shards (default: random)")};
  cl::opt<std::string> seed{
      "seed", cl::init("0"), cl::value_desc("number"), cl::cat(category),
      cl::desc("Of random inputs and weights (default: 0)")};
  cl::opt<std::string> tokens{
      "tokens", cl::value_desc("number|list"), cl::cat(category),
      cl::desc("Size of every dynamic dimension that no input file gives, of "
               "all ranks together, which share it evenly (default: 256); or "
               "the tokens of each rank: 5,0,7,3; or, drawn in each of the "
               "--steps, log-uniform:LEAST-MOST")};
  cl::opt<std::string> output{
      "output", cl::value_desc("file"), cl::cat(category),
      cl::desc("Write the results: y.npy (one result) or y.safetensors")};
  cl::opt<std::string> verify{
      "verify", cl::ValueOptional, cl::value_desc("rows:N"), cl::cat(category),
      cl::desc("Compare with the decomposed program: all rows, or N tokens of "
               "a program whose tokens do not influence each other")};
  cl::opt<bool> grad{
      "grad", cl::cat(category),
      cl::desc("Run forward and backward, from gradients of the results that "
               "are inputs d_result0, d_result1, ... (default: random; 1 for "
               "a scalar), and write gradients too")};
  cl::opt<bool> recompute{
      "moe-recompute", cl::cat(category),
      cl::desc("With --grad: keep less of the forward pass, and compute it "
               "again on the way back")};
  cl::opt<std::string> source{
      "source", cl::value_desc("file"), cl::cat(category),
      cl::desc("The program that a bundle was made from, for --verify")};
  cl::opt<std::string> repeat{
      "repeat", cl::init("0"), cl::value_desc("number"), cl::cat(category),
      cl::desc("Timed runs after the first (default: 0)")};
  cl::opt<bool> json{"json", cl::cat(category),
                     cl::desc("Print the report as JSON")};
  cl::opt<std::string> variant{
      "variant", cl::value_desc("name"), cl::cat(category),
      cl::desc("Variant to run (default: chosen by the number of rows)")};
  cl::opt<std::string> variants{
      "variants", cl::value_desc("list"), cl::cat(category),
      cl::desc("Compile several variants: \"r=auto schedule=equal,groups "
               "rows=decode,prefill\" is all that are legal; --r and "
               "--schedule, or --variant, choose among them")};
  cl::opt<bool> qualify{
      "qualify", cl::cat(category),
      cl::desc("Run every variant and compare it with the decomposed program; "
               "a bundle (with --source) then says which have passed here")};
  cl::opt<std::string> entry{
      "entry", cl::value_desc("function"), cl::cat(category),
      cl::desc("Function to run (default: the public one, or @main)")};
  cl::opt<std::string> threads{"threads", cl::init("0"),
                               cl::value_desc("number"), cl::cat(category),
                               cl::desc("Default: one per processor")};
  cl::opt<std::string> memoryLimit{
      "memory-limit", cl::value_desc("bytes"), cl::cat(category),
      cl::desc("Refuse to hold more, e.g. 800000000, 512M, 4G")};
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
  cl::list<std::string> disableFusion{
      "disable-fusion", cl::CommaSeparated, cl::value_desc("names"),
      cl::cat(category), cl::desc(disableFusionHelp())};
  cl::opt<std::string> cacheDir{
      "cache-dir", cl::value_desc("folder"), cl::cat(category),
      cl::desc("Where compiled programs are kept (default: moira in the "
               "user's cache folder)")};
  cl::opt<bool> noCache{"no-cache", cl::cat(category),
                        cl::desc("Keep no compiled programs")};
  cl::opt<std::string> dumpPhases{
      "dump-phases", cl::value_desc("folder"), cl::cat(category),
      cl::desc("Write the IR after each phase into this folder")};
  cl::list<std::string> jitSymbols{
      "jit-symbols", cl::CommaSeparated, cl::value_desc("gdb,perf"),
      cl::cat(category),
      cl::desc("Who is told of the functions that are compiled: debuggers, or "
               "perf inject --jit by a file below $JITDUMPDIR (else $HOME)")};
  cl::opt<runtime::LogLevel> logLevel{
      "log-level", cl::init(runtime::LogLevel::Quiet), cl::cat(category),
      cl::desc("What the runtime says on stderr:"),
      cl::values(
          clEnumValN(runtime::LogLevel::Quiet, "quiet", "nothing (default)"),
          clEnumValN(runtime::LogLevel::Warning, "warning", "what is amiss"),
          clEnumValN(runtime::LogLevel::Info, "info", "what is loaded"),
          clEnumValN(runtime::LogLevel::Debug, "debug", "every step"))};
  RankCommandLine grid{category};
  StepCommandLine steps{category};
  AdaptCommandLine adapt{category};
  DeviceCommandLine device{category};
  cl::opt<std::string> calibrate{
      "calibrate", cl::value_desc("file"), cl::cat(category),
      cl::desc("Measure what this machine takes for the parts of the program's "
               "first layer, with at most --tokens tokens, for --calibration")};
};
} // namespace

static llvm::Error readVerify(const CommandLine &line, RunOptions &options) {
  options.verify = line.verify.getNumOccurrences() > 0;
  llvm::StringRef text = line.verify;
  if (!options.verify || text.empty())
    return llvm::Error::success();
  if (!text.consume_front("rows:") ||
      text.getAsInteger(10, options.verifyRows) || options.verifyRows < 1)
    return expected("verify", "nothing or rows:N with N of at least 1",
                    line.verify.getValue());
  return llvm::Error::success();
}

static llvm::Error readNumbers(const CommandLine &line, RunOptions &options) {
  if (llvm::Error error = readInto(options.seed, line.seed, 0, INT64_MAX))
    return error;
  auto range = parseTokenRange(line.tokens.getValue());
  if (!range)
    return range.takeError();
  options.steps.tokens = *range;
  if (*range) {
    options.tokens = (*range)->second;
  } else if (llvm::StringRef(line.tokens).contains(',')) {
    llvm::Expected<std::vector<int64_t>> list = parseTokenList(line.tokens);
    if (!list)
      return list.takeError();
    options.grid.tokens = std::move(*list);
  } else if (line.tokens.getNumOccurrences() > 0) {
    if (llvm::Error error = readInto(options.tokens, line.tokens, 0, INT64_MAX))
      return error;
  }
  if (llvm::Error error = readInto(options.repeat, line.repeat, 0, 1000000))
    return error;
  if (llvm::Error error = readInto(options.threads, line.threads, 0, 4096))
    return error;
  if (llvm::Error error = readInto(options.jit.optLevel, line.optLevel, 0, 3))
    return error;
  if (line.memoryLimit.getNumOccurrences() > 0) {
    std::optional<int64_t> bytes = parseBytes(line.memoryLimit);
    if (!bytes || *bytes == 0)
      return expected("memory-limit",
                      "a number of bytes such as 800000000, 512M or 4G",
                      line.memoryLimit.getValue());
    options.memoryLimit = *bytes;
  }
  return llvm::Error::success();
}

/// All variants of one program, once.
static llvm::Error checkQualify(const CommandLine &line,
                                const RunOptions &options) {
  if (!options.qualify)
    return llvm::Error::success();
  // Whoever adapts would run other variants than the one that is compared.
  if (llvm::Error error = expectNone(
          "qualify", {line.variant, line.repeat, line.output, line.verify,
                      line.calibrate, line.steps.steps, line.adapt.adapt,
                      line.adapt.random, line.adapt.replay}))
    return error;
  if (options.isBundle && options.source.empty())
    return llvm::createStringError(
        options.program + ": expected --source FILE.mlir to qualify a bundle "
                          "against, got none");
  return llvm::Error::success();
}

static llvm::Error readSymbols(const CommandLine &line, RunOptions &options) {
  for (const std::string &reader : line.jitSymbols)
    if (reader == "gdb")
      options.jit.symbols.gdb = true;
    else if (reader == "perf")
      options.jit.symbols.perf = true;
    else
      return expected("jit-symbols", "gdb, perf or both", reader);
  if (options.isBundle && line.jitSymbols.getNumOccurrences() > 0)
    return llvm::createStringError(
        "--jit-symbols: expected a program to compile, got a bundle, whose "
        "symbols are those of a library");
  return llvm::Error::success();
}

static llvm::Error checkTogether(const CommandLine &line,
                                 const RunOptions &options) {
  if (llvm::Error error = checkQualify(line, options))
    return error;
  if (options.isBundle && options.verify && options.source.empty())
    return llvm::createStringError(
        options.program + ": expected --source FILE.mlir to verify a bundle "
                          "against, got none");
  if (!options.isBundle && !options.source.empty())
    return llvm::createStringError(
        "--source: expected a bundle to go with it, got a program");
  if (!options.source.empty() && !options.verify)
    return llvm::createStringError(
        "--source: expected --verify beside it, got none");
  if (options.grad && options.verifyRows > 0)
    return llvm::createStringError(
        "--verify: expected all rows beside --grad, since gradients of weights "
        "are sums over rows, got rows:" +
        llvm::Twine(options.verifyRows));
  if (!options.grad && options.jit.pipeline.recompute)
    return llvm::createStringError(
        "--moe-recompute: expected --grad beside it, got none");
  if (options.isBundle && options.jit.pipeline.recompute)
    return llvm::createStringError(
        "--moe-recompute: expected a program to compile, got a bundle, which "
        "has this fixed");
  if (options.isBundle && options.variants)
    return llvm::createStringError("--variants: expected a program to compile, "
                                   "got a bundle, which has its own");
  if (options.isBundle && !options.grid.compiledOption.empty())
    return llvm::createStringError(
        "--" + options.grid.compiledOption +
        ": expected a program to compile, got a bundle, which has this fixed");
  if (!options.steps.loads.empty() && options.isBundle)
    return llvm::createStringError(
        "--loads: expected a program to compile, got a bundle, whose gates "
        "choose themselves");
  if (!options.steps.loads.empty() && options.verify)
    return llvm::createStringError("--loads: expected no --verify beside it, "
                                   "which compares what gates choose");
  if (options.steps.active() && options.repeat > 0)
    return llvm::createStringError(
        "--steps: expected no --repeat beside it, got " +
        llvm::Twine(options.repeat));
  if (llvm::Error error = checkFolder("calibrate", options.calibrate))
    return error;
  if (!options.calibrate.empty()) {
    if (llvm::Error error =
            expectNone("calibrate", {line.verify, line.output, line.steps.steps,
                                     line.adapt.adapt, line.adapt.random,
                                     line.adapt.replay}))
      return error;
    if (options.grid.virtualClock)
      return llvm::createStringError(
          "--calibrate: expected --clock real beside it, got --clock virtual");
  }
  llvm::StringRef extension = llvm::sys::path::extension(options.output);
  if (!options.output.empty() && extension != ".npy" &&
      extension != ".safetensors")
    return expected("output", "a file name that ends in .npy or .safetensors",
                    options.output);
  return llvm::Error::success();
}

llvm::Expected<RunOptions> tools::parseOptions(int argc, char **argv) {
  prepareTool();
  CommandLine line;
  if (llvm::Error error = parseCommandLine(
          argc, argv, "Compiles (or loads) and runs a Moira program\n"))
    return error;
  RunOptions options;
  options.program = line.program;
  options.isBundle = line.program != "-" && looksLikeBundle(line.program);
  options.source = line.source;
  options.entry = line.entry;
  options.inputs = line.inputs;
  options.weights = line.weights;
  options.output = line.output;
  options.json = line.json;
  options.grad = line.grad;
  options.jit.pipeline.gradients = line.grad;
  options.jit.pipeline.recompute = line.recompute;
  options.variant = line.variant;
  options.jit.cpu = line.cpu;
  options.jit.dumpDirectory = line.dumpPhases;
  options.jit.pipeline.entry = line.entry;
  llvm::Expected<mlir::moe::Fusions> disabled = readFusions(line.disableFusion);
  if (!disabled)
    return disabled.takeError();
  options.jit.pipeline.disabledFusions = *disabled;
  if (llvm::Error error = readVerify(line, options))
    return error;
  options.qualify = line.qualify;
  options.verify |= options.qualify;
  if (llvm::Error error = readNumbers(line, options))
    return error;
  if (llvm::Error error = line.grid.read(options.grid))
    return error;
  if (llvm::Error error = line.steps.read(options.steps))
    return error;
  options.jit.pipeline.replayRouting = !options.steps.loads.empty();
  if (llvm::Error error = line.adapt.read(options.adapt, options.grid))
    return error;
  options.calibrate = line.calibrate;
  options.jit.pipeline.copies = options.grid.copies;
  options.jit.pipeline.spareSlots = options.grid.spareSlots;
  options.jit.pipeline.schedule = options.grid.schedule;
  if (options.grid.hiddenBlocks > 0)
    options.jit.pipeline.hiddenBlocks = options.grid.hiddenBlocks;
  llvm::Expected<DeviceChoice> device = readDevice(line.device);
  if (!device)
    return device.takeError();
  options.device = std::move(*device);
  options.jit.pipeline.device = options.device.options();
  if (line.variants.getNumOccurrences() > 0) {
    options.variants.emplace();
    if (llvm::Error error = parseVariants(
            line.variants.getValue(), *options.variants, options.jit.pipeline))
      return error;
  }
  options.logLevel = line.logLevel;
  if (llvm::Error error = readSymbols(line, options))
    return error;
  if (llvm::Error error = readCacheFolder(options.jit.cacheDirectory,
                                          line.cacheDir, line.noCache))
    return error;
  if (llvm::Error error = checkTogether(line, options))
    return error;
  return options;
}
