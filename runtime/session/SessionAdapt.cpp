// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session whose plans follow the loads.

#include "session/SessionImpl.h"

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// In a step
//===----------------------------------------------------------------------===//

Status Session::Impl::adaptPlan(int entry, StepPlan &given) {
  Adaptation *adaptation = adaptations[entry].get();
  if (!adaptation)
    return Status();
  MOIRA_RETURN_IF_ERROR(adaptation->next());
  return followAdaptation(entry, given);
}

/// Puts what was decided last into a plan.
Status Session::Impl::followAdaptation(int entry, StepPlan &given) {
  const Adaptation &adaptation = *adaptations[entry];
  given.variant = adaptation.variant(given.rows);
  for (size_t i = 0; i < given.layers.size(); ++i) {
    LayerRun &run = given.layers[i];
    const AdaptedPlan &plan = adaptation.plan(i);
    run.degree = plan.degree;
    run.exchange = plan.exchange;
    run.shadows = plan.shadows;
    MOIRA_RETURN_IF_ERROR(
        layerPlans.writeTable(manifest.entries[entry].layers[i].index, run));
  }
  return Status();
}

/// Says in the statistics what a step's layers run with, and why.
void Session::Impl::notePlans(int entry, const StepPlan &given) {
  const Adaptation *adaptation =
      given.forwardStep < 0 ? adaptations[entry].get() : nullptr;
  for (size_t i = 0; i < layers.size(); ++i) {
    const char *reason = "";
    double predicted = 0;
    if (adaptation) {
      reason = reasonName(adaptation->decision(i).reason);
      predicted = adaptation->decision(i).seconds;
    }
    step.recorder().planned(i, given.layers[i].shadows, predicted, reason);
  }
}

/// The seconds of each layer of an entry in the step that was run last: one of
/// it, or its way back.
const std::vector<double> &Session::Impl::sumLayers(int entry) {
  const std::vector<LayerSpec> &specs = manifest.entries[entry].layers;
  rowSeconds.assign(specs.size(), 0);
  for (const auto &[layer, seconds] : ranLayers)
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].index == layer)
        rowSeconds[i] += seconds;
  return rowSeconds;
}

/// A step or its way back has ended, on all ranks alike.
void Session::Impl::noteEnd(int entry, const Status &status, int64_t number,
                            bool more) {
  if (status.ok()) {
    timedSteps[entry] = number;
    layerSeconds[entry] = sumLayers(entry);
  }
  if (Adaptation *adaptation = adaptations[entry].get())
    adaptation->finish(status.ok(), number, layerSeconds[entry], more);
}

void Session::Impl::noteBackEnd(const Residuals &residuals) {
  int entry = residuals.entry;
  if (timedSteps[entry] != residuals.step)
    return;
  timedSteps[entry] = -1; // counts once
  const std::vector<double> &seconds = sumLayers(entry);
  for (size_t i = 0; i < seconds.size(); ++i)
    layerSeconds[entry][i] += seconds[i];
  if (Adaptation *adaptation = adaptations[entry].get())
    adaptation->finishBack(residuals.step, seconds);
}

/// What layers ran with: some of it may have been decided within the step.
std::vector<LayerRun> Session::Impl::ranWith(const StepPlan &given) const {
  std::vector<LayerRun> runs = given.layers;
  for (size_t i = 0; i < runs.size() && i < plans.size(); ++i) {
    runs[i].degree = plans[i].degree;
    runs[i].exchange = plans[i].exchange;
  }
  return runs;
}

/// Where a layer's weights stand for long, [ranks, slots].
static std::vector<int32_t> tableOf(const LayerPlans &plans, int64_t layer) {
  std::vector<int32_t> table;
  const Placement *placement = plans.placement(layer);
  for (int rank = 0; placement && rank < placement->ranks(); ++rank)
    for (int slot = 0; slot < placement->slots(); ++slot)
      table.push_back(placement->unit(rank, slot));
  return table;
}

std::vector<int32_t> Session::Impl::lastingTable(int64_t layer) const {
  return tableOf(layerPlans, layer);
}

/// Whether who decides can go on with the tables of these plans.
Status Session::Impl::checkAdaptations(const LayerPlans &next) const {
  for (size_t entry = 0; entry < adaptations.size(); ++entry) {
    const std::vector<LayerSpec> &specs = manifest.entries[entry].layers;
    for (size_t i = 0; adaptations[entry] && i < specs.size(); ++i)
      MOIRA_RETURN_IF_ERROR(
          adaptations[entry]->checkPlacement(i, tableOf(next, specs[i].index)));
  }
  return Status();
}

/// Tells who decides that weights have moved.
Status Session::Impl::moveAdaptations() {
  for (size_t entry = 0; entry < adaptations.size(); ++entry) {
    if (!adaptations[entry])
      continue;
    const std::vector<LayerSpec> &specs = manifest.entries[entry].layers;
    for (size_t i = 0; i < specs.size(); ++i)
      MOIRA_RETURN_IF_ERROR(
          adaptations[entry]->setPlacement(i, lastingTable(specs[i].index)));
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

/// Calls `action` with who decides for an entry.
template <typename Action>
static auto withAdaptation(Result<int> entry, const std::string &name,
                           const std::vector<std::unique_ptr<Adaptation>> &all,
                           const Action &action)
    -> decltype(action(*all.front())) {
  if (!entry.ok())
    return entry.status();
  if (all[*entry])
    return action(*all[*entry]);
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("entry '", name,
                       "': expected one that adapts (adapt), got one that does "
                       "not"));
}

Status Session::adapt(const std::string &entry, const AdaptOptions &options) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  std::vector<std::vector<int32_t>> tables;
  for (const LayerSpec &layer : impl->manifest.entries[*found].layers)
    tables.push_back(impl->lastingTable(layer.index));
  RankGroups groups;
  if (impl->communicator)
    groups = impl->communicator->groups();
  // Also what held a file that the new one may write.
  impl->adaptations[*found].reset();
  AdaptOptions possible = options;
  if (impl->device && !impl->device->device().isHostAccessible())
    possible.maxShadows = 0; // the host sends them
  auto made =
      Adaptation::create(impl->manifest, *found, groups, tables, possible);
  if (!made.ok())
    return made.status().within(concat("entry '", entry, "'"));
  impl->adaptations[*found] = std::move(*made);
  return Status();
}

Status Session::stopAdapting(const std::string &entry) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  impl->adaptations[*found].reset();
  return Status();
}

Status Session::announceTokens(const std::string &entry, int64_t tokens) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](Adaptation &adaptation) {
                          adaptation.announce(tokens);
                          return Status();
                        });
}

Status Session::forceCandidate(const std::string &entry,
                               const std::string &candidate) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(
      impl->findEntry(entry), entry, impl->adaptations,
      [&](Adaptation &adaptation) { return adaptation.force(candidate); });
}

Status Session::forbidVariant(const std::string &entry,
                              const std::string &variant, bool forbidden) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](Adaptation &adaptation) {
                          return adaptation.forbid(variant, forbidden);
                        });
}

Result<std::string> Session::saveLearned(const std::string &entry) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](const Adaptation &adaptation) {
                          return Result<std::string>(adaptation.saveLearned());
                        });
}

Status Session::loadLearned(const std::string &entry, const std::string &json) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(
      impl->findEntry(entry), entry, impl->adaptations,
      [&](Adaptation &adaptation) { return adaptation.loadLearned(json); });
}

Result<std::vector<Candidate>>
Session::candidates(const std::string &entry) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](const Adaptation &adaptation) {
                          return Result<std::vector<Candidate>>(
                              adaptation.candidates());
                        });
}

Result<std::vector<Explanation>>
Session::explain(const std::string &entry) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](const Adaptation &adaptation) {
                          return Result<std::vector<Explanation>>(
                              adaptation.explain());
                        });
}

Result<std::string> Session::explainJson(const std::string &entry) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return withAdaptation(impl->findEntry(entry), entry, impl->adaptations,
                        [&](const Adaptation &adaptation) {
                          return Result<std::string>(adaptation.explainJson());
                        });
}
