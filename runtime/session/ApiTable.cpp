// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that generated code gets, and their guard against failures and
// exceptions.

#include "session/DeviceStep.h"
#include "session/Shadows.h"
#include "session/StepContext.h"

#include <algorithm>
#include <exception>

using namespace moira;
using namespace moira::runtime;

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
      return step.checkWorker(worker) ? step.arena(worker).mark() : 0;
    });
  }

  static void release(moira_ctx *ctx, int64_t worker, int64_t mark) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkWorker(worker) && !step.arena(worker).release(mark))
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
      step.prepareLayer(layer);
      if (!step.hasFailed())
        step.computed.enter(layer, part);
      return true;
    });
  }

  static void loads(moira_ctx *ctx, int64_t layer, int64_t experts,
                    const int32_t *counts, const int32_t *sizes) {
    guarded(ctx, false, [&](StepContext &step) {
      if (!step.checkNotInBody("loads"))
        return false;
      if (step.device())
        step.note("loads",
                  step.device()->noteLoads(layer, experts, counts, sizes));
      else if (!step.steps.loads(layer, experts, counts, sizes))
        step.fail(MOIRA_FAILED,
                  concat("loads: expected a layer of the entry, with as many "
                         "experts each time, got layer ",
                         layer, " with ", experts));
      if (!step.hasFailed())
        step.computed.routed(layer, experts, sizes);
      return true;
    });
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
      if (step.checkNotInBody("all_gather") && step.settle("all_gather"))
        step.waiting(-1, [&] {
          step.note("all_gather", step.link().allGather(mine, bytes, all));
        });
      return true;
    });
  }

  static void gatherCounts(moira_ctx *ctx, int64_t layer, int64_t experts,
                           const int32_t *counts, int32_t *matrix) {
    // Memory of a device may be in use until the step has waited for it.
    if (!ctx->queues)
      std::fill_n(matrix, std::max<int64_t>(experts, 0) * ctx->ranks, 0);
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("gather_counts"))
        step.gatherCounts(layer, experts, counts, matrix);
      return true;
    });
  }

  static int64_t receiveSizes(moira_ctx *ctx, const moira_exchange *exchange,
                              int32_t *groups) {
    if (!ctx->queues)
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
      if (!plan || !step.settle("exchange"))
        return -1;
      step.chargeProduct(*plan, *exchange);
      step.noteTravel(*plan, *exchange);
      return ticketOf(step, "exchange", step.link().exchange(*plan, *exchange));
    });
  }

  static int64_t gatherWeights(moira_ctx *ctx, const moira_gather *gather) {
    return guarded<int64_t>(ctx, -1, [&](StepContext &step) -> int64_t {
      const moira_plan *plan = step.planOf("gather_weights", gather->layer);
      if (!plan || !step.settle("gather_weights"))
        return -1;
      return ticketOf(step, "gather_weights",
                      step.link().gatherWeights(*plan, *gather));
    });
  }

  static int64_t allReduce(moira_ctx *ctx, const void *in, void *out,
                           int64_t count, int32_t dtype) {
    return guarded<int64_t>(ctx, -1, [&](StepContext &step) -> int64_t {
      if (!step.checkNotInBody("all_reduce") || !step.settle("all_reduce"))
        return -1;
      return ticketOf(step, "all_reduce",
                      step.link().startAllReduce(in, out, count, dtype));
    });
  }

  static int64_t reduceWeights(moira_ctx *ctx, const moira_reduce *reduce) {
    return guarded<int64_t>(ctx, -1, [&](StepContext &step) -> int64_t {
      const moira_plan *plan = step.planOf("reduce_weights", reduce->layer);
      if (!plan || !step.settle("reduce_weights"))
        return -1;
      if (reduce->placement.copies == 0)
        step.computed.reduce(reduce->layer);
      const int32_t *lasting =
          step.shadows ? step.shadows->lastingTable(reduce->layer) : nullptr;
      return ticketOf(step, "reduce_weights",
                      step.link().reduceWeights(*plan, *reduce, lasting));
    });
  }

  static void mergeRows(moira_ctx *ctx, const moira_exchange *exchange) {
    guarded(ctx, false, [&](StepContext &step) {
      if (step.checkNotInBody("merge_rows"))
        step.mergeRows(*exchange);
      return true;
    });
  }

  static void wait(moira_ctx *ctx, int64_t ticket) {
    guarded(ctx, false, [&](StepContext &step) {
      if (ticket >= 0 && step.checkNotInBody("wait"))
        step.waiting(-1, [&] { step.note("wait", step.link().wait(ticket)); });
      return true;
    });
  }
};
} // namespace moira::runtime

static constexpr moira_api table = {
    MOIRA_ABI_VERSION,  sizeof(moira_api), Api::alloc,
    Api::mark,          Api::release,      Api::result,
    Api::parallelFor,   Api::fail,         Api::enter,
    Api::loads,         Api::chunks,       Api::allGather,
    Api::gatherCounts,  Api::receiveSizes, Api::exchange,
    Api::gatherWeights, Api::wait,         Api::allReduce,
    Api::reduceWeights, Api::mergeRows,
};

const moira_api &moira::runtime::apiTable() { return table; }
