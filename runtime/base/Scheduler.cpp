// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Scheduler.h"

#include <algorithm>
#include <optional>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

using namespace moira;
using namespace moira::runtime;

struct Scheduler::Impl {
  explicit Impl(int threads) : slots(threads) {
    // oneTBB makes as many threads as there are processors unless told.
    if (threads > processors())
      more.emplace(tbb::global_control::max_allowed_parallelism, threads);
  }

  std::optional<tbb::global_control> more;
  tbb::task_arena slots;
};

Scheduler::Scheduler(int threads) : impl(std::make_unique<Impl>(threads)) {}
Scheduler::~Scheduler() = default;

int Scheduler::processors() {
  return std::max(1, tbb::info::default_concurrency());
}

void Scheduler::run(int64_t n, int64_t size, Piece piece, void *loop) {
  using Range = tbb::blocked_range<int64_t>;
  impl->slots.execute([&] {
    tbb::parallel_for(
        Range(0, n, size),
        [=](const Range &range) {
          // The slot of a thread in this arena: nobody else has it while the
          // thread is here.
          piece(loop, range.begin(), range.end(),
                tbb::this_task_arena::current_thread_index());
        },
        // Down to single pieces: the balance that uneven groups need.
        tbb::simple_partitioner());
  });
}
