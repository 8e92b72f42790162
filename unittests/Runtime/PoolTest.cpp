// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Pool.h"
#include "Runtime/TestProgram.h"

#include <atomic>
#include <set>
#include <thread>

using namespace moira;
using namespace moira::runtime;

/// A cost that makes any loop worth the threads.
static constexpr int64_t expensive = 1'000'000;

namespace {
/// Counts how often each index ran, and catches workers that two bodies have
/// at the same time.
struct Watch {
  Watch(int64_t n, int threads) : runs(n), busy(threads) {}

  void operator()(int64_t index, int64_t worker) {
    ASSERT_GE(worker, 0);
    ASSERT_LT(worker, int64_t(busy.size()));
    if (busy[worker].exchange(true))
      shared = true;
    runs[index].fetch_add(1);
    if (index % 7 == 0)
      std::this_thread::yield();
    busy[worker] = false;
  }

  void check() const {
    EXPECT_FALSE(shared);
    for (const std::atomic<int> &count : runs)
      ASSERT_EQ(count, 1);
  }

  std::vector<std::atomic<int>> runs;
  std::vector<std::atomic<bool>> busy;
  std::atomic<bool> shared{false};
};
} // namespace

TEST(Pool, RunsEveryIndexOnceWithWorkersOfTheirOwn) {
  for (int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 17, 1000})
      for (int64_t cost :
           {int64_t(-1), int64_t(0), int64_t(1), expensive, INT64_MAX}) {
        Watch watch(n, threads);
        pool.run(n, cost, std::ref(watch));
        watch.check();
      }
  }
}

TEST(Pool, HasThreadsByDefault) { EXPECT_GE(Pool(0).threads(), 1); }

TEST(Pool, ShortLoopsStayOnTheCaller) {
  Pool pool(4);
  EXPECT_TRUE(pool.staysInline(1, expensive));
  EXPECT_TRUE(pool.staysInline(100, 1));
  EXPECT_FALSE(pool.staysInline(2, expensive));
  EXPECT_FALSE(pool.staysInline(100'000, 1));
  EXPECT_FALSE(pool.staysInline(INT64_MAX, INT64_MAX));
  EXPECT_TRUE(Pool(1).staysInline(1'000'000, expensive));

  std::thread::id caller = std::this_thread::get_id();
  pool.run(100, 1, [&](int64_t, int64_t worker) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(worker, 0);
  });
}

TEST(Pool, LongLoopsUseOtherThreads) {
  Pool pool(4);
  // Each of two bodies waits for the other to begin; one thread alone would
  // give up after a while.
  std::atomic<int> begun{0};
  std::atomic<bool> together{true};
  pool.run(2, expensive, [&](int64_t, int64_t) {
    begun.fetch_add(1);
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (begun < 2)
      if (std::chrono::steady_clock::now() > end) {
        together = false;
        return;
      }
  });
  EXPECT_TRUE(together);
}

TEST(Pool, UnevenIterationsAreBalanced) {
  Pool pool(3);
  Watch watch(64, 3);
  pool.run(64, expensive, [&](int64_t index, int64_t worker) {
    if (index == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    watch(index, worker);
  });
  watch.check();
}

TEST(Pool, PoolsOfSeveralThreadsDoNotMeet) {
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([user] {
      Pool pool(2 + user % 2);
      for (int round = 0; round < 50; ++round) {
        Watch watch(40, pool.threads());
        pool.run(40, expensive, std::ref(watch));
        watch.check();
      }
    });
  for (std::thread &user : users)
    user.join();
}

TEST(Pool, LoopsOfAnotherPoolMayRunInside) {
  Pool outer(3);
  std::atomic<int> runs{0};
  outer.run(6, expensive, [&](int64_t, int64_t) {
    Pool inner(2);
    inner.run(10, expensive, [&](int64_t, int64_t) { runs.fetch_add(1); });
  });
  EXPECT_EQ(runs, 60);
}
