// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Pool.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

using namespace moira;
using namespace moira::runtime;

/// Handing a loop to other threads and waiting for them costs microseconds;
/// a loop shorter than a few of these is not worth it.
static constexpr int64_t inlineNanoseconds = 20'000;
/// Iterations are handed out in pieces of about this much time, so that the
/// scheduler's share stays small and the balance fine.
static constexpr int64_t pieceNanoseconds = 5'000;

struct Pool::Arena {
  explicit Arena(int threads) : slots(threads) {
    // oneTBB makes as many threads as there are processors unless told.
    if (threads > tbb::info::default_concurrency())
      more.emplace(tbb::global_control::max_allowed_parallelism, threads);
  }

  std::optional<tbb::global_control> more;
  tbb::task_arena slots;
};

static int resolveThreads(int threads) {
  return threads > 0 ? threads : std::max(1, tbb::info::default_concurrency());
}

Pool::Pool(int threads) : threadCount(resolveThreads(threads)) {
  if (threadCount > 1)
    arena = std::make_unique<Arena>(threadCount);
}

Pool::~Pool() = default;

bool Pool::staysInline(int64_t n, int64_t cost) const {
  int64_t time;
  return !arena || n <= 1 ||
         (!__builtin_mul_overflow(n, std::max<int64_t>(cost, 1), &time) &&
          time < inlineNanoseconds);
}

void Pool::run(int64_t n, int64_t cost,
               const std::function<void(int64_t, int64_t)> &body) {
  if (staysInline(n, cost)) {
    for (int64_t i = 0; i < n; ++i)
      body(i, 0);
    return;
  }
  int64_t piece =
      std::max<int64_t>(1, pieceNanoseconds / std::max<int64_t>(cost, 1));
  using Range = tbb::blocked_range<int64_t>;
  // What the caller has written the bodies see, and the other way round. oneTBB
  // guarantees that; these say it where the thread sanitizer can see it too,
  // which does not look into oneTBB.
  std::atomic<int> begun{0}, ended{0};
  begun.store(1, std::memory_order_release);
  arena->slots.execute([&] {
    tbb::parallel_for(
        Range(0, n, piece),
        [&](const Range &range) {
          // The slot of a thread in this arena: nobody else has it while the
          // thread is here.
          int64_t worker = tbb::this_task_arena::current_thread_index();
          (void)begun.load(std::memory_order_acquire);
          for (int64_t i = range.begin(); i != range.end(); ++i)
            body(i, worker);
          ended.fetch_add(1, std::memory_order_acq_rel);
        },
        tbb::simple_partitioner());
  });
  (void)ended.load(std::memory_order_acquire);
}
