// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/StepContext.h"

#include "collective/VirtualClock.h"

#include <algorithm>
#include <exception>
#include <functional>

using namespace moira;
using namespace moira::runtime;

/// The context whose loop body the calling thread is in.
static thread_local const StepContext *bodyContext = nullptr;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace moira::runtime {
/// The functions of moira_api. Nothing is thrown over them: generated code
/// cannot unwind.
struct Api {
  static StepContext &self(moira_ctx *ctx) {
    return *static_cast<StepContext *>(ctx->session);
  }

  /// Runs `action` unless the step has failed; an exception fails it.
  template <typename T, typename Action>
  static T guarded(moira_ctx *ctx, T otherwise, const Action &action) {
    StepContext &step = self(ctx);
    if (step.hasFailed())
      return otherwise;
    try {
      return action(step);
    } catch (const std::exception &error) {
      step.fail(MOIRA_OUT_OF_MEMORY, error.what());
    }
    return otherwise;
  }

  static void *alloc(moira_ctx *ctx, int64_t worker, int64_t bytes) {
    return guarded<void *>(ctx, nullptr, [&](StepContext &step) {
      return step.allocate(worker, bytes);
    });
  }

  static int64_t mark(moira_ctx *ctx, int64_t worker) {
    return guarded<int64_t>(ctx, 0, [&](StepContext &step) -> int64_t {
      return step.checkWorker(worker) ? step.arenas[worker]->mark() : 0;
    });
  }

  static void release(moira_ctx *ctx, int64_t worker, int64_t mark) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkWorker(worker) && !step.arenas[worker]->release(mark))
        step.fail(MOIRA_FAILED, concat("release: expected a mark of worker ",
                                       worker, ", got ", mark));
      return true;
    });
  }

  static void *result(moira_ctx *ctx, int64_t index, int64_t rank,
                      const int64_t *shape) {
    return guarded<void *>(ctx, nullptr, [&](StepContext &step) {
      return step.result(index, rank, shape);
    });
  }

  static void parallelFor(moira_ctx *ctx, moira_body body, void *captures,
                          int64_t n, int64_t cost) {
    guarded(ctx, false, [&](StepContext &step) {
      step.parallelFor(body, captures, n, cost);
      return true;
    });
  }

  static void fail(moira_ctx *ctx, int32_t code, const char *message) {
    guarded(ctx, false, [&](StepContext &step) {
      step.fail(code, message ? message : "no reason given");
      return true;
    });
  }

  static void enter(moira_ctx *ctx, int64_t layer, int64_t part) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("enter") && !step.steps.enter(layer, part))
        step.fail(MOIRA_FAILED,
                  concat("enter: expected a layer and part of the entry, got "
                         "layer ",
                         layer, " part ", part));
      return true;
    });
  }

  static void loads(moira_ctx *ctx, int64_t layer, int64_t experts,
                    const int32_t *counts, const int32_t *sizes) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("loads") &&
          !step.steps.loads(layer, experts, counts, sizes))
        step.fail(MOIRA_FAILED,
                  concat("loads: expected a layer of the entry, with as many "
                         "experts each time, got layer ",
                         layer, " with ", experts));
      return true;
    });
  }

  /// Runs `action`, which waits for other ranks, and charges the time to the
  /// exchange of the layer.
  template <typename Action>
  static void waiting(StepContext &step, int64_t layer, const Action &action) {
    PartSeconds::value_type *before = step.steps.enterExchange(layer);
    action();
    step.steps.leaveExchange(before);
  }

  static int64_t chunks(moira_ctx *ctx, int64_t layer, int64_t schedule) {
    return guarded<int64_t>(ctx, 1, [&](StepContext &step) -> int64_t {
      const moira_plan *plan = step.planOf("chunks", layer);
      return plan ? step.link().chunks(*plan, schedule) : 1;
    });
  }

  static void allGather(moira_ctx *ctx, const void *mine, int64_t bytes,
                        void *all) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("all_gather"))
        waiting(step, -1, [&] {
          step.note("all_gather", step.link().allGather(mine, bytes, all));
        });
      return true;
    });
  }

  static void gatherCounts(moira_ctx *ctx, int64_t layer, int64_t experts,
                           const int32_t *counts, int32_t *matrix) {
    std::fill_n(matrix, std::max<int64_t>(experts, 0) * ctx->ranks, 0);
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("gather_counts"))
        step.gatherCounts(layer, experts, counts, matrix);
      return true;
    });
  }

  static int64_t receiveSizes(moira_ctx *ctx, const moira_exchange *exchange,
                              int32_t *groups) {
    std::fill_n(groups, std::max(exchange->placement.slots, 0), 0);
    return guarded<int64_t>(ctx, 0, [&](StepContext &step) -> int64_t {
      return step.checkNotInBody("receive_sizes")
                 ? step.receiveSizes(*exchange, groups)
                 : 0;
    });
  }

  static int64_t ticketOf(StepContext &step, const char *function,
                          const Result<int64_t> &ticket) {
    step.note(function, ticket.status());
    return ticket.ok() ? ticket.value() : -1;
  }

  static int64_t exchange(moira_ctx *ctx, const moira_exchange *exchange) {
    return guarded<int64_t>(ctx, -1, [&](StepContext &step) -> int64_t {
      const moira_plan *plan = step.planOf("exchange", exchange->layer);
      if (!plan)
        return -1;
      return ticketOf(step, "exchange", step.link().exchange(*plan, *exchange));
    });
  }

  static int64_t gatherWeights(moira_ctx *ctx, const moira_gather *gather) {
    return guarded<int64_t>(ctx, -1, [&](StepContext &step) -> int64_t {
      const moira_plan *plan = step.planOf("gather_weights", gather->layer);
      if (!plan)
        return -1;
      return ticketOf(step, "gather_weights",
                      step.link().gatherWeights(*plan, *gather));
    });
  }

  static void wait(moira_ctx *ctx, int64_t ticket) {
    guarded(ctx, false, [&](StepContext &step) {
      if (ticket >= 0 && step.checkNotInBody("wait"))
        waiting(step, -1, [&] { step.note("wait", step.link().wait(ticket)); });
      return true;
    });
  }
};
} // namespace moira::runtime

static constexpr moira_api table = {
    MOIRA_ABI_VERSION, sizeof(moira_api), Api::alloc,       Api::mark,
    Api::release,      Api::result,       Api::parallelFor, Api::fail,
    Api::enter,        Api::loads,        Api::chunks,      Api::allGather,
    Api::gatherCounts, Api::receiveSizes, Api::exchange,    Api::gatherWeights,
    Api::wait,
};

//===----------------------------------------------------------------------===//
// The state
//===----------------------------------------------------------------------===//

StepContext::StepContext(Pool *pool, std::shared_ptr<MemoryAccount> account)
    : pool(pool), account(account) {
  int workerCount = pool ? pool->threads() : 1;
  for (int i = 0; i < workerCount; ++i)
    arenas.push_back(std::make_unique<Arena>(account));
  ctx.abi_version = MOIRA_ABI_VERSION;
  ctx.struct_size = sizeof(moira_ctx);
  ctx.api = &table;
  ctx.rank = 0;
  ctx.ranks = 1;
  ctx.workers = workerCount;
  ctx.session = this;
}

void StepContext::setCommunicator(std::shared_ptr<Communicator> given) {
  communicator = std::move(given);
  ctx.rank = communicator ? communicator->rank() : 0;
  ctx.ranks = communicator ? communicator->ranks() : 1;
  ctx.communicator = communicator.get();
  steps.setClock(communicator ? communicator->clock() : nullptr);
  steps.setTrace(communicator ? communicator->trace() : nullptr);
}

Communicator &StepContext::link() {
  if (communicator)
    return *communicator;
  if (!alone)
    alone = Communicator::single();
  return *alone;
}

void StepContext::begin(const EntrySpec *newEntry,
                        std::vector<ResultTensor> *newResults) {
  entry = newEntry;
  results = newResults;
  made.assign(results ? results->size() : 0, false);
  message.clear();
  __atomic_store_n(&ctx.error, MOIRA_OK, __ATOMIC_RELAXED);
}

Status StepContext::finish() {
  for (size_t i = 0; i < made.size() && !hasFailed(); ++i)
    if (!made[i])
      fail(MOIRA_FAILED,
           concat("expected the step to produce result ", i, ", got none"));
  for (std::unique_ptr<Arena> &arena : arenas)
    arena->reset();
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

/// Makes a failure the step's. What the ranks share names itself already.
void StepContext::note(const char *function, const Status &status) {
  if (!status.ok())
    fail(status.code,
         communicator ? status.message : status.within(function).message);
}

/// The plan of a layer, outside of loop bodies only; null on failure.
const moira_plan *StepContext::planOf(const char *function, int64_t layer) {
  if (!checkNotInBody(function))
    return nullptr;
  if (!entry || entry->layers.empty())
    return ctx.plan;
  for (size_t i = 0; i < entry->layers.size(); ++i)
    if (entry->layers[i].index == layer)
      return ctx.plan + i;
  fail(MOIRA_FAILED,
       concat(function, ": expected a layer of the entry, got ", layer));
  return nullptr;
}

void StepContext::gatherCounts(int64_t layer, int64_t experts,
                               const int32_t *counts, int32_t *matrix) {
  const moira_plan *plan = planOf("gather_counts", layer);
  if (!plan)
    return;
  RankRecord mine = record;
  mine.plan = hashPlan(*plan, ctx.ranks);
  Api::waiting(*this, layer, [&] {
    note("gather_counts",
         link().gatherCounts(layer, experts, counts, mine, matrix));
  });
  if (!hasFailed())
    steps.matrix(layer, experts, ctx.ranks, matrix);
}

int64_t StepContext::receiveSizes(const moira_exchange &exchange,
                                  int32_t *groups) {
  const moira_plan *plan = planOf("receive_sizes", exchange.layer);
  if (!plan)
    return 0;
  Result<int64_t> rows = link().receiveSizes(*plan, exchange, groups);
  if (rows.ok())
    return *rows;
  std::fill_n(groups, std::max(exchange.placement.slots, 0), 0);
  fail(rows.status().code, rows.status().within("receive_sizes").message);
  return 0;
}

bool StepContext::checkWorker(int64_t worker) {
  if (worker >= 0 && worker < workers())
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
  Result<void *> address = arenas[worker]->allocate(bytes);
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
  Result<Storage> storage =
      Storage::allocate(account, MemoryKind::Results, *bytes);
  if (!storage.ok())
    return storage.status();
  result.storage = std::make_shared<Storage>(std::move(*storage));
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
  return (*results)[index].data;
}

/// Charges a loop as if each worker had a core of its own and all were even:
/// the longest body, or the work of all in equal parts.
void StepContext::runOnVirtualWorkers(
    VirtualClock &clock, int64_t n, int64_t cost,
    const std::function<void(int64_t, int64_t)> &body) {
  std::vector<double> sums(workers()), longest(workers());
  clock.pause();
  pool->run(n, cost, [&](int64_t index, int64_t worker) {
    double begin = threadCpuSeconds();
    body(index, worker);
    double seconds = threadCpuSeconds() - begin;
    sums[worker] += seconds;
    longest[worker] = std::max(longest[worker], seconds);
  });
  double all = 0, most = 0;
  for (int64_t worker = 0; worker < workers(); ++worker) {
    all += sums[worker];
    most = std::max(most, longest[worker]);
  }
  clock.add(clock.scale() * std::max(most, all / workers()));
  clock.resume();
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
