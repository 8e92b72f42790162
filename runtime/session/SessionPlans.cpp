// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that says what steps run with.

#include "session/SessionImpl.h"

using namespace moira;
using namespace moira::runtime;

static int64_t rowsOf(const std::vector<TensorView> &inputs) {
  return inputs.empty() || inputs[0].shape.empty() ? 0 : inputs[0].shape[0];
}

StepPlan &Session::Impl::choosePlan(int entry,
                                    const std::vector<TensorView> &inputs) {
  const EntrySpec &spec = manifest.entries[entry];
  stepPlan.rows = rowsOf(inputs);
  int forced = forcedVariant[entry];
  stepPlan.variant = forced >= 0 ? forced : spec.variantForRows(stepPlan.rows);
  stepPlan.pool = nullptr;
  stepPlan.pooledFrom = 0;
  stepPlan.forwardStep = -1;
  layerPlans.fill(spec, stepPlan.variant, stepPlan.layers);
  return stepPlan;
}

/// Fixes what the step's layers run with.
void Session::Impl::preparePlans(const EntrySpec &spec, const StepPlan &given) {
  layers.clear();
  for (const LayerSpec &layer : spec.layers)
    layers.push_back(layer.index);
  toAbiPlans(given.variant, step.context()->ranks, given.layers, plans);
  step.context()->plan = plans.data();
  step.context()->params = device ? device->params() : parameters.params();
}

Status Session::Impl::setPlan(std::optional<int64_t> layer,
                              const PlanOptions &plan) {
  Result<LayerPlans> next = layerPlans.with(layer, plan);
  if (!next.ok())
    return next.status();
  Result<std::vector<std::vector<int32_t>>> tables = next->tables();
  if (!tables.ok())
    return tables.status();
  MOIRA_RETURN_IF_ERROR(checkAdaptations(*next));
  // Weights that now stand in other slots must be bound again.
  MOIRA_RETURN_IF_ERROR(parameters.place(
      step.context()->rank, step.context()->ranks, std::move(*tables)));
  if (!next->hasTablesOf(layerPlans))
    shadows.forget();
  layerPlans = std::move(*next);
  return moveAdaptations();
}

Status Session::setPlan(const PlanOptions &plan) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->setPlan(std::nullopt, plan);
}

Status Session::setPlan(int64_t layer, const PlanOptions &plan) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->setPlan(layer, plan);
}
