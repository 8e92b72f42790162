// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StepRun.h"

#include "PlanComparison.h"
#include "StepPicture.h"
#include "StepSource.h"
#include "StepTable.h"

#include "io/AtomicFile.h"
#include "support/CommandLine.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// What times all plans; null: nobody asked.
static llvm::Expected<std::unique_ptr<PlanComparison>>
makeComparison(const RunOptions &options, const EntrySpec &entry,
               const Grid &grid) {
  if (!options.steps.comparePlans)
    return nullptr;
  std::optional<Calibration> known;
  if (!options.adapt.calibration.empty()) {
    auto read = readCalibration(options.adapt.calibration);
    if (!read)
      return read.takeError();
    known = std::move(*read);
  }
  return PlanComparison::create(entry, grid, options.grad, known);
}

/// One step of all ranks.
static llvm::Expected<StepRecord> runStep(int64_t step, const EntrySpec &entry,
                                          RankSessions &sessions,
                                          const Inputs &inputs,
                                          PlanComparison *comparison) {
  llvm::Expected<std::vector<double>> times =
      sessions.run(entry.name, inputs, 1);
  if (!times)
    return times.takeError();
  llvm::Expected<StepRow> row = sessions.sumStep();
  if (!row)
    return row.takeError();
  StepRecord record =
      describeStep(entry, *row, step, inputs.tokens(), times->front());
  if (!comparison)
    return record;
  llvm::Expected<std::vector<double>> fixed = comparison->times(*row);
  if (!fixed)
    return fixed.takeError();
  record.fixed = std::move(*fixed);
  record.fixedPredicted = comparison->predictions(*row);
  return record;
}

static llvm::Error draw(const std::string &path, const StepTable &table) {
  std::string text = drawSteps(table);
  return toError(io::writeFile(path, text.data(), int64_t(text.size()))
                     .within("--picture"));
}

llvm::Error tools::runDifferentSteps(const RunOptions &options,
                                     const LoadedProgram &program,
                                     const Grid &grid, RankSessions &sessions,
                                     Inputs &inputs, Report &report) {
  const EntrySpec &entry = program.entry();
  auto source =
      StepSource::create(options.steps, entry, program.replayedGates(), inputs);
  if (!source)
    return source.takeError();
  auto comparison = makeComparison(options, entry, grid);
  if (!comparison)
    return comparison.takeError();
  StepTable table(llvm::outs(), options.json || !grid.isFirst());
  if (*comparison)
    for (const Candidate &plan : (*comparison)->plans())
      table.addPlan(plan.describe());
  for (int64_t step = 0; step < options.steps.steps; ++step) {
    if (llvm::Error error = source->next())
      return error;
    llvm::Expected<StepRecord> record =
        runStep(step, entry, sessions, inputs, comparison->get());
    if (!record)
      return llvm::createStringError(options.program + ": step " +
                                     llvm::Twine(step) + ": " +
                                     llvm::toString(record.takeError()));
    (step == 0 ? report.firstSeconds : report.repeats.emplace_back()) =
        record->seconds;
    if (options.grad)
      report.backward.push_back(sessions.backwardTimes().front());
    table.add(std::move(*record));
  }
  report.steps = table.toJson();
  for (const std::string &name : table.planNames())
    report.plans.push_back(name);
  if (options.steps.picture.empty() || !grid.isFirst())
    return llvm::Error::success();
  return draw(options.steps.picture, table);
}
