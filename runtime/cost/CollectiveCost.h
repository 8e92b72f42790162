// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the collectives of collective/Collective.h take, such as the sum of a
// router's gradient over all ranks.

#ifndef MOIRA_RUNTIME_COST_COLLECTIVECOST_H
#define MOIRA_RUNTIME_COST_COLLECTIVECOST_H

#include "cost/LinkSchedule.h"

namespace moira::runtime {

/// Seconds from a common begin to the last rank's end, message by message as
/// the runtime sends them. One thread at a time.
class CollectiveCost {
public:
  /// `stagingBytes` is that of CommunicatorOptions: larger ones go in blocks.
  explicit CollectiveCost(const Topology &topology,
                          int64_t stagingBytes = int64_t(64) << 20)
      : topology(topology), schedule(topology), stagingBytes(stagingBytes) {}

  /// `bytes` of each rank to all.
  double allGather(int64_t bytes);
  /// `bytes` of one rank to all, down a binomial tree.
  double broadcast(int root, int64_t bytes);
  /// count elements for each rank, of count * ranks that each one has.
  double reduceScatter(int64_t count, int64_t elementBytes);
  /// count elements, in place.
  double allReduce(int64_t count, int64_t elementBytes);

private:
  void begin();
  void send(int from, int to, int64_t bytes);
  void endBatch();
  double last() const;

  const Topology &topology;
  LinkSchedule schedule;
  const int64_t stagingBytes;
  std::vector<TimedMessage> batch;
  std::vector<int> turns;
  std::vector<double> ready; ///< by rank
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_COLLECTIVECOST_H
