// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When the messages of a batch begin and end on a topology's links.

#ifndef MOIRA_RUNTIME_COST_LINKSCHEDULE_H
#define MOIRA_RUNTIME_COST_LINKSCHEDULE_H

#include "cost/Topology.h"

namespace moira::runtime {

/// A message with its times.
struct TimedMessage {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
  int turn = 0; ///< its place among the sender's messages of the batch
  double begin = 0, end = 0; ///< seconds; results
};

/// Greedy list scheduling (docs/topology.md says why): in the order of the
/// time when both ends are ready, then of turns, then of senders, a message
/// begins when its links are free. Depends on nothing but its arguments.
class LinkSchedule {
public:
  explicit LinkSchedule(const Topology &topology) : topology(topology) {}

  /// `ready` by rank, seconds. Sorts the messages. All links are free at first.
  void place(const std::vector<double> &ready,
             std::vector<TimedMessage> &messages);

private:
  const Topology &topology;
  std::vector<double> free; ///< by link
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LINKSCHEDULE_H
