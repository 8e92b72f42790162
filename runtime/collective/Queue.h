// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's queue of communication: a thread that runs requests in order.

#ifndef MOIRA_RUNTIME_COLLECTIVE_QUEUE_H
#define MOIRA_RUNTIME_COLLECTIVE_QUEUE_H

#include "collective/Communicator.h"
#include "collective/Performer.h"
#include "collective/VirtualClock.h"
#include "statistics/Trace.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace moira::runtime {

/// Ends requests strictly in the order in which they came. The first failure,
/// here or told by another rank, fails all that follow until `recover`.
/// Without a transport (one rank) requests run on the caller's thread.
class Queue final : private Carrier {
public:
  Queue(std::unique_ptr<Transport> transport,
        const CommunicatorOptions &options);
  ~Queue() override;

  int rank() const { return transport ? transport->rank() : 0; }
  const Transport *carriedBy() const { return transport.get(); }

  /// Returns the request's number; -1 after a failure.
  int64_t submit(Performer &performer, const Request &request);
  /// Returns when that request has ended, with the failure if there is one.
  Status wait(int64_t ticket);
  /// Returns when all requests have ended: the memory they name is free.
  void drain();
  /// The same, but fails what is under way.
  void close();

  void countStep() { steps.fetch_add(1); }
  /// Fails the step on all ranks, unless it has failed already.
  void fail(const Failure &failure);
  void fail(int32_t code, const std::string &reason) {
    fail(Failure{rank(), code, reason, steps});
  }
  /// The failure, the same on all ranks; else success.
  Status failure();
  /// The same for the step that now ends. Where the ranks have voted, a failure
  /// of the next step can come before the last votes: it is not this step's.
  Status outcome();
  /// Looks for a failure that another rank has told, too.
  Status poll();
  /// After a failure: waits until all ranks have left the step, and forgets
  /// it. Fails where that is not possible.
  Status recover();
  void interrupt() noexcept { interrupted.store(true); }

  VirtualClock *clock() const { return options.clock.get(); }
  TraceRecorder *trace() const { return options.trace.get(); }
  double endOf(int64_t ticket);

  Traffic traffic();
  void resetTraffic();
  TrafficCount takeLayer(int64_t layer);

private:
  struct Task {
    Performer *performer = nullptr;
    Request request;
    double asked = 0; ///< virtual seconds
  };

  Status run(Collective &collective, const Members &members,
             const TrafficTag &tag) override;
  Status carry();
  Status toStatus(const Failure &failure) const;
  void work();
  void execute(const Task &task);
  void learn(const Failure &failure);
  Status settle(const Task &task);
  void traceFlows(bool sent, double time);
  using SteadyClock = std::chrono::steady_clock;

  static constexpr int64_t capacity = 256;
  static constexpr int64_t endsKept = 1024;

  const std::unique_ptr<Transport> transport;
  const CommunicatorOptions options;
  std::atomic<bool> interrupted{false};
  std::atomic<int64_t> steps{0}; ///< begun
  Batch batch; ///< of the collective under way, in the transport's ranks
  // With a virtual clock or a trace, of the request under way:
  OperationTrace operation;
  std::vector<int> sendPeers, receivePeers;   ///< of messages with bytes
  std::vector<uint64_t> sentTo, receivedFrom; ///< messages so far, by rank
  double begun = 0;                           ///< seconds
  double freeAt = 0; ///< when the queue ends what it has, virtual seconds
  int blamed = -1;   ///< rank that the request under way has waited for

  std::mutex mutex; ///< of what follows
  std::condition_variable submitted, ended;
  std::vector<Task> tasks; ///< ring
  int64_t submittedCount = 0;
  int64_t endedCount = 0;
  bool stopping = false;
  std::optional<Failure> failed;
  std::vector<double> ends; ///< ring, virtual seconds

  std::mutex trafficMutex;
  Traffic counted;

  std::thread thread; ///< last: it uses all the rest
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_QUEUE_H
