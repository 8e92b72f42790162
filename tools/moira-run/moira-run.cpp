// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a program: compiles it in memory or loads a bundle, finds or makes its
// inputs and weights, runs it, and says what happened.

#include "Calibrate.h"
#include "Inputs.h"
#include "LoadedProgram.h"
#include "Options.h"
#include "Outputs.h"
#include "RankSessions.h"
#include "Report.h"
#include "StepRun.h"
#include "VariantChoice.h"
#include "Verify.h"
#include "Weights.h"
#include "io/AtomicFile.h"
#include "support/Progress.h"
#include "support/SlotTable.h"

#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <unistd.h>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
using std::chrono::steady_clock;

static double secondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

namespace {
/// One run of the tool.
class Run {
public:
  Run(const RunOptions &options, const Launch &launch,
      steady_clock::time_point start)
      : options(options), launch(launch), start(start) {}

  /// The exit code, or the error.
  llvm::Expected<int> run();

private:
  llvm::Error checkRanks() const;
  llvm::Error prepare();
  llvm::Error plan();
  llvm::Error checkMemory();
  llvm::Error fill();
  llvm::Error bind();
  llvm::Expected<int> measure();
  llvm::Error runSteps();
  llvm::Error gather();
  llvm::Error runVariants();
  void describe();
  llvm::Error explain();
  llvm::Error finish();

  /// What is written, but for gradients of parameters.
  std::vector<TensorSpec> outputSpecs() const;
  const std::string &entryName() const { return program->entry().name; }

  const RunOptions &options;
  const Launch &launch;
  const steady_clock::time_point start;
  Progress progress;
  std::unique_ptr<LoadedProgram> program;
  std::optional<Inputs> inputs;
  std::unique_ptr<Grid> grid;
  std::unique_ptr<RankSessions> sessions;
  std::vector<ResultTensor> results; ///< of all ranks
  std::optional<Gradients> gradients;
  Report report;
};
} // namespace

/// A bundle is made for a number of ranks; a program was compiled for those
/// that there are.
llvm::Error Run::checkRanks() const {
  int ranks = program->entry().ranks;
  int there = launch.processes ? launch.environment.ranks : options.grid.ranks;
  if (there == 0 || there == ranks)
    return llvm::Error::success();
  return llvm::createStringError(options.program + ": expected " +
                                 llvm::Twine(ranks) +
                                 (ranks == 1 ? " rank" : " ranks") +
                                 ", as the program was compiled for, "
                                 "got " +
                                 llvm::Twine(there));
}

/// Everything that can fail before weights are read.
llvm::Error Run::prepare() {
  auto loaded = LoadedProgram::load(options);
  if (!loaded)
    return loaded.takeError();
  program = std::move(*loaded);
  const EntrySpec &entry = program->entry();
  if (llvm::Error error = checkRanks())
    return error;
  llvm::Expected<Inputs> planned = Inputs::plan(program->signature(), options);
  if (!planned)
    return planned.takeError();
  inputs = std::move(*planned);
  if (!options.output.empty()) {
    if (llvm::Error error = checkOutput(options.output, outputSpecs()))
      return error;
  }
  auto made = Grid::create(launch, options.grid, entry.ranks);
  if (!made)
    return made.takeError();
  grid = std::move(*made);
  auto created =
      RankSessions::create(program->shared(), options, *grid, progress);
  if (!created)
    return created.takeError();
  sessions = std::move(*created);
  return plan();
}

std::vector<TensorSpec> Run::outputSpecs() const {
  const EntrySpec &entry = program->entry();
  std::vector<TensorSpec> specs(entry.results.begin(),
                                entry.results.begin() + program->ownResults());
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name.empty())
      specs[i].name = concat("result", i);
  if (options.grad)
    for (const TensorSpec &spec : inputGradients(entry, *program->backward()))
      specs.push_back(spec);
  return specs;
}

/// What the steps run with.
llvm::Error Run::plan() {
  int64_t rows = 0;
  for (int rank = 0; rank < grid->ranks(); ++rank)
    rows = std::max(rows, inputs->rowsOf(rank).count);
  llvm::Expected<std::string> variant =
      chooseVariant(program->entry(), options, rows);
  if (!variant)
    return variant.takeError();
  if (!variant->empty())
    if (llvm::Error error = sessions->setVariant(entryName(), *variant))
      return error;
  PlanOptions plan;
  plan.degree = options.grid.degree;
  plan.exchange = options.grid.exchange;
  llvm::Expected<std::vector<int32_t>> table =
      makeSlotTable(options.grid.slotTable, program->entry());
  if (!table)
    return table.takeError();
  plan.slotTable = std::move(*table);
  if (llvm::Error error = sessions->setPlan(plan, options.grid.shadows))
    return error;
  if (options.grid.rebalance > 0)
    if (llvm::Error error =
            sessions->setRebalance(entryName(), options.grid.rebalance))
      return error;
  return sessions->adapt(entryName(), options);
}

/// Refuses what cannot fit, before weights are read and inputs made.
llvm::Error Run::checkMemory() {
  llvm::Expected<int64_t> predicted =
      sessions->predictPeak(entryName(), *inputs);
  if (!predicted)
    return llvm::createStringError(options.program + ": " +
                                   llvm::toString(predicted.takeError()));
  int64_t ranks = grid->local().size();
  int64_t peak = *predicted;
  int64_t weights = weightBytes(program->program().manifest()) * ranks;
  if (options.memoryLimit > 0 && peak / ranks > options.memoryLimit)
    return llvm::createStringError(
        options.program + ": expected a peak within the memory limit of " +
        llvm::Twine(options.memoryLimit) + " bytes, got a predicted peak of " +
        llvm::Twine(peak / ranks) + " bytes (weights " +
        llvm::Twine(weights / ranks) + ")");
  int64_t machine = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t needed = 0;
  if (__builtin_add_overflow(peak, inputs->bytes(), &needed))
    needed = INT64_MAX;
  if (machine > 0 && needed > machine)
    return llvm::createStringError(
        options.program + ": expected a peak within this machine's " +
        llvm::Twine(machine) + " bytes of memory, got a predicted peak of " +
        llvm::Twine(needed) + " bytes (weights " + llvm::Twine(weights) + ")");
  return llvm::Error::success();
}

/// The tokens of this process's ranks; of all ranks where this process compares
/// with the oracle, or ranks do not always have the same ones.
llvm::Error Run::fill() {
  if ((grid->isFirst() && options.verify) || options.steps.active())
    return inputs->fill();
  Rows first = inputs->rowsOf(grid->local().front());
  Rows last = inputs->rowsOf(grid->local().back());
  return inputs->fill({first.begin, last.begin + last.count - first.begin});
}

llvm::Error Run::bind() {
  auto started = steady_clock::now();
  progress.start(options.weights.empty() ? "random weights" : "weights");
  llvm::Error error = sessions->bind(options);
  progress.finish();
  report.weightSeconds = secondsSince(started);
  return error;
}

/// Measures this machine instead of reporting a run.
llvm::Expected<int> Run::measure() {
  llvm::Expected<Measurements> measured =
      calibrate(*program, options, *grid, *sessions);
  if (!measured)
    return measured.takeError();
  if (!grid->isFirst())
    return 0;
  std::string text = measured->calibration.toJson();
  if (llvm::Error error = toError(
          io::writeFile(options.calibrate, text.data(), int64_t(text.size()))
              .within("--calibrate")))
    return error;
  printMeasurements(*measured, llvm::outs());
  return 0;
}

llvm::Error Run::runSteps() {
  report.startSeconds = secondsSince(start);
  if (options.steps.active())
    return runDifferentSteps(options, *program, *grid, *sessions, *inputs,
                             report);
  llvm::Expected<std::vector<double>> times =
      sessions->run(entryName(), *inputs, 1);
  if (!times)
    return llvm::createStringError(options.program + ": " +
                                   llvm::toString(times.takeError()));
  report.firstSeconds = times->front();
  if (options.grad)
    report.backward = sessions->backwardTimes();
  if (options.repeat == 0)
    return llvm::Error::success();
  progress.start("runs");
  sessions->forgetParts();
  times = sessions->run(entryName(), *inputs, options.repeat);
  progress.finish();
  if (!times)
    return llvm::createStringError(options.program + ": " +
                                   llvm::toString(times.takeError()));
  report.repeats = std::move(*times);
  if (options.grad)
    report.backward.insert(report.backward.end(),
                           sessions->backwardTimes().begin(),
                           sessions->backwardTimes().end());
  return llvm::Error::success();
}

/// Brings together what the ranks have. Collective among processes.
llvm::Error Run::gather() {
  llvm::Expected<StepRow> step = sessions->sumStep();
  if (!step)
    return step.takeError();
  report.step = std::move(*step);
  auto figures = sessions->gatherFigures(program->entry(), *inputs);
  if (!figures)
    return figures.takeError();
  report.ranks = std::move(*figures);
  if (options.output.empty() && !options.verify)
    return llvm::Error::success();
  auto joined = sessions->joinResults(program->entry(), *inputs);
  if (!joined)
    return joined.takeError();
  results = std::move(*joined);
  if (!options.grad)
    return llvm::Error::success();
  auto summed =
      sessions->joinGradients(program->entry(), *program->backward(), *inputs);
  if (!summed)
    return summed.takeError();
  gradients = std::move(*summed);
  return llvm::Error::success();
}

/// One step in each variant.
llvm::Error Run::runVariants() {
  for (const VariantSpec &variant : program->entry().variants) {
    if (llvm::Error error = sessions->setVariant(entryName(), variant.name))
      return error;
    if (llvm::Error error = runSteps())
      return error;
    if (llvm::Error error = gather())
      return error;
    VariantRun &run = report.qualified.emplace_back();
    run.variant = variant.name;
    run.numerics = variant.numerics;
    run.seconds = report.firstSeconds;
    run.results = std::move(results);
    run.gradients = std::move(gradients);
  }
  return llvm::Error::success();
}

void Run::describe() {
  const EntrySpec &entry = program->entry();
  const Manifest &manifest = program->program().manifest();
  report.program = options.program;
  report.entry = entry.name;
  report.variant = entry.variants[report.step.variant].name;
  report.schedule = entry.variants[report.step.variant].schedule;
  report.cpu = manifest.target.cpu;
  if (options.device.isGPU())
    report.device = options.device.kind + " " + options.device.arch;
  std::vector<TensorSpec> given = program->signature().inputs;
  for (size_t i = 0; i < given.size(); ++i)
    report.inputs.push_back(concat(
        given[i].name, ": ", toString(given[i].dtype, inputs->views()[i].shape),
        ", ", inputs->origin(i)));
  report.weights = options.weights.empty() ? "random" : options.weights;
  report.seed = options.seed;
  report.threads = sessions->threads();
  report.rows = report.step.rows;
  report.compileSeconds = program->compileSeconds();
  for (const RankFigures &rank : report.ranks)
    report.weightBytes += rank.weightBytes;
  report.flops = countFlops(entry, report.step);
  // The way back has about two products for each of the forward pass.
  if (options.grad)
    report.flops *= 3;
  report.memory = sessions->memory();
  report.seconds = sessions->parts();
  report.grid = options.grid;
  report.transport = grid->transport();
  for (const LayerSpec &layer : entry.layers)
    if (layer.placement && !report.placement) {
      report.placement = layer.placement;
      report.placement->copies = entry.variants[report.step.variant].copies;
    }
}

/// Why the last step ran with its plans.
llvm::Error Run::explain() {
  llvm::Expected<std::string> text =
      explainText(sessions->first(), entryName());
  if (!text)
    return text.takeError();
  report.explanation = std::move(*text);
  Result<std::string> json = sessions->first().explainJson(entryName());
  if (!json.ok())
    return toError(json.status());
  report.explanationJson = std::move(*json);
  return llvm::Error::success();
}

/// What only the first process does, after all ranks have ended.
llvm::Error Run::finish() {
  if (options.qualify) {
    if (llvm::Error error =
            qualify(*program, options, *inputs, report.qualified, progress))
      return error;
    if (options.isBundle)
      if (llvm::Error error =
              writeQualified(options, program->entry(), report.qualified))
        return error;
  } else if (options.verify) {
    auto verification = verify(*program, options, *inputs, results,
                               gradients ? &*gradients : nullptr, progress);
    if (!verification)
      return verification.takeError();
    report.verification = std::move(*verification);
  }
  if (!options.output.empty()) {
    std::vector<ResultTensor> written(results.begin(),
                                      results.begin() + program->ownResults());
    if (gradients)
      written.insert(written.end(), gradients->inputs.begin(),
                     gradients->inputs.end());
    if (llvm::Error error =
            writeOutput(options.output, outputSpecs(), written,
                        gradients ? &gradients->parameters : nullptr))
      return error;
  }
  if (options.json)
    report.printJson(llvm::outs());
  else
    report.print(llvm::outs());
  return llvm::Error::success();
}

llvm::Expected<int> Run::run() {
  if (llvm::Error error = prepare())
    return error;
  if (llvm::Error error = checkMemory())
    return error;
  if (llvm::Error error = fill())
    return error;
  {
    InterruptGuard guard(*grid);
    if (llvm::Error error = bind())
      return error;
    if (!options.calibrate.empty())
      return measure();
    if (options.qualify) {
      if (llvm::Error error = runVariants())
        return error;
    } else {
      if (llvm::Error error = runSteps())
        return error;
      if (llvm::Error error = gather())
        return error;
    }
    if (llvm::Error error = grid->writeTrace(options.grid.trace))
      return error;
    if (llvm::Error error = sessions->finishAdapting(entryName()))
      return error;
  }
  describe();
  if (options.adapt.explain)
    if (llvm::Error error = explain())
      return error;
  // The oracle needs the memory of the weights.
  sessions.reset();
  if (grid->isFirst())
    if (llvm::Error error = finish())
      return error;
  bool failed = report.verification && !report.verification->passed();
  for (const VariantRun &run : report.qualified)
    failed |= grid->isFirst() && !run.passed;
  return failed ? 1 : 0;
}

int main(int argc, char **argv) {
  steady_clock::time_point start = steady_clock::now();
  llvm::InitLLVM init(argc, argv);
  llvm::Expected<RunOptions> options = parseOptions(argc, argv);
  if (!options)
    return fail(runToolName, options.takeError());
  llvm::Expected<Launch> launch = Launch::read(options->grid);
  if (!launch)
    return fail(runToolName, launch.takeError());
  options->jit.pipeline.ranks = launch->ranks(options->grid);
  llvm::Expected<int> code = Run(*options, *launch, start).run();
  if (!code)
    return fail(runToolName, code.takeError());
  return *code;
}
