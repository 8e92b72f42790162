// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Trains a program: compiles it with its way back and an optimizer, takes
// batches from a text, and says how the loss goes.

#include "Batches.h"
#include "Log.h"
#include "Options.h"
#include "Trainer.h"

#include "moira/JIT/ParseProgram.h"
#include "support/CommandLine.h"
#include "support/Progress.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cmath>

using namespace moira;
using namespace moira::tools;
using std::chrono::steady_clock;

namespace {
/// One run of the tool.
class Run {
public:
  Run(const TrainOptions &options, const Launch &launch)
      : options(options), launch(launch) {}

  llvm::Error run();

private:
  llvm::Error compileProgram();
  llvm::Error train();
  void print(const TrainStep &step, std::optional<double> evaluation);
  void printEnd(const TrainStep &last, double seconds);

  const TrainOptions &options;
  const Launch &launch;
  std::shared_ptr<const runtime::Program> program;
  std::unique_ptr<Grid> grid;
  std::unique_ptr<Trainer> trainer;
  Progress progress;
};
} // namespace

llvm::Error Run::compileProgram() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  WarningPrinter warnings(&context, trainToolName);
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> module =
      parseProgram(options.program, context);
  if (!module)
    return module.takeError();
  JitOptions jit = options.jit;
  jit.pipeline.ranks = launch.ranks(options.grid);
  auto compiled = options.variants
                      ? compileVariants(**module, jit, *options.variants)
                      : compile(**module, jit);
  if (!compiled)
    return compiled.takeError();
  program = *compiled;
  return llvm::Error::success();
}

void Run::print(const TrainStep &step, std::optional<double> evaluation) {
  int64_t every = std::max<int64_t>(1, options.steps / 20);
  bool shown =
      evaluation || step.step % every == 0 || step.step + 1 == options.steps;
  if (!grid->isFirst() || options.quiet || !shown)
    return;
  progress.finish();
  double tokens = static_cast<double>(options.batch * options.accumulate *
                                      trainer->length());
  llvm::outs() << llvm::format("step %6lld  loss %.5f  lr %.3g",
                               (long long)step.step, step.loss, step.rate);
  if (step.norm >= 0)
    llvm::outs() << llvm::format("  norm %.4g", step.norm);
  llvm::outs() << llvm::format("  %.0f tokens/s", tokens / step.seconds);
  if (evaluation)
    llvm::outs() << llvm::format("  eval %.5f", *evaluation);
  if (!step.plan.empty())
    llvm::outs() << "  (" << step.plan << ")";
  llvm::outs() << '\n';
  llvm::outs().flush();
}

void Run::printEnd(const TrainStep &last, double seconds) {
  progress.finish();
  if (!grid->isFirst())
    return;
  runtime::MemoryFigures memory = trainer->memory();
  llvm::outs() << llvm::format("trained %lld steps in %.1f s, loss %.5f; ",
                               (long long)options.steps, seconds, last.loss)
               << trainer->parameters() << " parameters, memory peak "
               << formatBytes(static_cast<double>(memory.peak)) << " (weights "
               << formatBytes(static_cast<double>(memory.parameters))
               << ", gradients and optimizer "
               << formatBytes(static_cast<double>(memory.training))
               << ", residuals "
               << formatBytes(static_cast<double>(memory.residuals)) << ")\n";
}

llvm::Error Run::train() {
  llvm::Expected<Batches> batches = Batches::open(options, trainer->length());
  if (!batches)
    return batches.takeError();
  InterruptGuard guard(*grid);
  std::optional<int64_t> resumed;
  if (options.resume) {
    llvm::Expected<std::optional<int64_t>> step = trainer->resume();
    if (!step)
      return step.takeError();
    resumed = *step;
  }
  if (!resumed)
    if (llvm::Error error = trainer->bind())
      return error;
  int64_t first = resumed.value_or(0);
  Log log(options);
  if (grid->isFirst())
    if (llvm::Error error = log.open(first))
      return error;
  if (first >= options.steps) {
    if (grid->isFirst())
      llvm::outs() << "nothing to train: the checkpoint has " << first
                   << " steps\n";
    return llvm::Error::success();
  }
  auto started = steady_clock::now();
  progress.start("training");
  TrainStep last;
  for (int64_t step = first; step < options.steps; ++step) {
    llvm::Expected<TrainStep> made = trainer->step(step, *batches);
    if (!made)
      return made.takeError();
    last = std::move(*made);
    if (!std::isfinite(last.loss))
      return llvm::createStringError(
          "step " + llvm::Twine(step) + ": expected a finite loss, got " +
          std::to_string(last.loss) + " (a smaller --lr, or --clip?)");
    std::optional<double> evaluation;
    bool isLast = step + 1 == options.steps;
    if (options.evalEvery > 0 &&
        ((step + 1) % options.evalEvery == 0 || isLast)) {
      llvm::Expected<double> loss = trainer->evaluate(*batches);
      if (!loss)
        return loss.takeError();
      evaluation = *loss;
    }
    if (grid->isFirst())
      if (llvm::Error error = log.add(last, evaluation))
        return error;
    print(last, evaluation);
    bool isDue = options.saveEvery > 0 && (step + 1) % options.saveEvery == 0;
    if (!options.save.empty() && (isDue || isLast))
      if (llvm::Error error = trainer->save(step + 1))
        return error;
    progress.update(step + 1, options.steps);
  }
  if (llvm::Error error = trainer->finishAdapting())
    return error;
  printEnd(
      last,
      std::chrono::duration<double>(steady_clock::now() - started).count());
  if (options.adapt.explain && grid->isFirst()) {
    llvm::Expected<std::string> text = trainer->explain();
    if (!text)
      return text.takeError();
    llvm::outs() << *text;
  }
  return grid->isFirst() ? log.finish() : llvm::Error::success();
}

llvm::Error Run::run() {
  if (llvm::Error error = compileProgram())
    return error;
  int ranks = launch.ranks(options.grid);
  auto made = Grid::create(launch, options.grid, ranks);
  if (!made)
    return made.takeError();
  grid = std::move(*made);
  auto created = Trainer::create(program, options, *grid);
  if (!created)
    return created.takeError();
  trainer = std::move(*created);
  return train();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::Expected<TrainOptions> options = parseOptions(argc, argv);
  if (!options)
    return fail(trainToolName, options.takeError());
  llvm::Expected<Launch> launch = Launch::read(options->grid);
  if (!launch)
    return fail(trainToolName, launch.takeError());
  if (llvm::Error error = Run(*options, *launch).run())
    return fail(trainToolName, std::move(error));
  return 0;
}
