// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: build/bin/moira-c-api-times [--benchmark_filter=REGEX]
//
// Times calls of the C API on programs that do next to nothing: an entry with
// one layer of 4x4 weights, written by hand, on 0 rows and on 1. What remains
// is what a call costs. docs/c-api.md has the figures.

#include "moira/queue.h"
#include "moira/ranks.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void check(int32_t code) {
  if (code == MOIRA_OK)
    return;
  std::fprintf(stderr, "error: %s\n", moira_error_message());
  std::exit(1);
}

struct Rows {
  explicit Rows(int64_t rows) : data(4 * rows + 1), shape{rows, 4} {
    managed.dl_tensor.data = data.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.shape = shape;
  }
  std::vector<float> data;
  int64_t shape[2];
  DLManagedTensor managed{};
};

struct Program {
  explicit Program(const char *path, moira_ranks *ranks = nullptr,
                   int statistics = 0) {
    check(moira_bundle_open(path, &bundle));
    moira_session_options options{};
    options.struct_size = sizeof(options);
    options.threads = 1;
    options.statistics_steps = statistics;
    options.ranks = ranks;
    check(moira_session_create(bundle, &options, &session));
    check(moira_session_bind_random(session, 1));
  }
  ~Program() {
    moira_session_destroy(session);
    moira_bundle_close(bundle);
  }
  /// One step, whose result goes to `y`, or comes new where that is null.
  void step(Rows &x, Rows *y) {
    const DLTensor *inputs[] = {&x.managed.dl_tensor};
    DLManagedTensor *result = y ? &y->managed : nullptr;
    check(moira_session_invoke(session, "main", inputs, 1, &result, 1));
    if (!y)
      result->deleter(result);
  }
  moira_bundle *bundle = nullptr;
  moira_session *session = nullptr;
};

/// Arguments: rows, and whether the caller has a tensor for the result.
void invoke(benchmark::State &state) {
  Program program(MOIRA_TEST_BUNDLE);
  Rows x(state.range(0)), y(state.range(0));
  for (auto _ : state)
    program.step(x, state.range(1) ? &y : nullptr);
}
BENCHMARK(invoke)->ArgNames({"rows", "own"})->ArgsProduct({{0, 1}, {0, 1}});

void invokeWithoutStatistics(benchmark::State &state) {
  Program program(MOIRA_TEST_BUNDLE, nullptr, -1);
  Rows x(1), y(1);
  for (auto _ : state)
    program.step(x, &y);
}
BENCHMARK(invokeWithoutStatistics);

/// Queues a step and waits for it: a thread wakes up twice.
void queueAndWait(benchmark::State &state) {
  Program program(MOIRA_TEST_BUNDLE);
  moira_queue *queue = nullptr;
  check(moira_queue_create(nullptr, &queue));
  Rows x(1), y(1);
  const DLTensor *inputs[] = {&x.managed.dl_tensor};
  DLManagedTensor *result = &y.managed;
  for (auto _ : state) {
    int64_t ticket = 0;
    check(moira_queue_invoke(queue, program.session, "main", inputs, 1, &result,
                             1, &ticket));
    check(moira_queue_wait(queue, ticket));
  }
  moira_queue_destroy(queue);
}
BENCHMARK(queueAndWait)->UseRealTime();

/// The same for many steps at once.
void queueMany(benchmark::State &state) {
  constexpr int many = 100;
  Program program(MOIRA_TEST_BUNDLE);
  moira_queue *queue = nullptr;
  check(moira_queue_create(nullptr, &queue));
  Rows x(1), y(1);
  const DLTensor *inputs[] = {&x.managed.dl_tensor};
  DLManagedTensor *result = &y.managed;
  for (auto _ : state) {
    for (int i = 0; i < many; ++i)
      check(moira_queue_invoke(queue, program.session, "main", inputs, 1,
                               &result, 1, nullptr));
    check(moira_queue_synchronize(queue));
  }
  state.SetItemsProcessed(state.iterations() * many);
  moira_queue_destroy(queue);
}
BENCHMARK(queueMany)->UseRealTime();

/// A step of two ranks that are threads: counts, an exchange there and back,
/// and the vote at the end.
void stepOfTwoRanks(benchmark::State &state) {
  moira_ranks *ranks[2];
  check(moira_ranks_threads(2, nullptr, ranks));
  {
    Program first(MOIRA_TEST_RANKS_BUNDLE, ranks[0]);
    Program second(MOIRA_TEST_RANKS_BUNDLE, ranks[1]);
    Rows x(4), y(4);
    // The other rank follows for as long as it is told to go on.
    std::thread other([&] {
      Rows ownX(4), ownY(4);
      int32_t more = 1;
      while (true) {
        check(moira_ranks_broadcast(ranks[1], 0, &more, sizeof(more)));
        if (!more)
          return;
        second.step(ownX, &ownY);
      }
    });
    int32_t more = 1;
    for (auto _ : state) {
      state.PauseTiming();
      check(moira_ranks_broadcast(ranks[0], 0, &more, sizeof(more)));
      state.ResumeTiming();
      first.step(x, &y);
    }
    more = 0;
    check(moira_ranks_broadcast(ranks[0], 0, &more, sizeof(more)));
    other.join();
  }
  for (moira_ranks *rank : ranks)
    moira_ranks_destroy(rank);
}
BENCHMARK(stepOfTwoRanks)->UseRealTime();

} // namespace

BENCHMARK_MAIN();
