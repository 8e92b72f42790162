// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that are given out as one graph (session/StepGraphs.h).

#include "session/DeviceStep.h"

#include "session/StepContext.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;

static int64_t wordOf(const void *address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
}

/// All that host code and kernels see: sizes, numbers and addresses. Empty
/// where an address is not known before the step runs.
std::vector<int64_t>
DeviceStep::keyOf(const std::vector<int64_t> &head,
                  const std::vector<TensorView> &inputs,
                  const std::vector<moira_buffer> &buffers,
                  const std::vector<ResultTensor> &results) {
  std::vector<int64_t> key = head;
  for (size_t i = 0; i < inputs.size(); ++i) {
    int64_t word = wordOf(buffers[i].data);
    if (inputs[i].shape.empty()) {
      word = 0;
      std::memcpy(&word, inputs[i].data, byteSize(inputs[i].dtype));
    }
    key.push_back(word);
    key.insert(key.end(), inputs[i].shape.begin(), inputs[i].shape.end());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const void *place = results[i].onDevice  ? results[i].data
                        : i < outputs.size() ? outputs[i].storage.data()
                                             : nullptr;
    if (!place)
      return {};
    key.push_back(wordOf(place));
  }
  for (const moira_param &parameter : packed)
    key.push_back(wordOf(parameter.data));
  Result<void *> start = workspace.allocate(0);
  key.push_back(start.ok() ? wordOf(*start) : 0);
  return key;
}

Result<bool> DeviceStep::beginWork(const std::vector<int64_t> &head,
                                   const std::vector<TensorView> &inputs,
                                   const std::vector<moira_buffer> &buffers,
                                   const std::vector<ResultTensor> &results,
                                   StepContext &step) {
  kept = nullptr;
  captures = false;
  if (!gpu->keepsGraphs())
    return false;
  std::vector<int64_t> key = keyOf(head, inputs, buffers, results);
  if (key.empty())
    return false;
  kept = graphs.find(key);
  if (!kept) {
    // Once as ever: whether it can be kept shows then.
    kept = graphs.add(std::move(key));
    return false;
  }
  if (!kept->isFixed)
    return false;
  if (!kept->graph) {
    kept->results.clear();
    loadsKept = 0;
    MOIRA_RETURN_IF_ERROR(gpu->beginCapture(queue));
    captures = true;
    return false;
  }
  // As the step's code would; a failure is the step's.
  moira_ctx *ctx = step.context();
  for (const StepGraph::Result &result : kept->results)
    if (!ctx->api->result(ctx, result.index, int64_t(result.shape.size()),
                          result.shape.data()))
      return true;
  launchCount = kept->launches;
  MOIRA_RETURN_IF_ERROR(gpu->launchGraph(*kept->graph, queue));
  MOIRA_RETURN_IF_ERROR(readLoads());
  return true;
}

Status DeviceStep::endWork(bool failed) {
  if (!captures) {
    // A first run that has failed says nothing of later ones.
    if (failed && kept && !kept->graph) {
      graphs.remove(kept);
      kept = nullptr;
    }
    return Status();
  }
  captures = false;
  auto made = gpu->endCapture(queue);
  if (!failed && made.ok()) {
    kept->graph = *made;
    kept->launches = launchCount;
    MOIRA_RETURN_IF_ERROR(gpu->launchGraph(*kept->graph, queue));
    return readLoads();
  }
  graphs.remove(kept);
  kept = nullptr;
  return failed ? Status() : made.status();
}

void DeviceStep::noteResult(int64_t index, const Shape &shape) {
  if (captures)
    kept->results.push_back({index, shape});
}

void DeviceStep::noteHost() {
  if (kept)
    kept->isFixed = false;
}

/// Memory for what a routing counts, from the step before the one that is
/// captured: a driver allocates nothing meanwhile.
Status DeviceStep::reserveLoads(int64_t layer, int64_t experts) {
  StepGraph::Loads own;
  own.layer = layer;
  own.experts = experts;
  MOIRA_RETURN_IF_ERROR(grow(own.memory, MemoryKind::Workspace,
                             2 * experts * int64_t(sizeof(int32_t))));
  kept->loads.push_back(std::move(own));
  return Status();
}

/// Lets the graph keep what a routing has counted.
Status DeviceStep::keepLoads(int64_t layer, int64_t experts,
                             const int32_t *counts, const int32_t *sizes) {
  int64_t bytes = experts * int64_t(sizeof(int32_t));
  if (loadsKept == kept->loads.size() ||
      kept->loads[loadsKept].layer != layer ||
      kept->loads[loadsKept].experts != experts)
    return Status(MOIRA_FAILED,
                  concat("loads of layer ", layer,
                         ": expected those of the step before, with the same "
                         "sizes and addresses, got others"));
  auto *data = static_cast<char *>(kept->loads[loadsKept++].memory.data());
  MOIRA_RETURN_IF_ERROR(gpu->copyWithin(data, counts, bytes, queue));
  return gpu->copyWithin(data + bytes, sizes, bytes, queue);
}

/// Queues copies of what the graph keeps to the host.
Status DeviceStep::readLoads() {
  for (const StepGraph::Loads &own : kept->loads) {
    auto *data = static_cast<const int32_t *>(own.memory.data());
    MOIRA_RETURN_IF_ERROR(
        noteLoads(own.layer, own.experts, data, data + own.experts));
  }
  return Status();
}
