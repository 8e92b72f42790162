// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that runs a step.

#include "session/SessionImpl.h"

#include "base/Hash.h"

using namespace moira;
using namespace moira::runtime;

/// What the ranks compare in each layer.
RankRecord Session::Impl::describeRank(int entry,
                                       const std::vector<TensorView> &inputs) {
  RankRecord mine;
  mine.program = hashBytes(&entry, sizeof(entry), programHash);
  for (const TensorView &input : inputs) {
    const int64_t head[] = {static_cast<int64_t>(input.dtype),
                            static_cast<int64_t>(input.shape.size())};
    mine.shapes = hashBytes(head, sizeof(head), mine.shapes);
    // Dim 0 may be tokens, of which each rank has its own number.
    if (input.shape.size() > 1)
      mine.shapes =
          hashBytes(input.shape.data() + 1,
                    (input.shape.size() - 1) * sizeof(int64_t), mine.shapes);
  }
  mine.seconds = std::numeric_limits<double>::infinity(); // layers have theirs
  size_t variants = manifest.entries[entry].variants.size();
  mine.variants = variants < 64 ? (uint64_t(1) << variants) - 1 : ~uint64_t(0);
  if (const Adaptation *adaptation = adaptations[entry].get())
    mine.variants = adaptation->mask();
  return mine;
}

void Session::Impl::noteTraffic() {
  if (!communicator)
    return;
  for (int64_t layer : layers) {
    TrafficCount count = communicator->takeLayer(layer);
    step.recorder().moved(layer, count.bytesSent, count.bytesReceived);
  }
}

Status runtime::checkPlaces(bool hasDevice, const EntrySpec &spec,
                            const std::vector<TensorView> &inputs,
                            const std::vector<ResultTensor> &results) {
  auto refuse = [](const std::string &what) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  what + ": expected memory of the host, got memory of a GPU");
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].onDevice && (!hasDevice || inputs[i].shape.empty()))
      return refuse(concat("input ", i, " '", spec.inputs[i].name, "'"));
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].onDevice && !hasDevice)
      return refuse(concat("result ", i));
  return Status();
}

/// Shadows are sent while a step runs, by the host.
static Status checkShadows(const Device &device, StepPlan &given) {
  for (const LayerRun &layer : given.layers)
    if (!layer.shadows.empty() && !device.isHostAccessible())
      return Status(MOIRA_UNAVAILABLE,
                    concat("expected no shadows on ", device.name(),
                           ", whose memory the host cannot reach, got ",
                           layer.shadows.size()));
  return Status();
}

/// The generated code, or the graph that a device has kept of it.
Status Session::Impl::runCode(int entry, const StepPlan &given,
                              const std::vector<TensorView> &inputs,
                              const std::vector<ResultTensor> &results,
                              const std::vector<moira_buffer> &buffers) {
  // Other ranks are waited for by the host.
  bool mayKeep = device && !communicator && !given.pool;
  if (mayKeep) {
    std::vector<int64_t> head = {entry, given.variant};
    for (const moira_plan &plan : plans)
      head.insert(head.end(), {plan.degree, plan.exchange});
    Result<bool> done = device->beginWork(head, inputs, buffers, results, step);
    if (!done.ok())
      return done.status();
    if (*done)
      return Status();
  }
  program->step(entry, given.variant)(step.context(), buffers.data());
  return mayKeep ? device->endWork(step.hasFailed()) : Status();
}

Status Session::Impl::runStep(int entry, const std::vector<TensorView> &inputs,
                              std::vector<ResultTensor> &results,
                              StepPlan &given) {
  const EntrySpec &spec = program->signature(entry, given.variant);
  MOIRA_RETURN_IF_ERROR(checkPlaces(bool(device), spec, inputs, results));
  std::vector<moira_buffer> buffers = toBuffers(inputs);
  if (device) {
    MOIRA_RETURN_IF_ERROR(checkShadows(device->device(), given));
    MOIRA_RETURN_IF_ERROR(device->updateParameters(parameters));
    shadows.setSlots(device->params());
  }
  preparePlans(spec, given);
  Result<int64_t> bytes = workspace(entry, given.variant, buffers);
  if (!bytes.ok())
    return bytes.status();
  int64_t all = spec.results.size();
  int64_t pooled = given.pool ? given.pooledFrom : all;
  int64_t made = predictResults(spec, 0, pooled, given.rows, results);
  // Residuals take what others have left, first.
  if (given.pool)
    made += std::max<int64_t>(
        0, predictResults(spec, pooled, all, given.rows, results) -
               given.pool->freeBytes());
  int64_t peak = peakWith(*bytes, made);
  if (account->limit() > 0 && peak > account->limit())
    return Status(
        MOIRA_OUT_OF_MEMORY,
        concat("expected a peak within the memory limit of ", account->limit(),
               " bytes, got a predicted peak of ", peak, " bytes (parameters ",
               account->figures().parameters, ", workspace ", *bytes, ")"));
  MOIRA_RETURN_IF_ERROR(step.arena(0).reserve(*bytes));

  if (device)
    MOIRA_RETURN_IF_ERROR(device->begin(spec, inputs, buffers));
  Adaptation *adaptation = adaptations[entry].get();
  step.setRecord(describeRank(entry, inputs),
                 adaptation ? adaptation->seconds() : layerSeconds[entry],
                 adaptation, plans);
  step.setPool(given.pool, given.pooledFrom);
  step.begin(&spec, &results);
  step.charges().begin(stepCount, given.forwardStep);
  step.recorder().begin(stepCount++, entry, given.variant, given.rows, layers,
                        plans.data());
  notePlans(entry, given);
  Status ready = shadows.begin(spec, given, plans, communicator.get(),
                               adaptation && adaptation->shadowsLate());
  // Later layers' shadows follow where those layers begin: in the queue they
  // would stand before the transfers of this one.
  if (ready.ok() && !layers.empty())
    ready = shadows.start(layers.front());
  if (ready.ok())
    ready = runCode(entry, given, inputs, results, buffers);
  if (!ready.ok())
    step.fail(ready.code, ready.message);
  shadows.end();
  if (device) {
    if (Status ended = device->end(step.recorder()); !ended.ok())
      step.fail(ended.code, ended.message);
    step.recorder().device(device->launches(), device->waits(),
                           device->seconds(), device->takeAllocations());
  }
  noteTraffic();
  const StepRow &row = step.recorder().end(step.context()->error);
  ring.record(row);
  if (rebalancings[entry] && row.error == MOIRA_OK)
    rebalancings[entry]->count(row);
  for (const std::shared_ptr<StatisticsSink> &sink : sinks)
    sink->record(row);
  ranLayers.clear();
  for (const LayerRow &layer : row.layers)
    ranLayers.push_back({layer.layer, layer.total()});
  if (log.enabled(LogLevel::Debug))
    log.print(LogLevel::Debug,
              concat("step ", row.step, ": entry '", spec.name, "', variant '",
                     spec.variants[given.variant].name, "', ", given.rows,
                     " rows, ", row.total, " s"));
  return step.finish();
}
