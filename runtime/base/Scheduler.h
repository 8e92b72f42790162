// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only door to oneTBB. Behind it the thread sanitizer is off: oneTBB comes
// from the system without instrumentation, so the sanitizer would see the half
// of its synchronisation that stands in headers, and take it for races. Pool
// orders bodies and callers by atomics that the sanitizer sees.

#ifndef MOIRA_RUNTIME_BASE_SCHEDULER_H
#define MOIRA_RUNTIME_BASE_SCHEDULER_H

#include <cstdint>
#include <memory>

namespace moira::runtime {

/// A number of places for threads of the process's one set of workers.
class Scheduler {
public:
  /// Runs iterations [begin, end) as `worker`.
  using Piece = void (*)(void *loop, int64_t begin, int64_t end,
                         int64_t worker);

  explicit Scheduler(int threads);
  ~Scheduler();

  /// Processors that this process may use.
  static int processors();

  /// Cuts [0, n) into pieces of at most `size`, runs them, and returns when
  /// all have run.
  void run(int64_t n, int64_t size, Piece piece, void *loop);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_SCHEDULER_H
