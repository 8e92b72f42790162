// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Options.h"

#include "support/CommandLine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

double LearningRate::at(int64_t step) const {
  auto share = [](int64_t part, int64_t all) {
    return static_cast<double>(part) / static_cast<double>(all);
  };
  if (step < warmup)
    return peak * share(step + 1, warmup + 1);
  if (!cosine || steps <= warmup)
    return peak;
  constexpr double pi = 3.14159265358979323846;
  double done = std::min(1.0, share(step - warmup, steps - warmup));
  return least + (peak - least) * (1 + std::cos(pi * done)) / 2;
}

namespace {
/// The command line. A struct, so that options are registered when main asks
/// for them.
struct CommandLine {
  cl::OptionCategory category{"moira-train options"};

  /// Numbers are options of type string, so that their errors look like all
  /// others.
  struct Text : cl::opt<std::string> {
    Text(CommandLine &line, llvm::StringRef name, llvm::StringRef initial,
         llvm::StringRef value, llvm::StringRef help)
        : cl::opt<std::string>(name, cl::init(initial.str()),
                               cl::value_desc(value), cl::desc(help),
                               cl::cat(line.category)) {}
  };
  struct Flag : cl::opt<bool> {
    Flag(CommandLine &line, llvm::StringRef name, llvm::StringRef help)
        : cl::opt<bool>(name, cl::desc(help), cl::cat(line.category)) {}
  };

  cl::opt<std::string> program{cl::Positional, cl::Required,
                               cl::desc("FILE.mlir"), cl::cat(category)};
  cl::list<std::string> text{
      "text", cl::CommaSeparated, cl::value_desc("files"), cl::cat(category),
      cl::desc("Text to train on, byte by byte; several files follow each "
               "other")};
  Text batches{*this, "batches", "", "file.npy",
               "In place of --text: rows of length + 1 numbers, i32, taken "
               "batch by batch from the first on"};
  Text weights{*this, "weights", "", "path",
               "Checkpoint to start from (default: random)"};
  Text entry{*this, "entry", "", "function",
             "Function to train (default: the public one, or @main)"};
  Text seed{*this, "seed", "0", "number",
            "Of random weights and of batches (default: 0)"};
  Text steps{*this, "steps", "100", "number", "Updates (default: 100)"};
  Text batch{*this, "batch", "16", "number",
             "Sequences of a step, of all ranks together (default: 16)"};
  Text seq{*this, "seq", "", "number",
           "Length of a sequence, which must be the program's"};
  Text accumulate{*this, "accumulate", "1", "number",
                  "Compute a step's gradients in so many parts of --batch "
                  "sequences each (default: 1)"};
  Text optimizer{*this, "optimizer", "adamw", "sgd|adam|adamw",
                 "Rule of updates (default: adamw)"};
  Text lr{*this, "lr", "0.001", "number", "Learning rate (default: 0.001)"};
  Text lrSchedule{*this, "lr-schedule", "constant", "constant|cosine",
                  "How the learning rate goes on after --warmup"};
  Text warmup{*this, "warmup", "0", "steps",
              "Steps in which the learning rate rises to --lr (default: 0)"};
  Text minLr{*this, "min-lr", "0", "number",
             "Where --lr-schedule cosine ends (default: 0)"};
  Text momentum{*this, "momentum", "0", "number", "Of sgd (default: 0)"};
  Flag nesterov{*this, "nesterov", "Nesterov's momentum, of sgd"};
  Text beta1{*this, "beta1", "0.9", "number", "Of adam and adamw"};
  Text beta2{*this, "beta2", "0.999", "number", "Of adam and adamw"};
  Text epsilon{*this, "eps", "1e-8", "number", "Of adam and adamw"};
  Text weightDecay{*this, "weight-decay", "0", "number",
                   "Decay of weights: decoupled for adamw (default: 0)"};
  Text clip{*this, "clip", "0", "norm",
            "Scale gradients down to this norm, of all ranks (default: 0, "
            "never)"};
  Text evalEvery{*this, "eval-every", "0", "steps",
                 "How often the end of the text, which is not trained on, is "
                 "evaluated (default: 0, never)"};
  Text evalShare{*this, "eval-share", "0.1", "number",
                 "Its share of the text (default: 0.1)"};
  Text evalBatches{*this, "eval-batches", "8", "number",
                   "How many of its batches (default: 8)"};
  Text save{*this, "save", "", "folder", "Where checkpoints go"};
  Text saveEvery{*this, "save-every", "0", "steps",
                 "How often (default: 0, at the end)"};
  Flag saveSharded{*this, "save-sharded", "A file for each rank"};
  Flag resume{*this, "resume",
              "Go on where the checkpoint in --save ends; begin where there is "
              "none"};
  Text log{*this, "log", "", "file", "Write a line of JSON for each step"};
  Text curve{*this, "curve", "", "file.svg", "Draw the losses"};
  Text loads{*this, "loads", "", "file.svg",
             "Draw what share of its rows each expert got, step by step"};
  Flag switchPlans{*this, "switch-plans",
                   "Run every step with another legal plan"};
  Text variants{
      *this, "variants", "", "list",
      "Compile several variants: \"r=auto schedule=equal,groups "
      "rows=decode,prefill\" is all that are legal; with --adapt, --r "
      "and --schedule say which is the first"};
  Flag recompute{*this, "moe-recompute",
                 "Keep less of the forward pass, and compute it again"};
  Text threads{*this, "threads", "0", "number", "Default: one per processor"};
  Text memoryLimit{*this, "memory-limit", "", "bytes",
                   "Refuse to hold more, e.g. 800000000, 512M, 4G"};
  Text cpu{*this, "target-cpu", "host", "name",
           "Processor to compile for: host (default), x86-64-v3, ..."};
  cl::opt<std::string> optLevel{
      "O",
      cl::Prefix,
      cl::init("3"),
      cl::value_desc("level"),
      cl::cat(category),
      cl::desc("Optimisation level, 0 to 3 (default)")};
  Text cacheDir{*this, "cache-dir", "", "folder",
                "Where compiled programs are kept (default: moira in the "
                "user's cache folder)"};
  Flag noCache{*this, "no-cache", "Keep no compiled programs"};
  Flag quiet{*this, "quiet", "Print the last line only"};
  RankCommandLine grid{category};
  DeviceCommandLine device{category};
  AdaptCommandLine adapt{category};
};
} // namespace

/// Reads a number from `least` to `most`.
static llvm::Error readReal(double &value, const cl::opt<std::string> &option,
                            double least, double most) {
  if (llvm::to_float(option.getValue(), value) && value >= least &&
      value <= most)
    return llvm::Error::success();
  std::string range;
  llvm::raw_string_ostream(range)
      << "a number from " << least << " to " << most;
  return expected(option.ArgStr, range, option.getValue());
}

static llvm::Error readUpdate(const CommandLine &line, TrainOptions &options) {
  runtime::UpdateOptions &update = options.update;
  if (!llvm::is_contained({"sgd", "adam", "adamw"}, line.optimizer.getValue()))
    return expected("optimizer", "sgd, adam or adamw",
                    line.optimizer.getValue());
  update.rule = line.optimizer;
  update.nesterov = line.nesterov;
  constexpr double most = 1e6, below1 = 1 - 1e-12;
  struct Number {
    double &value;
    const cl::opt<std::string> &option;
    double least, most;
  };
  for (const Number &number :
       {Number{options.rate.peak, line.lr, 0, most},
        Number{options.rate.least, line.minLr, 0, most},
        Number{update.momentum, line.momentum, 0, below1},
        Number{update.beta1, line.beta1, 0, below1},
        Number{update.beta2, line.beta2, 0, below1},
        Number{update.epsilon, line.epsilon, 1e-30, 1},
        Number{update.weightDecay, line.weightDecay, 0, most},
        Number{options.clip, line.clip, 0, 1e30},
        Number{options.evalShare, line.evalShare, 0, 0.9}})
    if (llvm::Error error =
            readReal(number.value, number.option, number.least, number.most))
      return error;
  if (update.nesterov && update.momentum == 0)
    return llvm::createStringError(
        "--nesterov: expected --momentum above 0 beside it, got 0");
  if (!llvm::is_contained({"constant", "cosine"}, line.lrSchedule.getValue()))
    return expected("lr-schedule", "constant or cosine",
                    line.lrSchedule.getValue());
  options.rate.cosine = line.lrSchedule == "cosine";
  return llvm::Error::success();
}

static llvm::Error readNumbers(const CommandLine &line, TrainOptions &options) {
  constexpr int64_t most = int64_t(1) << 40;
  struct Number {
    int64_t &value;
    const cl::opt<std::string> &option;
    int64_t least, most;
  };
  for (const Number &number :
       {Number{options.steps, line.steps, 0, most},
        Number{options.batch, line.batch, 1, 1 << 24},
        Number{options.accumulate, line.accumulate, 1, 1 << 20},
        Number{options.rate.warmup, line.warmup, 0, most},
        Number{options.evalEvery, line.evalEvery, 0, most},
        Number{options.evalBatches, line.evalBatches, 1, most},
        Number{options.saveEvery, line.saveEvery, 0, most}})
    if (llvm::Error error =
            readInto(number.value, number.option, number.least, number.most))
      return error;
  if (llvm::Error error = readInto(options.seed, line.seed, 0, INT64_MAX))
    return error;
  if (llvm::Error error = readInto(options.threads, line.threads, 0, 4096))
    return error;
  if (llvm::Error error = readInto(options.jit.optLevel, line.optLevel, 0, 3))
    return error;
  options.rate.steps = options.steps;
  if (line.memoryLimit.empty())
    return llvm::Error::success();
  std::optional<int64_t> bytes = parseBytes(line.memoryLimit);
  if (!bytes || *bytes == 0)
    return expected("memory-limit",
                    "a number of bytes such as 800000000, 512M or 4G",
                    line.memoryLimit.getValue());
  options.memoryLimit = *bytes;
  return llvm::Error::success();
}

static llvm::Error checkTogether(const TrainOptions &options) {
  if (options.text.empty() == options.batches.empty())
    return llvm::createStringError(
        "expected one of --text and --batches, "
        "got " +
        llvm::Twine(options.text.empty() ? "none" : "both"));
  if (options.evalEvery > 0 && options.text.empty())
    return llvm::createStringError(
        "--eval-every: expected --text beside it, got --batches");
  if (options.save.empty() && (options.resume || options.saveEvery > 0))
    return llvm::createStringError(
        llvm::Twine(options.resume ? "--resume" : "--save-every") +
        ": expected --save beside it, got none");
  for (auto [name, path] :
       {std::pair("log", options.log), std::pair("curve", options.curve),
        std::pair("loads", options.loads)})
    if (llvm::Error error = checkFolder(name, path))
      return error;
  return llvm::Error::success();
}

llvm::Expected<TrainOptions> tools::parseOptions(int argc, char **argv) {
  prepareTool();
  CommandLine line;
  if (llvm::Error error =
          parseCommandLine(argc, argv, "Compiles and trains a Moira program\n"))
    return error;
  TrainOptions options;
  options.program = line.program;
  options.entry = line.entry;
  options.text = line.text;
  options.batches = line.batches;
  options.weights = line.weights;
  options.save = line.save;
  options.shardedSave = line.saveSharded;
  options.resume = line.resume;
  options.log = line.log;
  options.curve = line.curve;
  options.loads = line.loads;
  options.switchPlans = line.switchPlans;
  options.quiet = line.quiet;
  if (llvm::Error error = readNumbers(line, options))
    return error;
  if (llvm::Error error = readUpdate(line, options))
    return error;
  if (llvm::Error error = line.grid.read(options.grid))
    return error;
  if (llvm::Error error = line.adapt.read(options.adapt, options.grid))
    return error;
  if (options.switchPlans && options.adapt.adapt)
    return llvm::createStringError(
        "--switch-plans: expected no --adapt beside it, got one");
  if (line.seq.getNumOccurrences() > 0)
    if (llvm::Error error = readInto(options.sequence, line.seq, 1, 1 << 24))
      return error;
  if (llvm::Error error = readCacheFolder(options.jit.cacheDirectory,
                                          line.cacheDir, line.noCache))
    return error;
  if (llvm::Error error = checkTogether(options))
    return error;
  options.jit.cpu = line.cpu;
  PipelineOptions &pipeline = options.jit.pipeline;
  pipeline.entry = options.entry;
  pipeline.moduleName = llvm::sys::path::filename(options.program).str();
  pipeline.gradients = true;
  pipeline.packGradients = true;
  pipeline.recompute = line.recompute;
  pipeline.updates = {options.update.rule};
  llvm::Expected<DeviceChoice> device = readDevice(line.device);
  if (!device)
    return device.takeError();
  options.device = std::move(*device);
  pipeline.device = options.device.options();
  pipeline.copies = options.grid.copies;
  pipeline.spareSlots = options.grid.spareSlots;
  pipeline.schedule = options.grid.schedule;
  if (options.grid.hiddenBlocks > 0)
    pipeline.hiddenBlocks = options.grid.hiddenBlocks;
  if (line.variants.getNumOccurrences() > 0) {
    // Rows choose among variants, or who adapts, beginning with these.
    if (!options.adapt.adapt)
      if (llvm::Error error =
              expectNone("variants", {line.grid.copies, line.grid.schedule}))
        return error;
    options.variants.emplace();
    if (llvm::Error error = parseVariants(line.variants.getValue(),
                                          *options.variants, pipeline))
      return error;
  }
  return options;
}
