// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Trainer.h"

#include "base/Convert.h"
#include "base/Pool.h"
#include "io/CheckpointSource.h"
#include "session/Checkpoint.h"
#include "session/Rebalancing.h"
#include "session/Residuals.h"
#include "support/CommandLine.h"
#include "support/SlotTable.h"

#include "llvm/Support/FileSystem.h"

#include <chrono>
#include <cmath>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
using std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// Making one
//===----------------------------------------------------------------------===//

/// `tokens`, `targets`: i32[?, S]; then numbers `seed` and `step` in any order.
/// The first result is the loss.
llvm::Error Trainer::checkSignature() {
  auto fail = [&](const llvm::Twine &what) {
    return llvm::createStringError(options.program + ": expected " + what);
  };
  const std::vector<TensorSpec> &inputs = entry->inputs;
  for (size_t i = 0; i < 2; ++i) {
    bool fits = i < inputs.size() && inputs[i].dtype == DataType::I32 &&
                inputs[i].shape.size() == 2 && inputs[i].shape[0] == -1 &&
                inputs[i].shape[1] > 0 &&
                inputs[i].shape[1] == inputs[0].shape[1];
    if (!fits)
      return fail("inputs tokens and targets of type i32[?, S], got " +
                  llvm::Twine(i < inputs.size()
                                  ? toString(inputs[i].dtype, inputs[i].shape)
                                  : std::string("none")) +
                  " as input " + llvm::Twine(i));
  }
  sequenceLength = inputs[0].shape[1];
  for (size_t i = 2; i < inputs.size(); ++i)
    if (!inputs[i].shape.empty() || inputs[i].dtype != DataType::I64 ||
        (inputs[i].name != "seed" && inputs[i].name != "step"))
      return fail("numbers 'seed' and 'step' as further inputs, got '" +
                  inputs[i].name + "' of type " +
                  toString(inputs[i].dtype, inputs[i].shape));
  if (options.sequence > 0 && options.sequence != sequenceLength)
    return llvm::createStringError("--seq: expected the program's length of " +
                                   llvm::Twine(sequenceLength) + ", got " +
                                   llvm::Twine(options.sequence));
  bool hasLoss = entry->programResults() > 0 &&
                 entry->results[0].shape.empty() &&
                 isFloat(entry->results[0].dtype);
  if (!hasLoss)
    return fail("a number of a float type as first result, the loss, got " +
                llvm::Twine(entry->results.empty()
                                ? std::string("none")
                                : toString(entry->results[0].dtype,
                                           entry->results[0].shape)));
  for (int64_t i = 0; i < entry->programResults(); ++i) {
    const TensorSpec &spec = entry->results[i];
    if (!isFloat(spec.dtype))
      continue;
    if (!spec.shape.empty())
      return fail("numbers as results of a float type, got " +
                  toString(spec.dtype, spec.shape) + " as result " +
                  llvm::Twine(i));
    double value = i == 0 ? 1 : 0;
    seeds.emplace_back(byteSize(spec.dtype));
    convert(DataType::F64, &value, spec.dtype, seeds.back().data(), 1);
    resultGradients.push_back({spec.dtype, {}, seeds.back().data()});
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Trainer>>
Trainer::create(std::shared_ptr<const Program> program,
                const TrainOptions &options, const Grid &grid) {
  std::unique_ptr<Trainer> made(new Trainer(options, grid));
  made->program = program;
  const Manifest &manifest = program->manifest();
  int index = options.entry.empty() ? manifest.mainEntry()
                                    : manifest.findEntry(options.entry);
  if (index < 0)
    return llvm::createStringError(options.program +
                                   ": expected an entry to train, got '" +
                                   options.entry + "'");
  made->entry = &manifest.entries[index];
  if (llvm::Error error = made->checkSignature())
    return error;
  auto statistics = openStatistics(grid, options.adapt);
  if (!statistics)
    return statistics.takeError();
  made->statistics = std::move(*statistics);
  size_t ranks = grid.local().size();
  for (int rank : grid.local()) {
    SessionOptions session;
    session.threads = options.threads;
    if (options.threads == 0 && ranks > 1)
      session.threads =
          std::max<int>(1, Pool(0).threads() / static_cast<int>(ranks));
    session.memoryLimit = options.memoryLimit;
    session.statisticsSteps = 1;
    session.communicator = grid.communicator(rank);
    session.sinks = sinksOf(made->statistics, manifest, rank);
    auto device = options.device.open(rank - grid.local().front());
    if (!device)
      return device.takeError();
    session.device = std::move(*device);
    auto created = Session::create(program, session);
    if (!created.ok())
      return toError(created.status().within(options.program));
    made->sessions.push_back(std::move(*created));
  }
  llvm::Expected<std::vector<int32_t>> table =
      makeSlotTable(options.grid.slotTable, *made->entry);
  if (!table)
    return table.takeError();
  made->seedNumber = static_cast<int64_t>(options.seed);
  made->plan.degree = options.grid.degree;
  made->plan.exchange = options.grid.exchange;
  made->plan.slotTable = std::move(*table);
  made->lastRows.resize(ranks);
  if (Status status = made->setPlan(); !status.ok())
    return toError(status);
  if (llvm::Error error =
          startAdapting(grid, made->sessions, made->entry->name, options.grid,
                        /*variant=*/"", options.adapt))
    return error;
  RebalanceOptions moves;
  moves.steps = options.grid.rebalance; // until the next ones
  for (auto &session : made->sessions)
    if (options.grid.rebalance > 0)
      if (Status status = session->countLoads(made->entry->name, moves);
          !status.ok())
        return toError(status.within("--rebalance"));
  return made;
}

llvm::Error Trainer::finishAdapting() const {
  if (statistics)
    if (Status status = statistics->flush(); !status.ok())
      return toError(status.within("--statistics"));
  return saveLearned(grid, sessions, entry->name, options.adapt);
}

llvm::Error Trainer::bind() {
  return toError(grid.agree([&](int rank) -> Status {
    if (options.weights.empty())
      return session(rank).bindRandom(options.seed);
    auto source = io::CheckpointSource::open(options.weights);
    if (!source.ok())
      return source.status();
    return session(rank).bindSource(**source);
  }));
}

MemoryFigures Trainer::memory() const {
  MemoryFigures all;
  for (const auto &session : sessions) {
    MemoryFigures own = session->memory();
    all.parameters += own.parameters;
    all.workspace += own.workspace;
    all.results += own.results;
    all.residuals += own.residuals;
    all.training += own.training;
    all.peak += own.peak;
  }
  return all;
}

int64_t Trainer::parameters() const {
  // Rows of one parameter, or of its parts, share a name; the tensor counts.
  std::map<std::string, int64_t> counts;
  for (const ParameterSpec &spec : program->manifest().parameters)
    counts[spec.name] =
        spec.fileSlices() * *compactBytes(DataType::I8, spec.fileShape());
  int64_t all = 0;
  for (const auto &[name, count] : counts)
    all += count;
  return all;
}

llvm::Error Trainer::save(int64_t step) {
  TrainingState state;
  state.step = step;
  state.seed = options.seed;
  if (std::error_code error = llvm::sys::fs::create_directories(options.save))
    return llvm::createStringError(error, "--save: " + options.save +
                                              ": expected a folder, got '" +
                                              error.message() + "'");
  return toError(grid.run([&](int rank) {
    return session(rank).saveCheckpoint(options.save, state,
                                        options.shardedSave);
  }));
}

llvm::Expected<std::optional<int64_t>> Trainer::resume() {
  if (!llvm::sys::fs::exists(checkpointIndex(options.save)))
    return std::optional<int64_t>();
  std::vector<TrainingState> states(grid.local().size());
  Status status = grid.run([&](int rank) -> Status {
    Result<TrainingState> state = session(rank).restoreCheckpoint(options.save);
    if (state.ok())
      states[rank - grid.local().front()] = *state;
    return state.status();
  });
  if (!status.ok())
    return toError(status);
  const TrainingState &state = states.front();
  if (state.seed != options.seed)
    return llvm::createStringError(
        "--resume: expected --seed " + llvm::Twine(state.seed) +
        ", which the checkpoint was made with, got " +
        llvm::Twine(options.seed));
  if (!state.rule.empty() && state.rule != options.update.rule)
    return llvm::createStringError(
        "--resume: expected --optimizer " + state.rule +
        ", which the checkpoint has states of, got " + options.update.rule);
  return std::optional<int64_t>(state.step);
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

/// What all ranks run with, shadows by the step before.
Status Trainer::setPlan() {
  for (size_t i = 0; i < sessions.size(); ++i)
    MOIRA_RETURN_IF_ERROR(
        setShadows(*sessions[i], plan, options.grid.shadows,
                   lastRows[i].layers.empty() ? nullptr : &lastRows[i]));
  return Status();
}

/// Step by step through all variants, degrees and exchanges: three cycles whose
/// lengths have no common factor with each other's steps.
llvm::Expected<std::string> Trainer::choosePlan(int64_t step) {
  if (!options.switchPlans) {
    if (options.grid.shadows.hottest > 0)
      if (Status status = setPlan(); !status.ok())
        return toError(status);
    return std::string();
  }
  static constexpr int32_t degrees[] = {1, 2, 3, 5, 8};
  plan.degree = degrees[step % std::size(degrees)];
  plan.exchange = static_cast<int32_t>(step / 2 % 2);
  if (Status status = setPlan(); !status.ok())
    return toError(status);
  const VariantSpec &variant = entry->variants[step % entry->variants.size()];
  for (auto &session : sessions)
    if (Status status = session->setVariant(entry->name, variant.name);
        !status.ok())
      return toError(status);
  return concat(variant.name, ", degree ", plan.degree,
                plan.exchange ? ", hierarchical" : ", linear");
}

std::vector<TensorView> Trainer::inputsOf(const Batch &batch, int rank) const {
  // An even share of the sequences, the first ranks one more.
  int64_t ranks = grid.ranks();
  int64_t share = batch.sequences / ranks, more = batch.sequences % ranks;
  int64_t begin = rank * share + std::min<int64_t>(rank, more);
  int64_t count = share + (rank < more ? 1 : 0);
  std::vector<TensorView> views;
  for (const std::vector<int32_t> *list : {&batch.tokens, &batch.targets})
    views.push_back({DataType::I32,
                     {count, batch.length},
                     list->data() + begin * batch.length});
  for (size_t i = 2; i < entry->inputs.size(); ++i)
    views.push_back(
        {DataType::I64,
         {},
         entry->inputs[i].name == "seed" ? &seedNumber : &stepNumber});
  return views;
}

Status Trainer::readResults(const std::vector<ResultTensor> &results,
                            TrainStep &result) const {
  size_t next = 0;
  for (const ResultTensor &tensor : results) {
    if (!isFloat(tensor.dtype))
      continue;
    double value;
    convert(tensor.dtype, tensor.data, DataType::F64, &value, 1);
    if (next == result.results.size())
      result.results.push_back(0);
    result.results[next++] += value / static_cast<double>(options.accumulate);
  }
  return Status();
}

void Trainer::addLoads(const StepRow &row, TrainStep &result) const {
  result.loads.resize(row.layers.size());
  for (size_t layer = 0; layer < row.layers.size(); ++layer) {
    const std::vector<int32_t> &counts = row.layers[layer].counts;
    std::vector<int64_t> &sums = result.loads[layer];
    sums.resize(std::max<size_t>(sums.size(), entry->layers[layer].experts));
    for (size_t e = 0; e < counts.size(); ++e)
      sums[e] += counts[e];
  }
}

/// Over processes: those of one process have been added.
Status Trainer::sumLoads(TrainStep &result) const {
  if (grid.local().size() == size_t(grid.ranks()))
    return Status();
  Communicator &group = *grid.communicator(grid.local().front());
  for (std::vector<int64_t> &layer : result.loads)
    MOIRA_RETURN_IF_ERROR(
        group.allReduce(layer.data(), layer.size(), MOIRA_I64, Reduction::Sum));
  return Status();
}

/// What a forward step ran with, where that was decided in the step.
std::string Trainer::describePlan(const StepRow &row) const {
  if (!options.adapt.adapt)
    return "";
  std::string text = entry->variants[row.variant].name;
  for (const LayerRow &layer : row.layers)
    text += concat(", layer ", layer.layer, ": degree ", layer.plan.degree,
                   layer.plan.exchange ? " hierarchical" : " linear", ", ",
                   layer.shadows.size(), " shadows (", layer.reason, ")");
  return text;
}

Status Trainer::runStep(int rank, const std::vector<Batch> &parts,
                        TrainStep &result) {
  Session &own = session(rank);
  own.zeroGradients();
  for (const Batch &batch : parts) {
    std::vector<ResultTensor> results, ofInputs;
    std::shared_ptr<const Residuals> residuals;
    if (options.adapt.random)
      MOIRA_RETURN_IF_ERROR(
          forceRandom(own, entry->name, *options.adapt.random, stepNumber));
    MOIRA_RETURN_IF_ERROR(
        own.forward(entry->name, inputsOf(batch, rank), results, residuals));
    MOIRA_RETURN_IF_ERROR(readResults(results, result));
    StepRow row = own.statistics().back();
    addLoads(row, result);
    result.plan = describePlan(row);
    lastRows[rank - grid.local().front()] = std::move(row);
    MOIRA_RETURN_IF_ERROR(
        own.accumulate(*residuals, resultGradients, ofInputs));
  }
  UpdateOptions update = options.update;
  update.learningRate = result.rate;
  update.gradientScale = 1 / static_cast<double>(options.accumulate);
  if (options.clip > 0 || !options.log.empty()) {
    Result<double> norm = own.gradientNorm();
    if (!norm.ok())
      return norm.status();
    result.norm = *norm * update.gradientScale;
    // Where the norm is as large as allowed, nothing is scaled.
    if (options.clip > 0)
      update.gradientScale *=
          std::min(1.0, options.clip / (result.norm + 1e-6));
  }
  MOIRA_RETURN_IF_ERROR(own.update(update));
  // Nothing is on its way between two steps.
  if (options.grid.rebalance == 0 ||
      (stepNumber + 1) % options.grid.rebalance != 0)
    return Status();
  return own.rebalance(entry->name).status();
}

llvm::Expected<TrainStep> Trainer::step(int64_t number,
                                        const Batches &batches) {
  std::vector<Batch> parts;
  for (int64_t i = 0; i < options.accumulate; ++i) {
    llvm::Expected<Batch> batch = batches.train(
        (number * options.accumulate + i) * options.batch, options.batch);
    if (!batch)
      return batch.takeError();
    parts.push_back(std::move(*batch));
  }
  llvm::Expected<std::string> plan = choosePlan(number);
  if (!plan)
    return plan.takeError();
  stepNumber = number;
  std::vector<TrainStep> ofRanks(grid.local().size());
  for (TrainStep &result : ofRanks)
    result.rate = options.rate.at(number);
  auto started = steady_clock::now();
  Status status = grid.run([&](int rank) {
    return runStep(rank, parts, ofRanks[rank - grid.local().front()]);
  });
  if (!status.ok())
    return toError(status.within(concat("step ", number)));
  TrainStep result = std::move(ofRanks[0]);
  result.seconds =
      std::chrono::duration<double>(steady_clock::now() - started).count();
  result.step = number;
  result.loss = result.results.empty() ? 0 : result.results[0];
  if (!plan->empty())
    result.plan = *plan;
  for (size_t i = 1; i < ofRanks.size(); ++i)
    for (size_t layer = 0; layer < result.loads.size(); ++layer)
      for (size_t e = 0; e < result.loads[layer].size(); ++e)
        result.loads[layer][e] += ofRanks[i].loads[layer][e];
  if (Status summed = sumLoads(result); !summed.ok())
    return toError(summed);
  return result;
}

llvm::Expected<double> Trainer::evaluate(const Batches &batches) {
  int64_t all =
      std::min(batches.evaluations(), options.evalBatches * options.batch);
  double sum = 0;
  for (int64_t first = 0; first < all; first += options.batch) {
    Batch batch = batches.evaluate(first, std::min(options.batch, all - first));
    std::vector<double> losses(grid.local().size());
    Status status = grid.run([&](int rank) -> Status {
      std::vector<ResultTensor> results;
      std::shared_ptr<const Residuals> residuals; // given back at once
      MOIRA_RETURN_IF_ERROR(session(rank).forward(
          entry->name, inputsOf(batch, rank), results, residuals));
      convert(results[0].dtype, results[0].data, DataType::F64,
              &losses[rank - grid.local().front()], 1);
      return Status();
    });
    if (!status.ok())
      return toError(status.within("evaluation"));
    sum += losses[0] * static_cast<double>(batch.sequences);
  }
  return sum / static_cast<double>(all);
}
