// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RankSessions.h"

#include "Report.h"
#include "Weights.h"

#include "base/Pool.h"
#include "collective/VirtualClock.h"
#include "session/Rebalancing.h"
#include "session/Residuals.h"
#include "session/StepPlan.h"
#include "support/CommandLine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
using std::chrono::steady_clock;

/// Threads of a rank: an equal share of the processors that this process may
/// use, unless the options say so.
static int threadsOf(const RunOptions &options, const Grid &grid) {
  size_t ranks = grid.local().size();
  if (options.threads > 0 || ranks == 1)
    return options.threads;
  // The virtual clock counts the time of the step's own thread.
  if (grid.isVirtual())
    return 1;
  int processors = Pool(0).threads();
  return std::max<int>(1, processors / static_cast<int>(ranks));
}

llvm::Expected<std::unique_ptr<RankSessions>>
RankSessions::create(std::shared_ptr<const Program> program,
                     const RunOptions &options, const Grid &grid,
                     Progress &progress) {
  std::unique_ptr<RankSessions> made(new RankSessions(grid, options));
  auto statistics = openStatistics(grid, options.adapt);
  if (!statistics)
    return statistics.takeError();
  made->statistics = std::move(*statistics);
  size_t ranks = grid.local().size();
  for (int rank : grid.local()) {
    SessionOptions session;
    session.threads = threadsOf(options, grid);
    session.memoryLimit = options.memoryLimit;
    session.logLevel = options.logLevel;
    // Only the last step is reported, or the last two: forward and backward.
    session.statisticsSteps = options.grad ? 2 : 1;
    session.communicator = grid.communicator(rank);
    session.sinks = sinksOf(made->statistics, program->manifest(), rank);
    auto device = options.device.open(rank - grid.local().front());
    if (!device)
      return device.takeError();
    session.device = std::move(*device);
    // One bar for all: ranks read about the same.
    if (made->sessions.empty())
      session.progress = [&progress](int64_t done, int64_t all) {
        progress.update(done, all);
      };
    auto created = Session::create(program, session);
    if (!created.ok())
      return toError(created.status().within(options.program));
    made->sessions.push_back(std::move(*created));
  }
  made->results.resize(ranks);
  made->gradients.resize(ranks);
  return made;
}

llvm::Error RankSessions::setVariant(const std::string &entry,
                                     const std::string &variant) {
  for (auto &session : sessions)
    if (Status status = session->setVariant(entry, variant); !status.ok())
      return toError(status.within("--variant"));
  return llvm::Error::success();
}

llvm::Error RankSessions::setPlan(const PlanOptions &newPlan,
                                  const ShadowChoice &choice) {
  plan = newPlan;
  shadows = choice;
  for (auto &session : sessions)
    if (Status status = setShadows(*session, plan, shadows, nullptr);
        !status.ok())
      return toError(status);
  return llvm::Error::success();
}

llvm::Error RankSessions::setRebalance(const std::string &entry,
                                       int64_t steps) {
  rebalance = steps;
  stepsDone.assign(sessions.size(), 0);
  RebalanceOptions options;
  options.steps = steps; // until the next one
  for (auto &session : sessions)
    if (Status status = session->countLoads(entry, options); !status.ok())
      return toError(status.within("--rebalance"));
  return llvm::Error::success();
}

llvm::Error RankSessions::adapt(const std::string &entry,
                                const RunOptions &options) {
  return startAdapting(grid, sessions, entry, options.grid, options.variant,
                       choices);
}

llvm::Error RankSessions::finishAdapting(const std::string &entry) const {
  if (statistics)
    if (Status status = statistics->flush(); !status.ok())
      return toError(status.within("--statistics"));
  return saveLearned(grid, sessions, entry, choices);
}

llvm::Expected<int64_t> RankSessions::predictPeak(const std::string &entry,
                                                  const Inputs &inputs) const {
  int64_t all = 0;
  for (int rank : grid.local()) {
    Session &session = *sessions[placeOf(rank)];
    std::vector<TensorView> views = inputs.viewsOf(rank);
    views.resize(session.manifest()
                     .entries[session.manifest().findEntry(entry)]
                     .inputs.size());
    Result<int64_t> step = session.predictPeak(entry, views, grad);
    if (!step.ok())
      return toError(step.status());
    int64_t missing =
        weightBytes(session.manifest()) - session.memory().parameters;
    for (int64_t part : {*step, missing})
      if (__builtin_add_overflow(all, part, &all))
        return INT64_MAX;
  }
  return all;
}

llvm::Error RankSessions::bind(const RunOptions &options) {
  return toError(grid.agree([&](int rank) {
    return bindWeights(*sessions[placeOf(rank)], options);
  }));
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// One step of a rank, with its way back where gradients are wanted.
Status RankSessions::runOnce(size_t place, const std::string &entry,
                             const std::vector<TensorView> &views) {
  Session &session = *sessions[place];
  const Manifest &manifest = session.manifest();
  results[place].clear();
  if (!grad)
    return session.invoke(entry, views, results[place]);
  // What training sends because weights have changed is sent here too.
  session.touchParameters();
  size_t own = manifest.entries[manifest.findEntry(entry)].inputs.size();
  std::vector<TensorView> given(views.begin(), views.begin() + own);
  std::vector<TensorView> of(views.begin() + own, views.end());
  // A repeated step writes its gradients where the last one did, as training
  // does: memory of their size would take longer to get than to fill.
  std::shared_ptr<const Residuals> residuals;
  MOIRA_RETURN_IF_ERROR(
      session.forward(entry, given, results[place], residuals));
  // Where tokens have changed in number, those of the inputs do not fit.
  const EntrySpec &back = manifest.entries[manifest.findEntry(
      manifest.entries[manifest.findEntry(entry)].backward)];
  for (size_t i = 0; i < gradients[place].size(); ++i)
    if (hasTokens(back.results[i]) && !given.empty() &&
        gradients[place][i].shape[0] != given[0].shape[0])
      gradients[place][i] = ResultTensor();
  return session.backward(*residuals, of, gradients[place]);
}

llvm::Expected<std::vector<double>> RankSessions::run(const std::string &entry,
                                                      const Inputs &inputs,
                                                      int64_t steps) {
  std::vector<std::vector<double>> times(sessions.size()),
      back(sessions.size());
  Status status = grid.run([&](int rank) {
    size_t place = placeOf(rank);
    Session &session = *sessions[place];
    std::vector<TensorView> views = inputs.viewsOf(rank);
    for (int64_t i = 0; i < steps; ++i) {
      if (std::shared_ptr<Communicator> group = grid.communicator(rank))
        group->resetTraffic();
      if (choices.random)
        MOIRA_RETURN_IF_ERROR(
            forceRandom(session, entry, *choices.random, stepsRun + i));
      if (choices.adapt)
        MOIRA_RETURN_IF_ERROR(session.announceTokens(entry, inputs.tokens()));
      auto started = steady_clock::now();
      MOIRA_RETURN_IF_ERROR(runOnce(place, entry, views));
      double passed =
          std::chrono::duration<double>(steady_clock::now() - started).count();
      std::vector<StepRow> rows = session.statistics();
      if (shadows.hottest > 0)
        MOIRA_RETURN_IF_ERROR(
            setShadows(session, plan, shadows, &rows.front()));
      double counted = 0;
      if (rebalance > 0 && ++stepsDone[place] % rebalance == 0) {
        std::shared_ptr<Communicator> group = grid.communicator(rank);
        VirtualClock *clock = group ? group->clock() : nullptr;
        double begin = clock ? clock->seconds() : 0;
        MOIRA_RETURN_IF_ERROR(session.rebalance(entry).status());
        // Moves are a part of what this step takes.
        counted += clock ? clock->seconds() - begin : 0;
      }
      for (const StepRow &row : rows)
        counted += row.total;
      times[place].push_back(grid.isVirtual() ? counted : passed);
      back[place].push_back(rows.back().total);
      std::lock_guard<std::mutex> lock(mutex);
      for (const StepRow &row : rows)
        addParts(row, seconds);
    }
    return Status();
  });
  if (!status.ok())
    return toError(status);
  stepsRun += steps;
  for (auto *list : {&times, &back})
    for (const std::vector<double> &other : *list)
      for (size_t i = 0; i < other.size(); ++i)
        (*list)[0][i] = std::max((*list)[0][i], other[i]);
  backTimes = back[0];
  return times[0];
}

//===----------------------------------------------------------------------===//
// What happened
//===----------------------------------------------------------------------===//

/// Adds what another rank did in the same step.
static void addStep(const StepRow &other, StepRow &sum) {
  sum.rows += other.rows;
  sum.total = std::max(sum.total, other.total);
  for (size_t i = 0; i < sum.layers.size(); ++i) {
    LayerRow &layer = sum.layers[i];
    const LayerRow &more = other.layers[i];
    layer.routed += more.routed;
    layer.dropped += more.dropped;
    // A rank without a routing has no list.
    layer.counts.resize(std::max(layer.counts.size(), more.counts.size()));
    layer.sizes.resize(std::max(layer.sizes.size(), more.sizes.size()));
    for (size_t e = 0; e < more.counts.size(); ++e)
      layer.counts[e] += more.counts[e];
    for (size_t e = 0; e < more.sizes.size(); ++e)
      layer.sizes[e] += more.sizes[e];
  }
}

/// Adds the integers of a step over all processes.
static Status sumOverProcesses(Communicator &group, StepRow &step) {
  MOIRA_RETURN_IF_ERROR(
      group.allReduce(&step.rows, 1, MOIRA_I64, Reduction::Sum));
  for (LayerRow &layer : step.layers) {
    int64_t sums[] = {layer.routed, layer.dropped};
    int64_t experts = layer.counts.size();
    MOIRA_RETURN_IF_ERROR(group.allReduce(sums, 2, MOIRA_I64, Reduction::Sum));
    MOIRA_RETURN_IF_ERROR(
        group.allReduce(&experts, 1, MOIRA_I64, Reduction::Max));
    layer.routed = sums[0];
    layer.dropped = sums[1];
    layer.counts.resize(experts);
    layer.sizes.resize(experts);
    for (std::vector<int32_t> *list : {&layer.counts, &layer.sizes})
      MOIRA_RETURN_IF_ERROR(
          group.allReduce(list->data(), experts, MOIRA_I32, Reduction::Sum));
  }
  return Status();
}

llvm::Expected<StepRow> RankSessions::sumStep() const {
  StepRow sum = lastStep(grid.local().front());
  for (int rank : grid.local().drop_front())
    addStep(lastStep(rank), sum);
  if (grid.local().size() < size_t(grid.ranks()))
    if (Status status =
            sumOverProcesses(*grid.communicator(grid.local().front()), sum);
        !status.ok())
      return toError(status);
  return sum;
}

Status tools::layArrivals(const LayerRow &row, const LayerSpec &layer,
                          int32_t copies, const int32_t *table,
                          const RankGroups &ranks, ExchangeLayout &layout) {
  moira_exchange exchange{};
  exchange.placement = {layer.placement->experts, layer.placement->shards,
                        copies, layer.placement->slots};
  exchange.direction = MOIRA_TO_EXPERTS;
  exchange.chunks = 1;
  exchange.counts = row.matrix.data();
  Placement placement;
  MOIRA_RETURN_IF_ERROR(placement.set(exchange.placement, table, ranks.ranks));
  return layout.set(exchange, placement, ranks);
}

/// Rows that came to the experts of a rank, from the counts of all ranks.
int64_t RankSessions::countRows(const EntrySpec &entry, int rank) const {
  int64_t rows = 0;
  StepRow step = lastStep(rank);
  const Session &session = *sessions.front();
  LayerPlans plans(session.manifest(), grid.ranks());
  const int32_t copies = entry.variants[step.variant].copies;
  for (const LayerRow &row : step.layers)
    for (const LayerSpec &layer : entry.layers) {
      if (layer.index != row.layer || !layer.placement || copies == 0 ||
          row.matrix.empty())
        continue;
      LayerRun run;
      run.shadows = row.shadows;
      Result<LayerPlans> placed =
          plans.withTable(row.layer, session.slotTable(row.layer));
      if (!placed.ok() || !placed->writeTable(row.layer, run).ok())
        continue;
      const int32_t *table = run.table.empty() ? nullptr : run.table.data();
      ExchangeLayout layout;
      if (layArrivals(row, layer, copies, table, {rank, grid.ranks(), 1},
                      layout)
              .ok())
        rows += layout.awayRows();
    }
  return rows;
}

llvm::Expected<std::vector<RankFigures>>
RankSessions::gatherFigures(const EntrySpec &entry,
                            const Inputs &inputs) const {
  std::vector<RankFigures> all(grid.ranks());
  for (int rank : grid.local()) {
    const Session &session = *sessions[placeOf(rank)];
    RankFigures &mine = all[rank];
    StepRow step = lastStep(rank);
    PartSeconds parts{};
    addParts(step, parts);
    mine.tokens = inputs.rowsOf(rank).count;
    mine.rowsReceived = countRows(entry, rank);
    if (std::shared_ptr<Communicator> group = grid.communicator(rank))
      mine.traffic = group->traffic().kinds;
    mine.weightBytes = weightBytes(session.manifest());
    mine.readBytes = session.readBytes();
    mine.peakBytes = session.memory().peak;
    mine.seconds = step.total;
    if (grad) {
      StepRow back = session.statistics().back();
      addParts(back, parts);
      mine.seconds += back.total;
    }
    mine.exchangeSeconds = parts[MOIRA_PART_EXCHANGE];
  }
  if (grid.local().size() == all.size())
    return all;
  int rank = grid.local().front();
  RankFigures mine = all[rank];
  if (Status status =
          grid.communicator(rank)->allGather(&mine, sizeof(mine), all.data());
      !status.ok())
    return toError(status);
  return all;
}

MemoryFigures RankSessions::memory() const {
  MemoryFigures all;
  for (const auto &session : sessions) {
    MemoryFigures own = session->memory();
    all.parameters += own.parameters;
    all.workspace += own.workspace;
    all.results += own.results;
    all.residuals += own.residuals;
    all.training += own.training;
    all.peak += own.peak;
    all.limit = own.limit;
  }
  return all;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// Memory for the result of all tokens.
static Result<ResultTensor> makeWhole(const ResultTensor &part,
                                      int64_t tokens) {
  ResultTensor whole;
  whole.dtype = part.dtype;
  whole.shape = part.shape;
  whole.shape[0] = tokens;
  std::optional<int64_t> bytes = compactBytes(whole.dtype, whole.shape);
  if (!bytes)
    return Status(MOIRA_OUT_OF_MEMORY, "expected results that fit 64 bits");
  Result<Storage> storage = Storage::allocate(std::make_shared<MemoryAccount>(),
                                              MemoryKind::Results, *bytes);
  if (!storage.ok())
    return storage.status();
  whole.storage = std::make_shared<Storage>(std::move(*storage));
  whole.data = whole.storage->data();
  return whole;
}

/// One tensor of all tokens from those of the ranks.
llvm::Expected<ResultTensor>
RankSessions::joinRows(const TensorSpec &spec, size_t index,
                       std::vector<std::vector<ResultTensor>> &parts,
                       const Inputs &inputs) {
  // What is not of tokens is the same on all ranks.
  if (grid.ranks() == 1 || !hasTokens(spec))
    return parts[0][index];
  auto perToken = countRowsPerToken(index, parts, inputs);
  if (!perToken)
    return perToken.takeError();
  int64_t all = inputs.tokens() * *perToken;
  auto whole = makeWhole(parts[0][index], all);
  if (!whole.ok())
    return toError(whole.status());
  int64_t rowBytes = compactBytes(whole->dtype, whole->shape).value() /
                     std::max<int64_t>(1, all) * *perToken;
  auto *data = static_cast<char *>(whole->data);
  for (int rank : grid.local()) {
    const ResultTensor &part = parts[placeOf(rank)][index];
    Rows rows = inputs.rowsOf(rank);
    if (part.shape[0] != rows.count * *perToken)
      return llvm::createStringError(
          "result " + llvm::Twine(index) + ": expected " +
          llvm::Twine(rows.count * *perToken) + " rows of the " +
          llvm::Twine(rows.count) + " tokens of rank " + llvm::Twine(rank) +
          ", got " + llvm::Twine(part.shape[0]));
    if (rows.count > 0)
      std::memcpy(data + rows.begin * rowBytes, part.data,
                  rows.count * rowBytes);
  }
  if (grid.local().size() < size_t(grid.ranks())) {
    Communicator &group = *grid.communicator(grid.local().front());
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      Rows rows = inputs.rowsOf(rank);
      Status status = group.broadcast(rank, data + rows.begin * rowBytes,
                                      rows.count * rowBytes);
      if (!status.ok())
        return toError(status);
    }
  }
  return *whole;
}

llvm::Expected<std::vector<ResultTensor>>
RankSessions::joinResults(const EntrySpec &entry, const Inputs &inputs) {
  std::vector<ResultTensor> joined;
  // Residuals are for a way back, each rank's for its own.
  for (int64_t i = 0; i < entry.ownResults(); ++i) {
    auto whole = joinRows(entry.results[i], i, results, inputs);
    if (!whole)
      return whole.takeError();
    joined.push_back(std::move(*whole));
  }
  return joined;
}

std::vector<TensorSpec> tools::inputGradients(const EntrySpec &entry,
                                              const EntrySpec &backward) {
  std::vector<TensorSpec> specs;
  for (const TensorSpec &result : backward.results)
    if (result.gradient && result.gradient->input >= 0) {
      specs.push_back(result);
      specs.back().name = "d_" + entry.inputs[result.gradient->input].name;
    }
  return specs;
}

llvm::Expected<Gradients> RankSessions::joinGradients(const EntrySpec &entry,
                                                      const EntrySpec &backward,
                                                      const Inputs &inputs) {
  Gradients joined;
  joined.specs = inputGradients(entry, backward);
  for (size_t i = 0; i < backward.results.size(); ++i) {
    const TensorSpec &spec = backward.results[i];
    if (!spec.gradient)
      continue;
    if (spec.gradient->input < 0) {
      for (size_t place = 0; place < sessions.size(); ++place)
        sessions[place]->putGradient(spec, gradients[place][i].data,
                                     joined.parameters, "d_");
      continue;
    }
    auto whole = joinRows(spec, i, gradients, inputs);
    if (!whole)
      return whole.takeError();
    joined.inputs.push_back(std::move(*whole));
  }
  if (grid.local().size() < size_t(grid.ranks()))
    if (Status status =
            joined.parameters.merge(*grid.communicator(grid.local().front()));
        !status.ok())
      return toError(status);
  return joined;
}
