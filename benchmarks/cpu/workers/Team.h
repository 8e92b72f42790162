// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A few threads that sleep between calls and share work by a counter.

#ifndef MOIRA_BENCHMARKS_CPU_TEAM_H
#define MOIRA_BENCHMARKS_CPU_TEAM_H

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moira::bench {

/// The caller is thread 0 of the team.
class Team {
public:
  explicit Team(int threads);
  ~Team();
  int threads() const { return static_cast<int>(others.size()) + 1; }

  /// Calls `work(thread)` once on every thread.
  void each(const std::function<void(int)> &work);
  /// Calls `work(item, thread)` for every item, handed out in order.
  void items(int64_t count, const std::function<void(int64_t, int)> &work);

private:
  void serve(int thread);

  std::vector<std::thread> others;
  std::mutex mutex;
  std::condition_variable wake;
  const std::function<void(int)> *current = nullptr;
  std::atomic<uint64_t> generation{0};
  std::atomic<int> pending{0};
  std::atomic<bool> ending{false};
};

} // namespace moira::bench

#endif // MOIRA_BENCHMARKS_CPU_TEAM_H
