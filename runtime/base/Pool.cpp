// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Pool.h"

#include "base/Scheduler.h"

#include <algorithm>
#include <atomic>

using namespace moira;
using namespace moira::runtime;

/// Handing a loop to other threads and waiting for them costs microseconds;
/// a loop shorter than a few of these is not worth it.
static constexpr int64_t inlineNanoseconds = 20'000;
/// Iterations are handed out in pieces of about this much time, so that the
/// scheduler's share stays small and the balance fine.
static constexpr int64_t pieceNanoseconds = 5'000;

Pool::Pool(int threads)
    : threadCount(threads > 0 ? threads : Scheduler::processors()) {
  if (threadCount > 1)
    scheduler = std::make_unique<Scheduler>(threadCount);
}

Pool::~Pool() = default;

bool Pool::staysInline(int64_t n, int64_t cost) const {
  int64_t time;
  return !scheduler || n <= 1 ||
         (!__builtin_mul_overflow(n, std::max<int64_t>(cost, 1), &time) &&
          time < inlineNanoseconds);
}

namespace {
/// One loop while it runs. What the caller has written the bodies see, and the
/// other way round: the scheduler guarantees it, the atomics say it (see
/// Scheduler.h).
struct Loop {
  const std::function<void(int64_t, int64_t)> &body;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};

  static void runPiece(void *self, int64_t begin, int64_t end, int64_t worker) {
    auto &loop = *static_cast<Loop *>(self);
    (void)loop.begun.load(std::memory_order_acquire);
    for (int64_t i = begin; i != end; ++i)
      loop.body(i, worker);
    loop.ended.fetch_add(1, std::memory_order_acq_rel);
  }
};
} // namespace

void Pool::run(int64_t n, int64_t cost,
               const std::function<void(int64_t, int64_t)> &body) {
  if (staysInline(n, cost)) {
    for (int64_t i = 0; i < n; ++i)
      body(i, 0);
    return;
  }
  Loop loop{body};
  loop.begun.store(1, std::memory_order_release);
  int64_t size =
      std::max<int64_t>(1, pieceNanoseconds / std::max<int64_t>(cost, 1));
  scheduler->run(n, size, Loop::runPiece, &loop);
  (void)loop.ended.load(std::memory_order_acquire);
}
