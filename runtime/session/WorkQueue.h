// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work in order, beside the caller: what moira/queue.h is made of.

#ifndef MOIRA_RUNTIME_SESSION_WORKQUEUE_H
#define MOIRA_RUNTIME_SESSION_WORKQUEUE_H

#include "base/Status.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace moira::runtime {

/// Any thread may call anything. Pieces have tickets 1, 2, ...
class WorkQueue {
public:
  using Work = std::function<Status()>;
  /// Sees to it that the queue's `runNext` is called once, on any thread.
  using Submit = std::function<void(WorkQueue &)>;

  /// Null: a thread of its own.
  explicit WorkQueue(Submit submit = nullptr);
  /// Waits for all work.
  ~WorkQueue();

  /// Queues a piece and returns its ticket.
  int64_t push(Work work);
  /// Lets one piece more run. Returns when as many have run as were let, or
  /// when another thread runs them.
  void runNext();

  /// The outcome of a piece, once it has ended.
  Status wait(int64_t ticket);
  Result<bool> done(int64_t ticket) const;
  /// Waits for all that is queued now; the first failure, which is over then.
  Status synchronize();

  WorkQueue(const WorkQueue &) = delete;
  WorkQueue &operator=(const WorkQueue &) = delete;

private:
  /// Pieces [first, last] have this outcome; the last such range may grow.
  struct Failure {
    int64_t first, last;
    Status status;
  };
  Status checkTicket(int64_t ticket) const;
  Status waitFor(std::unique_lock<std::mutex> &lock, int64_t ticket);
  void runFront(std::unique_lock<std::mutex> &lock);
  void note(Status outcome);
  void serve();

  const Submit submit;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> pieces;
  int64_t pushed = 0, ended = 0; ///< tickets up to these
  int64_t allowed = 0;           ///< calls of runNext that still count
  bool running = false;          ///< a piece, by the thread `runner`
  std::thread::id runner;
  bool failed = false; ///< nothing runs until `synchronize`
  bool closing = false;
  std::deque<Failure> failures; ///< the last ones
  std::thread thread;           ///< where there is no `submit`
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_WORKQUEUE_H
