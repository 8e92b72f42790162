// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Time as it would be on a described cluster, for ranks that share few cores.

#ifndef MOIRA_RUNTIME_COLLECTIVE_VIRTUALCLOCK_H
#define MOIRA_RUNTIME_COLLECTIVE_VIRTUALCLOCK_H

#include "collective/Performer.h"
#include "cost/Calibration.h"
#include "cost/LinkSchedule.h"
#include "statistics/Clock.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

namespace moira::runtime {

/// What a rank sends in an operation, round by round.
struct OperationTrace {
  struct Sent {
    int to; ///< rank of the transport
    int64_t bytes;
  };
  std::vector<Sent> sends;
  std::vector<size_t> roundEnds; ///< into sends
};

/// The network of the ranks of one process. An operation is timed once all of
/// its ranks have done it, by whoever comes last, from what all of them say:
/// so times do not depend on how threads run.
class VirtualNetwork {
public:
  explicit VirtualNetwork(Topology topology)
      : topology(std::move(topology)), schedule(this->topology) {}

  /// Names an operation among the same ranks.
  struct Key {
    uint64_t group;
    int64_t step, index;
    bool operator<(const Key &other) const {
      return std::tie(group, step, index) <
             std::tie(other.group, other.step, other.index);
    }
  };

  /// Returns when the operation ends on this rank, in seconds; `begin` is when
  /// its queue could begin. Waits for the other members; `failed` is asked
  /// from time to time and ends that.
  Result<double> settle(const Key &key, const Members &members, double begin,
                        const OperationTrace &operation,
                        const std::function<bool()> &failed);

  const Topology &description() const { return topology; }

private:
  struct Meeting {
    int arrived = 0;
    std::vector<double> times; ///< by member: begin, then end
    std::vector<OperationTrace> operations;
    bool settled = false;
  };
  void time(Meeting &meeting, const Members &members);

  const Topology topology;
  LinkSchedule schedule;
  std::mutex mutex; ///< of what follows, and of `schedule`
  std::condition_variable changed;
  std::map<Key, std::shared_ptr<Meeting>> meetings;
};

/// One rank's two timelines. The compute one belongs to the thread that runs
/// steps; the communication one to the queue.
class VirtualClock final : public Clock {
public:
  /// Compute time is the CPU time of the step's thread times `factor`; with a
  /// factor of 0 only what `add` gives.
  VirtualClock(std::shared_ptr<VirtualNetwork> network, double factor)
      : network(std::move(network)), factor(factor) {}
  /// Compute time is what the calibration says of a step's parts, whatever
  /// this machine takes: the same in each run. Who runs steps charges it with
  /// `add` (session/ComputeCharges).
  VirtualClock(std::shared_ptr<VirtualNetwork> network,
               std::shared_ptr<const Calibration> calibration)
      : network(std::move(network)), factor(0),
        calibration(std::move(calibration)) {}

  //===--- The step's thread ---------------------------------------------===//

  /// Charges the CPU time since the last `resume`. What follows is free until
  /// the next one: calls of a communicator stand between the two.
  void pause();
  void resume();
  /// Adds compute time, such as that of other threads.
  void add(double seconds) { compute += seconds; }
  void waitUntil(double time) { compute = std::max(compute, time); }
  /// Seconds of compute time by now.
  double seconds() override;
  bool countsCpu() const { return factor > 0; }
  double scale() const { return factor; }
  /// What compute is charged by; null: CPU time, or what others add.
  const Calibration *costs() const { return calibration.get(); }

  const std::shared_ptr<VirtualNetwork> network;

private:
  const double factor;
  const std::shared_ptr<const Calibration> calibration;
  double compute = 0;
  double cpu = 0; ///< of the thread at the last `resume`
  bool running = false;
};

/// Brackets a call of a communicator; a null clock does nothing.
class ClockPause {
public:
  explicit ClockPause(VirtualClock *clock) : clock(clock) {
    if (clock)
      clock->pause();
  }
  ~ClockPause() {
    if (clock)
      clock->resume();
  }
  ClockPause(const ClockPause &) = delete;
  ClockPause &operator=(const ClockPause &) = delete;

private:
  VirtualClock *clock;
};

/// CPU seconds of the calling thread.
double threadCpuSeconds();

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_VIRTUALCLOCK_H
