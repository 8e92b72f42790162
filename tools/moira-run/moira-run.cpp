// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a program: compiles it in memory or loads a bundle, finds or makes its
// inputs and weights, runs it, and says what happened.

#include "Inputs.h"
#include "LoadedProgram.h"
#include "Options.h"
#include "Outputs.h"
#include "Progress.h"
#include "Report.h"
#include "Verify.h"
#include "Weights.h"

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
  Run(const RunOptions &options, steady_clock::time_point start)
      : options(options), start(start) {}

  /// The exit code, or the error.
  llvm::Expected<int> run();

private:
  llvm::Error prepare();
  llvm::Error checkMemory();
  llvm::Error bind();
  llvm::Error step(double &seconds);
  llvm::Error runSteps();
  void describe();

  const RunOptions &options;
  const steady_clock::time_point start;
  Progress progress;
  std::unique_ptr<LoadedProgram> program;
  std::optional<Inputs> inputs;
  std::unique_ptr<Session> session;
  std::vector<ResultTensor> results;
  Report report;
};
} // namespace

/// Everything that can fail before weights are read.
llvm::Error Run::prepare() {
  auto loaded = LoadedProgram::load(options);
  if (!loaded)
    return loaded.takeError();
  program = std::move(*loaded);
  const EntrySpec &entry = program->entry();
  llvm::Expected<Inputs> planned = Inputs::plan(entry, options);
  if (!planned)
    return planned.takeError();
  inputs = std::move(*planned);
  if (!options.output.empty()) {
    llvm::ArrayRef<TensorSpec> own(entry.results.data(), program->ownResults());
    if (llvm::Error error = checkOutput(options.output, own))
      return error;
  }

  SessionOptions sessionOptions;
  sessionOptions.threads = options.threads;
  sessionOptions.memoryLimit = options.memoryLimit;
  // Only the last step is reported.
  sessionOptions.statisticsSteps = 1;
  sessionOptions.progress = [this](int64_t done, int64_t all) {
    progress.update(done, all);
  };
  auto created = Session::create(program->shared(), sessionOptions);
  if (!created.ok())
    return toError(created.status().within(options.program));
  session = std::move(*created);
  if (!options.variant.empty())
    return toError(
        session->setVariant(entry.name, options.variant).within("--variant"));
  return llvm::Error::success();
}

/// Refuses what cannot fit, before weights are read and inputs made.
llvm::Error Run::checkMemory() {
  Result<int64_t> step =
      session->predictPeak(program->entry().name, inputs->views());
  if (!step.ok())
    return toError(step.status().within(options.program));
  int64_t peak = *step;
  int64_t weights = weightBytes(session->manifest());
  int64_t missing = weights - session->memory().parameters;
  if (__builtin_add_overflow(peak, missing, &peak))
    peak = INT64_MAX;
  if (options.memoryLimit > 0 && peak > options.memoryLimit)
    return llvm::createStringError(
        options.program + ": expected a peak within the memory limit of " +
        llvm::Twine(options.memoryLimit) + " bytes, got a predicted peak of " +
        llvm::Twine(peak) + " bytes (weights " + llvm::Twine(weights) + ")");
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

llvm::Error Run::bind() {
  auto started = steady_clock::now();
  progress.start(options.weights.empty() ? "random weights" : "weights");
  llvm::Error error = bindWeights(*session, options);
  progress.finish();
  report.weightSeconds = secondsSince(started);
  return error;
}

llvm::Error Run::step(double &seconds) {
  results.clear();
  auto started = steady_clock::now();
  Status status =
      session->invoke(program->entry().name, inputs->views(), results);
  seconds = secondsSince(started);
  return toError(status.within(options.program));
}

llvm::Error Run::runSteps() {
  report.startSeconds = secondsSince(start);
  if (llvm::Error error = step(report.firstSeconds))
    return error;
  if (options.repeat == 0)
    addParts(session->statistics().back(), report.seconds);
  progress.start("runs");
  for (int64_t i = 0; i < options.repeat; ++i) {
    progress.update(i, options.repeat);
    if (llvm::Error error = step(report.repeats.emplace_back()))
      return error;
    addParts(session->statistics().back(), report.seconds);
  }
  progress.finish();
  report.step = session->statistics().back();
  report.flops = countFlops(program->entry(), report.step);
  report.memory = session->memory();
  return llvm::Error::success();
}

void Run::describe() {
  const EntrySpec &entry = program->entry();
  const Manifest &manifest = session->manifest();
  report.program = options.program;
  report.entry = entry.name;
  report.variant = entry.variants[report.step.variant].name;
  report.cpu = manifest.target.cpu;
  for (size_t i = 0; i < entry.inputs.size(); ++i)
    report.inputs.push_back(
        concat(entry.inputs[i].name, ": ",
               toString(entry.inputs[i].dtype, inputs->views()[i].shape), ", ",
               inputs->origin(i)));
  report.weights = options.weights.empty() ? "random" : options.weights;
  report.seed = options.seed;
  report.threads = session->threads();
  report.rows = inputs->rows();
  report.compileSeconds = program->compileSeconds();
  report.weightBytes = weightBytes(manifest);
}

llvm::Expected<int> Run::run() {
  if (llvm::Error error = prepare())
    return error;
  if (llvm::Error error = checkMemory())
    return error;
  if (llvm::Error error = inputs->fill())
    return error;
  if (llvm::Error error = bind())
    return error;
  if (llvm::Error error = runSteps())
    return error;
  describe();
  // The oracle needs the memory of the weights.
  session.reset();
  if (options.verify) {
    auto verification = verify(*program, options, *inputs, results, progress);
    if (!verification)
      return verification.takeError();
    report.verification = std::move(*verification);
  }
  size_t own = program->ownResults();
  if (!options.output.empty())
    if (llvm::Error error = writeOutput(
            options.output,
            llvm::ArrayRef(program->entry().results).take_front(own),
            llvm::ArrayRef(results).take_front(own)))
      return error;
  if (options.json)
    report.printJson(llvm::outs());
  else
    report.print(llvm::outs());
  return report.verification && !report.verification->passed() ? 1 : 0;
}

int main(int argc, char **argv) {
  steady_clock::time_point start = steady_clock::now();
  llvm::InitLLVM init(argc, argv);
  llvm::Expected<RunOptions> options = parseOptions(argc, argv);
  if (!options)
    return fail(runToolName, options.takeError());
  llvm::Expected<int> code = Run(*options, start).run();
  if (!code)
    return fail(runToolName, code.takeError());
  return *code;
}
