// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that says how much memory steps need.

#include "session/SessionImpl.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// What a step needs
//===----------------------------------------------------------------------===//

std::vector<moira_buffer>
runtime::toBuffers(const std::vector<TensorView> &inputs) {
  // Numbers may bound sizes, so that one is there where none is given yet.
  static const int64_t none = 0;
  std::vector<moira_buffer> buffers;
  for (const TensorView &input : inputs) {
    void *data = const_cast<void *>(input.data);
    if (!data && input.shape.empty())
      data = const_cast<int64_t *>(&none);
    buffers.push_back({data, input.shape.data()});
  }
  return buffers;
}

/// What the variant says it needs on worker 0; 0 where it does not know.
Result<int64_t>
Session::Impl::workspace(int entry, int variant,
                         const std::vector<moira_buffer> &inputs) {
  step.begin(nullptr, nullptr);
  int64_t bytes =
      program->workspace(entry, variant)(step.context(), inputs.data());
  MOIRA_RETURN_IF_ERROR(step.finish());
  if (bytes < -1)
    return Status(
        MOIRA_FAILED,
        concat("expected a workspace size of 0 or more bytes, or -1, got ",
               bytes));
  return std::max<int64_t>(bytes, 0);
}

int64_t Session::Impl::peakWith(int64_t workspaceBytes,
                                int64_t resultBytes) const {
  MemoryFigures figures = account->figures();
  int64_t held = step.arena(0).capacity();
  int64_t peak = figures.workspace - held + figures.results +
                 figures.residuals + figures.training;
  for (int64_t part :
       {parameters.totalBytes(), std::max(held, workspaceBytes), resultBytes})
    if (__builtin_add_overflow(peak, part, &peak))
      return INT64_MAX;
  return peak;
}

int64_t runtime::predictResults(const EntrySpec &spec, int64_t first,
                                int64_t last, int64_t rows,
                                const std::vector<ResultTensor> &results) {
  int64_t all = 0;
  for (int64_t i = first; i < last; ++i) {
    if (i < int64_t(results.size()) && results[i].data)
      continue;
    Shape shape = spec.results[i].shape;
    std::replace(shape.begin(), shape.end(), int64_t(-1), rows);
    int64_t bytes =
        compactBytes(spec.results[i].dtype, shape).value_or(INT64_MAX);
    if (__builtin_add_overflow(all, bytes, &all))
      return INT64_MAX;
  }
  return all;
}

//===----------------------------------------------------------------------===//
// What its way back needs
//===----------------------------------------------------------------------===//

/// What the way back would be given: bounds of the residuals, gradients as
/// large as the results. A size that has no bound counts as the rows.
Session::Impl::BackwardBounds
Session::Impl::boundBackward(int entry, const StepPlan &given,
                             const std::vector<TensorView> &inputs) {
  const EntrySpec &spec = program->signature(entry, given.variant);
  size_t count = 0;
  for (const TensorSpec &result : spec.results)
    count += std::max<size_t>(1, result.shape.size());
  std::vector<int64_t> bounds(count, -1);
  if (moira_shapes_entry shapes = program->shapes(entry, given.variant)) {
    step.begin(nullptr, nullptr);
    shapes(step.context(), toBuffers(inputs).data(), bounds.data());
    if (!step.finish().ok())
      std::fill(bounds.begin(), bounds.end(), -1);
  }
  BackwardBounds result;
  result.numbers.resize(spec.results.size(), 0);
  std::vector<TensorView> own;
  const int64_t *next = bounds.data();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    TensorView view{spec.results[i].dtype, spec.results[i].shape, nullptr};
    bool isResidual = int64_t(i) >= spec.ownResults();
    if (view.shape.empty()) {
      result.numbers[i] = std::max<int64_t>(0, *next++);
      view.data = &result.numbers[i];
    }
    for (int64_t &size : view.shape) {
      int64_t bound = *next++;
      size = size >= 0 ? size : bound >= 0 ? bound : given.rows;
    }
    int64_t bytes = compactBytes(view.dtype, view.shape).value_or(INT64_MAX);
    if (isResidual)
      bytes = ResidualPool::blockBytes(bytes);
    int64_t &sum = isResidual ? result.residuals : result.results;
    if (__builtin_add_overflow(sum, bytes, &sum))
      sum = INT64_MAX;
    if (isResidual)
      result.inputs.push_back(view);
    else if (int64_t(i) < spec.programResults() && isFloat(view.dtype))
      own.push_back(view);
  }
  result.inputs.insert(result.inputs.end(), own.begin(), own.end());
  return result;
}

/// docs/gradients.md has the formula.
Result<int64_t>
Session::Impl::predictBackward(int entry, const StepPlan &given,
                               const std::vector<TensorView> &inputs,
                               int64_t forwardWorkspace) {
  const EntrySpec &spec = manifest.entries[entry];
  Result<int> back = findBackward(entry);
  if (!back.ok())
    return back.status().within(concat("entry '", spec.name, "'"));
  BackwardBounds bounds = boundBackward(entry, given, inputs);
  preparePlans(manifest.entries[*back], given);
  Result<int64_t> bytes =
      workspace(*back, given.variant, toBuffers(bounds.inputs));
  if (!bytes.ok())
    return bytes.status();
  const EntrySpec &backSpec = manifest.entries[*back];
  int64_t gradients =
      predictResults(backSpec, 0, backSpec.results.size(), given.rows, {});
  int64_t made = 0;
  for (int64_t part : {bounds.results, bounds.residuals, gradients})
    if (__builtin_add_overflow(made, part, &made))
      return INT64_MAX;
  return peakWith(std::max(forwardWorkspace, *bytes), made);
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

Result<int64_t> Session::predictPeak(const std::string &entry,
                                     const std::vector<TensorView> &inputs,
                                     bool backward) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  const EntrySpec &spec = impl->manifest.entries[*found];
  MOIRA_RETURN_IF_ERROR(
      impl->checkRanks(spec).within(concat("entry '", entry, "'")));
  MOIRA_RETURN_IF_ERROR(checkInputs(spec, inputs, /*needData=*/false)
                            .within(concat("entry '", entry, "'")));
  MOIRA_RETURN_IF_ERROR(checkPlaces(bool(impl->device), spec, inputs, {})
                            .within(concat("entry '", entry, "'")));
  StepPlan &plan = impl->choosePlan(*found, inputs);
  if (impl->adaptations[*found] && impl->adaptations[*found]->decides())
    MOIRA_RETURN_IF_ERROR(impl->followAdaptation(*found, plan));
  impl->preparePlans(spec, plan);
  Result<int64_t> bytes =
      impl->workspace(*found, plan.variant, toBuffers(inputs));
  if (!bytes.ok())
    return bytes.status();
  if (backward)
    return impl->predictBackward(*found, plan, inputs, *bytes);
  const EntrySpec &own = impl->program->signature(*found, plan.variant);
  return impl->peakWith(
      *bytes, predictResults(own, 0, own.results.size(), plan.rows, {}));
}
