// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that trains: steps with a way back, gradients, updates.

#include "session/SessionImpl.h"

#include "base/Hash.h"
#include "session/FileTensors.h"

#include <cmath>

using namespace moira;
using namespace moira::runtime;

Result<int> Session::Impl::findBackward(int entry) const {
  const EntrySpec &spec = manifest.entries[entry];
  if (!spec.backward.empty())
    return manifest.findEntry(spec.backward); // parsing has checked it
  return Status(MOIRA_INVALID_ARGUMENT,
                "expected an entry compiled with gradients (--gradients), got "
                "one without");
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

Status Session::forward(const std::string &entry,
                        const std::vector<TensorView> &inputs,
                        std::vector<ResultTensor> &results,
                        std::shared_ptr<const Residuals> &residuals) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok()) // the others have begun the step
    return impl->together([&] { return found.status(); });
  const EntrySpec &spec = impl->manifest.entries[*found];
  auto made = std::make_shared<Residuals>();
  std::vector<ResultTensor> filled = results;
  Status status = impl->together([&]() -> Status {
    MOIRA_RETURN_IF_ERROR(impl->findBackward(*found).status());
    MOIRA_RETURN_IF_ERROR(impl->checkRanks(spec));
    MOIRA_RETURN_IF_ERROR(impl->checkBound());
    MOIRA_RETURN_IF_ERROR(checkInputs(spec, inputs, /*needData=*/true));
    MOIRA_RETURN_IF_ERROR(checkResults(spec, spec.ownResults(), filled));
    StepPlan &plan = impl->choosePlan(*found, inputs);
    MOIRA_RETURN_IF_ERROR(impl->adaptPlan(*found, plan));
    filled.resize(
        impl->program->signature(*found, plan.variant).results.size());
    plan.pool = impl->residualPool.get();
    plan.pooledFrom = spec.ownResults();
    made->owner = impl->identity;
    made->entry = *found;
    made->variant = plan.variant;
    made->rows = plan.rows;
    made->step = impl->stepCount;
    made->parameters = impl->parameters.version();
    MOIRA_RETURN_IF_ERROR(impl->runStep(*found, inputs, filled, plan));
    made->layers = impl->ranWith(plan);
    return Status();
  });
  impl->noteEnd(*found, status, made->step, /*more=*/true);
  if (!status.ok())
    return status.within(concat("entry '", entry, "'"));
  made->tensors.assign(filled.begin() + spec.ownResults(), filled.end());
  filled.resize(spec.ownResults());
  for (const ResultTensor &result : filled)
    made->resultShapes.push_back(result.shape);
  results = std::move(filled);
  residuals = std::move(made);
  return Status();
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

Status Session::Impl::checkResiduals(const Residuals &residuals) const {
  if (residuals.owner != identity)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected residuals of this session, got another's");
  if (residuals.parameters != parameters.version())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected the parameters that the forward step ",
                         residuals.step,
                         " ran with, got others (bound, placed or updated "
                         "since)"));
  return Status();
}

/// The gradients of results after the residuals: of the shapes that the forward
/// step gave.
Status
Session::Impl::checkGradients(const Residuals &residuals, const EntrySpec &back,
                              const std::vector<TensorView> &inputs) const {
  const EntrySpec &spec = manifest.entries[residuals.entry];
  size_t given = residuals.tensors.size();
  if (inputs.size() != back.inputs.size())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected ", back.inputs.size() - given,
                         " gradients of results, got ", inputs.size() - given));
  size_t next = given;
  for (int64_t i = 0; i < spec.programResults(); ++i) {
    if (!isFloat(spec.results[i].dtype))
      continue;
    const TensorView &gradient = inputs[next++];
    if (gradient.dtype != spec.results[i].dtype ||
        gradient.shape != residuals.resultShapes[i])
      return Status(
          MOIRA_INVALID_ARGUMENT,
          concat("gradient of result ", i, ": expected ",
                 toString(spec.results[i].dtype, residuals.resultShapes[i]),
                 ", got ", toString(gradient.dtype, gradient.shape)));
  }
  return checkInputs(back, inputs, /*needData=*/true);
}

Result<std::vector<TensorView>> Session::Impl::backwardInputs(
    const Residuals &residuals,
    const std::vector<TensorView> &resultGradients) const {
  std::vector<TensorView> inputs;
  for (const ResultTensor &tensor : residuals.tensors)
    inputs.push_back({tensor.dtype, tensor.shape, tensor.data});
  inputs.insert(inputs.end(), resultGradients.begin(), resultGradients.end());
  int back = manifest.findEntry(manifest.entries[residuals.entry].backward);
  MOIRA_RETURN_IF_ERROR(checkGradients(
      residuals, program->signature(back, residuals.variant), inputs));
  return inputs;
}

/// A forward step compares what ranks run with in each layer; a way back does
/// so once: its program, its plan, and which step it belongs to.
Status Session::Impl::agreeOnBackward(int entry, const StepPlan &given) {
  if (!communicator || manifest.entries[entry].ranks == 1)
    return Status();
  preparePlans(manifest.entries[entry], given);
  RankRecord mine;
  mine.program = hashBytes(&entry, sizeof(entry), programHash);
  mine.shapes = hashBytes(&given.forwardStep, sizeof(given.forwardStep), 0);
  for (const moira_plan &plan : plans) {
    uint64_t hash =
        hashPlanOf(&manifest.entries[entry], plan, communicator->ranks());
    mine.plan = hashBytes(&hash, sizeof(hash), mine.plan);
  }
  std::vector<RankRecord> all(communicator->ranks());
  MOIRA_RETURN_IF_ERROR(
      communicator->allGather(&mine, sizeof(mine), all.data()));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].program != all[0].program || all[rank].plan != all[0].plan ||
        all[rank].shapes != all[0].shapes)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected residuals of the same forward step and "
                           "plan on all ranks, got others on rank ",
                           rank, " than on rank 0"));
  return Status();
}

/// What the way back of a forward step runs with.
StepPlan &Session::Impl::planBackward(const Residuals &residuals) {
  stepPlan.variant = residuals.variant;
  stepPlan.rows = residuals.rows;
  stepPlan.layers = residuals.layers;
  stepPlan.pool = nullptr;
  stepPlan.pooledFrom = 0;
  stepPlan.forwardStep = residuals.step;
  return stepPlan;
}

Status
Session::Impl::runBackward(const Residuals &residuals,
                           const std::vector<TensorView> &resultGradients,
                           std::vector<ResultTensor> &results) {
  MOIRA_RETURN_IF_ERROR(checkResiduals(residuals));
  const EntrySpec &spec = manifest.entries[residuals.entry];
  int back = manifest.findEntry(spec.backward);
  MOIRA_RETURN_IF_ERROR(checkBound());
  Result<std::vector<TensorView>> inputs =
      backwardInputs(residuals, resultGradients);
  if (!inputs.ok())
    return inputs.status();
  MOIRA_RETURN_IF_ERROR(checkResults(
      manifest.entries[back], manifest.entries[back].results.size(), results));
  StepPlan &plan = planBackward(residuals);
  MOIRA_RETURN_IF_ERROR(agreeOnBackward(back, plan));
  return runStep(back, *inputs, results, plan);
}

Status Session::backward(const Residuals &residuals,
                         const std::vector<TensorView> &resultGradients,
                         std::vector<ResultTensor> &results) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  std::vector<ResultTensor> filled = results;
  Status status = impl->together(
      [&] { return impl->runBackward(residuals, resultGradients, filled); });
  if (status.ok())
    impl->noteBackEnd(residuals);
  if (status.ok())
    results = std::move(filled);
  return status.within("backward");
}

//===----------------------------------------------------------------------===//
// Gradients that the session keeps
//===----------------------------------------------------------------------===//

GradientTable &Session::Impl::gradients() {
  if (!gradientTable)
    gradientTable =
        std::make_unique<GradientTable>(manifest.parameters, pool, account);
  return *gradientTable;
}

/// Gradients of parameters go to the session's own memory where they can be
/// made there, else to memory of the pool, and are added.
Status
Session::Impl::runAccumulate(const Residuals &residuals,
                             const std::vector<TensorView> &resultGradients,
                             std::vector<ResultTensor> &results) {
  MOIRA_RETURN_IF_ERROR(checkResiduals(residuals));
  const EntrySpec &back = manifest.entries[manifest.findEntry(
      manifest.entries[residuals.entry].backward)];
  std::vector<ResultTensor> all(back.results.size());
  std::vector<size_t> ofInputs;
  for (size_t i = 0; i < all.size(); ++i) {
    const TensorSpec &spec = back.results[i];
    if (!spec.gradient || spec.gradient->rows.empty()) {
      ofInputs.push_back(i);
      continue;
    }
    all[i].dtype = spec.dtype;
    all[i].shape = spec.shape; // static, as parameters are
    Result<void *> place = gradients().place(spec);
    if (!place.ok())
      return place.status();
    all[i].data = *place;
    if (all[i].data)
      continue;
    Result<std::shared_ptr<Storage>> storage =
        residualPool->take(compactBytes(spec.dtype, spec.shape).value_or(0));
    if (!storage.ok())
      return storage.status();
    all[i].storage = std::move(*storage);
    all[i].data = all[i].storage->data();
  }
  if (results.empty())
    results.resize(ofInputs.size());
  if (results.size() != ofInputs.size())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected ", ofInputs.size(),
                         " gradients of inputs, got ", results.size()));
  for (size_t i = 0; i < ofInputs.size(); ++i)
    all[ofInputs[i]] = results[i];
  MOIRA_RETURN_IF_ERROR(runBackward(residuals, resultGradients, all));
  for (size_t i = 0; i < all.size(); ++i)
    if (back.results[i].gradient && !back.results[i].gradient->rows.empty())
      MOIRA_RETURN_IF_ERROR(gradients().add(back.results[i], all[i].data));
  for (size_t i = 0; i < ofInputs.size(); ++i)
    results[i] = std::move(all[ofInputs[i]]);
  return Status();
}

Status Session::accumulate(const Residuals &residuals,
                           const std::vector<TensorView> &resultGradients,
                           std::vector<ResultTensor> &results) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  std::vector<ResultTensor> filled = results;
  Status status = impl->together(
      [&] { return impl->runAccumulate(residuals, resultGradients, filled); });
  if (status.ok())
    impl->noteBackEnd(residuals);
  if (status.ok())
    results = std::move(filled);
  return status.within("backward");
}

void Session::putGradient(const TensorSpec &result, const void *data,
                          FileTensors &tensors,
                          const std::string &prefix) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  const GradientSpec &gradient = *result.gradient;
  for (int64_t row : gradient.rows) {
    const ParameterSpec &spec = impl->manifest.parameters[row];
    tensors.make(spec, result.dtype, prefix);
    PackedLayout layout(spec);
    const Places &places =
        gradient.packedAs >= 0 ? layout.packed : layout.program;
    for (int64_t slice = 0; slice < spec.slices; ++slice)
      if (!impl->parameters.isReplica(row, slice))
        tensors.put(spec, layout, places, impl->parameters.unitOf(row, slice),
                    result.dtype,
                    static_cast<const char *>(data) +
                        slice * places.count * byteSize(result.dtype),
                    prefix);
  }
}

void Session::touchParameters() {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->parameters.touch();
}

void Session::zeroGradients() {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->gradients().zero();
}

Result<double> Session::gradientNorm() {
  std::lock_guard<std::mutex> lock(impl->mutex);
  SquareSum mine = impl->gradients().squares([&](int row, int64_t slice) {
    return impl->parameters.isReplica(row, slice);
  });
  if (!impl->communicator)
    return std::sqrt(mine.value());
  std::vector<SquareSum> all(impl->communicator->ranks());
  Status status = impl->together([&] {
    return impl->communicator->allGather(&mine, sizeof(mine), all.data());
  });
  if (!status.ok())
    return status.within("gradient norm");
  SquareSum total;
  for (const SquareSum &sum : all)
    total.add(sum);
  return std::sqrt(total.value());
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

static Status checkUpdate(const UpdateOptions &options) {
  auto require = [](bool holds, const char *name, const char *wanted,
                    double got) {
    return holds ? Status()
                 : Status(MOIRA_INVALID_ARGUMENT,
                          concat("optimizer: expected ", name, " ", wanted,
                                 ", got ", got));
  };
  auto atLeast0 = [](double value) {
    return std::isfinite(value) && value >= 0;
  };
  if (options.rule != "sgd" && options.rule != "adam" &&
      options.rule != "adamw")
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("optimizer: expected 'sgd', 'adam' or 'adamw', got '",
                         options.rule, "'"));
  MOIRA_RETURN_IF_ERROR(require(atLeast0(options.learningRate),
                                "a learning rate", "of 0 or more",
                                options.learningRate));
  MOIRA_RETURN_IF_ERROR(require(atLeast0(options.weightDecay), "a weight decay",
                                "of 0 or more", options.weightDecay));
  MOIRA_RETURN_IF_ERROR(require(std::isfinite(options.gradientScale),
                                "a gradient scale", "that is finite",
                                options.gradientScale));
  if (options.rule == "sgd") {
    MOIRA_RETURN_IF_ERROR(
        require(atLeast0(options.momentum) && options.momentum < 1,
                "a momentum", "in [0, 1)", options.momentum));
    return require(!options.nesterov || options.momentum > 0, "a momentum",
                   "above 0 for nesterov", options.momentum);
  }
  for (double beta : {options.beta1, options.beta2})
    MOIRA_RETURN_IF_ERROR(
        require(atLeast0(beta) && beta < 1, "betas", "in [0, 1)", beta));
  // Keeps padding, where everything is 0, at 0.
  return require(std::isfinite(options.epsilon) && options.epsilon > 0,
                 "an epsilon", "above 0", options.epsilon);
}

Status Session::update(const UpdateOptions &options) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  MOIRA_RETURN_IF_ERROR(checkUpdate(options));
  if (impl->gradients().rows().empty())
    return Status(MOIRA_INVALID_ARGUMENT,
                  "optimizer: expected gradients (accumulate), got none since "
                  "they were zeroed");
  impl->makeOptimizer();
  return impl->optimizer->update(options, impl->parameters, impl->gradients());
}

int64_t Session::updates() const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->optimizer ? impl->optimizer->steps() : 0;
}
