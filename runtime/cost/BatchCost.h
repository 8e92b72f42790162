// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a batch of messages takes on described links, fast enough to decide
// with.

#ifndef MOIRA_RUNTIME_COST_BATCHCOST_H
#define MOIRA_RUNTIME_COST_BATCHCOST_H

#include "cost/Topology.h"

#include <vector>

namespace moira::runtime {

/// How much goes from each rank to each other one.
struct Flow {
  double amount = 0; ///< of what is sent, such as rows or bytes
  double messages = 0;
};

/// Two ways (docs/cost-model.md, "Links"). Up to `exactRanks` ranks the list
/// schedule of LinkSchedule, all messages of a pair as one. Above, the links'
/// own bound, which is the same for all ranks. Nothing is allocated
/// after the constructor.
class BatchCost {
public:
  static constexpr int exactRanks = 16;

  explicit BatchCost(const Topology &topology);

  /// Whether ends are told apart by rank. Else there is one lane for all.
  bool byRank() const { return ranks <= exactRanks; }
  int lanes() const { return byRank() ? ranks : 1; }
  /// flows[from, to], or with `back` [to, from], in amounts of `unitBytes`;
  /// with 0 of them only latency and overhead count. Lane p begins at ends[p],
  /// which become the ends; without messages it keeps its begin.
  void run(const Flow *flows, double unitBytes, bool back,
           std::vector<double> &ends) {
    byRank() ? schedule(flows, unitBytes, back, ends)
             : bound(flows, unitBytes, back, ends);
  }

private:
  void schedule(const Flow *flows, double unitBytes, bool back,
                std::vector<double> &ends);
  void bound(const Flow *flows, double unitBytes, bool back,
             std::vector<double> &ends);

  struct Way {
    int first = 0, count = 0; ///< into pathLinks
    double latency = 0, overhead = 0, secondsPerByte = 0;
  };
  struct Wire {
    double overhead = 0, secondsPerByte = 0;
  };
  int ranks;
  std::vector<Way> ways; ///< [ranks, ranks]
  std::vector<int> pathLinks;
  std::vector<Wire> wires;
  std::vector<double> free; ///< by link
  std::vector<double> next;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_BATCHCOST_H
