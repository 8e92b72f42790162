// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a batch of messages takes on described links, fast enough to decide
// with.

#ifndef MOIRA_RUNTIME_COST_BATCHCOST_H
#define MOIRA_RUNTIME_COST_BATCHCOST_H

#include "collective/RankGroups.h"
#include "cost/Topology.h"

#include <vector>

namespace moira::runtime {

/// How much goes from each rank to each other one.
struct Flow {
  double amount = 0; ///< of what is sent, such as rows or bytes
  double messages = 0;
};

/// The messages of one batch, as BatchCost wants them.
class BatchFlows {
  friend class BatchCost;
  /// One pair of ranks.
  struct Sent {
    int from, to, turn;
    Flow flow;
  };
  std::vector<Sent> sent;    ///< by turn, then by sender
  std::vector<Flow> traffic; ///< by link
  double latency = 0;        ///< the longest
};

/// Two ways (docs/cost-model.md, "Links"). Up to `exactRanks` ranks the list
/// schedule of LinkSchedule, all messages of a pair as one. Above, the links'
/// own bound, which is the same for all ranks.
class BatchCost {
public:
  static constexpr int exactRanks = 16;

  explicit BatchCost(const Topology &topology);

  /// Whether ends are told apart by rank. Else there is one lane for all.
  bool byRank() const { return ranks <= exactRanks; }
  int lanes() const { return byRank() ? ranks : 1; }

  /// Makes room, so that `set` allocates nothing.
  void reserve(BatchFlows &batch) const;
  /// Takes flows[from, to], or with `back` [to, from]. A rank's messages stand
  /// in the order of RankGroups::peer, as the runtime sends them.
  void set(const Flow *flows, bool back, BatchFlows &batch) const;
  /// In amounts of `unitBytes`; with 0 of them only latency and overhead count.
  /// Lane p begins at ends[p], which become the ends; without messages it keeps
  /// its begin. One thread at a time.
  void run(const BatchFlows &batch, double unitBytes,
           std::vector<double> &ends) {
    byRank() ? schedule(batch, unitBytes, ends) : bound(batch, unitBytes, ends);
  }

private:
  void schedule(const BatchFlows &batch, double unitBytes,
                std::vector<double> &ends);
  void bound(const BatchFlows &batch, double unitBytes,
             std::vector<double> &ends) const;
  void setTraffic(const Flow *flows, bool back, BatchFlows &batch) const;

  struct Way {
    int first = 0, count = 0; ///< into pathLinks
    double latency = 0, overhead = 0, secondsPerByte = 0;
  };
  struct Wire {
    double overhead = 0, secondsPerByte = 0;
  };
  struct Turn {
    double begin;
    int index; ///< into sent
    bool operator<(const Turn &other) const {
      return begin < other.begin ||
             (begin == other.begin && index < other.index);
    }
  };
  int ranks;
  RankGroups groups;
  std::vector<Way> ways; ///< [ranks, ranks]
  std::vector<int> pathLinks;
  std::vector<Wire> wires;
  std::vector<Turn> turns;
  std::vector<double> free; ///< by link
  std::vector<double> next;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_BATCHCOST_H
