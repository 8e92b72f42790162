// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The threads of a session. All pools draw on the one set of oneTBB workers of
// the process.

#ifndef MOIRA_RUNTIME_BASE_POOL_H
#define MOIRA_RUNTIME_BASE_POOL_H

#include <cstdint>
#include <functional>
#include <memory>

namespace moira::runtime {

class Scheduler;

/// Runs loops on up to `threads` threads, the caller among them.
class Pool {
public:
  /// 0: as many as the processors that this process may use.
  explicit Pool(int threads);
  ~Pool();

  int threads() const { return threadCount; }

  /// Whether `run` would stay on the calling thread: a loop too short to be
  /// worth the threads, or a pool of one.
  bool staysInline(int64_t n, int64_t cost) const;

  /// Calls body(i, worker) for 0 <= i < n in any order and returns when all
  /// have run. 0 <= worker < threads(); two bodies that run at the same time
  /// have different workers. `cost` estimates one body in nanoseconds.
  /// The body must not throw and not run loops on the same pool. Different
  /// threads may call `run` at the same time only on different pools.
  void run(int64_t n, int64_t cost,
           const std::function<void(int64_t index, int64_t worker)> &body);

private:
  const int threadCount;
  std::unique_ptr<Scheduler> scheduler; ///< null for one thread
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_POOL_H
