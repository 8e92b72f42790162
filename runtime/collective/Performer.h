// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns requests into collectives among the ranks of one communicator.

#ifndef MOIRA_RUNTIME_COLLECTIVE_PERFORMER_H
#define MOIRA_RUNTIME_COLLECTIVE_PERFORMER_H

#include "collective/ReduceWeights.h"
#include "collective/Request.h"
#include "collective/RowPieces.h"
#include "collective/Traffic.h"

namespace moira::runtime {

/// The ranks of a communicator.
struct Members {
  int rank = 0;           ///< of this one among them
  std::vector<int> ranks; ///< theirs in the transport, ascending
  uint64_t group = 0;     ///< the same on all of them, another elsewhere
  int ranksPerNode = 0;   ///< neighbours in `ranks`; 0: not described

  int size() const { return static_cast<int>(ranks.size()); }
  /// Nodes where there are several: the ranks of one alone would be one group,
  /// and nothing to overlap.
  RankGroups groups() const {
    bool several = ranksPerNode > 0 && ranksPerNode < size();
    return {rank, size(), several ? ranksPerNode : 1};
  }
};

/// Carries the batches of collectives. Peers are numbered as in `members`.
class Carrier {
public:
  virtual ~Carrier() = default;
  virtual Status run(Collective &collective, const Members &members,
                     const TrafficTag &tag) = 0;
};

/// The state that a communicator's requests use, one after the other; one
/// thread at a time. Allocates nothing once sizes have been seen.
class Performer {
public:
  Performer(Members members, int64_t stagingBytes)
      : members(std::move(members)), stagingBytes(stagingBytes) {}

  const Members members;
  const int64_t stagingBytes;

  int64_t step = 0;  ///< of the last request, and
  int64_t index = 0; ///< how many it has had; for the virtual network

  Status perform(const Request &request, Carrier &carrier);

private:
  Status exchange(const Request &request, Carrier &carrier);
  Status gatherWeights(const Request &request, Carrier &carrier);
  Status reduceWeights(const Request &request, Carrier &carrier);
  Status moveShadow(const Request &request, Carrier &carrier);
  Status allGather(const Request &request, Carrier &carrier);

  Placement placement, lasting;
  ExchangeLayout layout;
  RowFlows flows;
  Pieces pieces;
  LinearExchange linear;
  HierarchicalExchange hierarchical;
  AllGather gathering;
  Broadcast broadcasting;
  ShadowSend shadowing;
  Members shadowed; ///< the ranks between which a unit moves
  ReduceWeights reducing;
  AllReduce allReducing;
  ReduceScatter reduceScattering;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_PERFORMER_H
