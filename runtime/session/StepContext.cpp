// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/StepContext.h"

#include "collective/VirtualClock.h"
#include "session/DeviceStep.h"
#include "session/Residuals.h"

#include <algorithm>
#include <functional>

using namespace moira;
using namespace moira::runtime;

/// The context whose loop body the calling thread is in.
static thread_local const StepContext *bodyContext = nullptr;

StepContext::StepContext(Pool *pool, std::shared_ptr<MemoryAccount> account)
    : pool(pool), account(account) {
  int workerCount = pool ? pool->threads() : 1;
  for (int i = 0; i < workerCount; ++i)
    arenas.push_back(std::make_unique<Arena>(account));
  ctx.abi_version = MOIRA_ABI_VERSION;
  ctx.struct_size = sizeof(moira_ctx);
  ctx.api = &apiTable();
  ctx.rank = 0;
  ctx.ranks = 1;
  ctx.workers = workerCount;
  ctx.session = this;
}

Arena &StepContext::arena(int64_t worker) {
  if (!gpu)
    return *arenas[worker];
  // What the processor's worker 0 has is the host's here.
  return worker == 0 ? gpu->arena() : *arenas[std::max<int64_t>(worker, 0)];
}

void StepContext::setDevice(DeviceStep *device) {
  gpu = device;
  // Generated code only reads it.
  ctx.queues = gpu ? const_cast<moira_device *>(gpu->table()) : nullptr;
}

void StepContext::begin(const EntrySpec *newEntry,
                        std::vector<ResultTensor> *newResults) {
  entry = newEntry;
  results = newResults;
  made.assign(results ? results->size() : 0, false);
  message.clear();
  __atomic_store_n(&ctx.error, MOIRA_OK, __ATOMIC_RELAXED);
}

void StepContext::resume(const EntrySpec *newEntry,
                         std::vector<ResultTensor> *newResults) {
  entry = newEntry;
  results = newResults;
  made.assign(results->size(), false);
}

Status StepContext::finish() {
  for (size_t i = 0; i < made.size() && !hasFailed(); ++i)
    if (!made[i])
      fail(MOIRA_FAILED,
           concat("expected the step to produce result ", i, ", got none"));
  // Nobody may have waited for transfers that read and write the workspace.
  if (entry && communicator && hasFailed())
    communicator->abandonStep(Status(ctx.error, message));
  for (int64_t worker = gpu ? -1 : 0; worker < workers(); ++worker)
    arena(worker).reset();
  entry = nullptr;
  results = nullptr;
  return Status(ctx.error, message);
}

void StepContext::fail(int32_t code, std::string text) {
  if (code <= MOIRA_OK || code > MOIRA_FAILED)
    code = MOIRA_FAILED;
  int32_t none = MOIRA_OK;
  if (__atomic_compare_exchange_n(&ctx.error, &none, code, false,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    message = std::move(text);
}

bool StepContext::checkWorker(int64_t worker) {
  if (worker >= (gpu ? MOIRA_DEVICE_HOST_WORKER : 0) && worker < workers())
    return true;
  fail(MOIRA_FAILED,
       concat("expected a worker below ", workers(), ", got ", worker));
  return false;
}

bool StepContext::checkNotInBody(const char *function) {
  if (bodyContext != this)
    return true;
  fail(MOIRA_FAILED,
       concat(function, ": expected a call outside of loop bodies, got one "
                        "inside"));
  return false;
}

void *StepContext::allocate(int64_t worker, int64_t bytes) {
  if (!checkWorker(worker))
    return nullptr;
  Result<void *> address = arena(worker).allocate(bytes);
  if (address.ok())
    return *address;
  fail(address.status().code, address.status().message);
  return nullptr;
}

Status StepContext::placeResult(int64_t index, Shape shape) {
  const TensorSpec &spec = entry->results[index];
  bool fits = shape.size() == spec.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] >= 0 && (spec.shape[i] == -1 || spec.shape[i] == shape[i]);
  if (!fits)
    return Status(MOIRA_FAILED,
                  concat("expected shape ", toString(spec.shape),
                         " from the step, got ", toString(shape)));
  ResultTensor &result = (*results)[index];
  if (result.data) {
    if (result.shape == shape)
      return Status();
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected memory of shape ", toString(shape), ", got ",
                         toString(result.shape)));
  }
  std::optional<int64_t> bytes = compactBytes(spec.dtype, shape);
  if (!bytes)
    return Status(MOIRA_OUT_OF_MEMORY,
                  concat("expected a size that fits 64 bits, got ",
                         toString(spec.dtype, shape)));
  if (residuals && index >= pooledFrom) {
    Result<std::shared_ptr<Storage>> block = residuals->take(*bytes);
    if (!block.ok())
      return block.status();
    result.storage = std::move(*block);
  } else {
    Result<Storage> storage =
        Storage::allocate(account, MemoryKind::Results, *bytes,
                          result.onDevice ? gpu->source() : nullptr);
    if (!storage.ok())
      return storage.status();
    result.storage = std::make_shared<Storage>(std::move(*storage));
  }
  result.data = result.storage->data();
  result.dtype = spec.dtype;
  result.shape = std::move(shape);
  return Status();
}

void *StepContext::result(int64_t index, int64_t rank, const int64_t *shape) {
  if (!checkNotInBody("result"))
    return nullptr;
  int64_t count = made.size();
  if (index < 0 || index >= count || made[index]) {
    fail(MOIRA_FAILED, concat("expected each of ", count,
                              " results once, got index ", index));
    return nullptr;
  }
  if (rank < 0 || rank != int64_t(entry->results[index].shape.size())) {
    fail(MOIRA_FAILED,
         concat("result ", index, ": expected rank ",
                entry->results[index].shape.size(), ", got ", rank));
    return nullptr;
  }
  Status status = placeResult(index, Shape(shape, shape + rank));
  if (!status.ok()) {
    fail(status.code, status.within(concat("result ", index)).message);
    return nullptr;
  }
  made[index] = true;
  ResultTensor &placed = (*results)[index];
  if (gpu)
    gpu->noteResult(index, placed.shape);
  if (!gpu || placed.onDevice)
    return placed.data;
  Result<void *> there = gpu->placeResult(
      index, placed.data, *compactBytes(placed.dtype, placed.shape));
  if (there.ok())
    return *there;
  fail(there.status().code,
       there.status().within(concat("result ", index)).message);
  return nullptr;
}

void StepContext::parallelFor(moira_body body, void *captures, int64_t n,
                              int64_t cost) {
  if (!checkNotInBody("parallel_for"))
    return;
  if (n < 0) {
    fail(MOIRA_FAILED,
         concat("parallel_for: expected 0 or more iterations, got ", n));
    return;
  }
  auto run = [&](int64_t index, int64_t worker) {
    if (hasFailed())
      return;
    // Restored rather than cleared: a body may run a step of another session.
    const StepContext *outer = bodyContext;
    bodyContext = this;
    body(&ctx, captures, index, worker);
    bodyContext = outer;
  };
  VirtualClock *clock = communicator ? communicator->clock() : nullptr;
  if (pool && clock && clock->countsCpu() && !pool->staysInline(n, cost))
    return runOnVirtualWorkers(*clock, n, cost, run);
  if (pool)
    return pool->run(n, cost, std::ref(run)); // no copy, no allocation
  for (int64_t i = 0; i < n; ++i)
    run(i, 0);
}
