// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A described cluster: which links a message crosses, and what that takes
// (docs/topology.md). FasterMoE (PPoPP 2022), section 3, is where the model of
// directed links comes from.

#ifndef MOIRA_RUNTIME_COST_TOPOLOGY_H
#define MOIRA_RUNTIME_COST_TOPOLOGY_H

#include "base/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moira::runtime {

/// One direction of a wire.
struct Link {
  std::string name;     ///< such as "node 1 nic out"
  double bandwidth = 0; ///< bytes per second, > 0; infinity: never in the way
  double latency = 0;   ///< seconds for the first byte, >= 0
  double overhead = 0;  ///< seconds that each message keeps the link, >= 0
};

/// Bytes from one rank to another.
struct Transfer {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
};

/// Immutable. Between two ranks a message crosses a fixed list of links, in
/// order; none from a rank to itself.
class Topology {
public:
  /// Reads docs/topology.md's JSON. `name` stands before error messages.
  static Result<Topology> parse(const std::string &json,
                                const std::string &name = "topology");
  /// The same from a file.
  static Result<Topology> read(const std::string &path);
  /// All pairs of ranks alike, each rank with a link of its own both ways.
  static Topology uniform(int ranks, double bandwidth, double latency);
  /// Of ranks that nobody describes: such links, about as fast as a port of
  /// InfiniBand NDR.
  static Topology usual(int ranks) { return uniform(ranks, 50e9, 5e-6); }

  int ranks() const { return rankCount; }
  /// 0 where nodes have different sizes.
  int ranksPerNode() const { return perNode; }
  int nodeOf(int rank) const { return nodes[rank]; }
  const std::vector<Link> &links() const { return linkList; }
  /// Indices of links from one rank to another, in order.
  const std::vector<int> &path(int from, int to) const {
    return paths[from * rankCount + to];
  }

  /// Seconds for one message with nothing else under way: all latencies, and
  /// the bytes at the narrowest link.
  double messageSeconds(int from, int to, int64_t bytes) const;
  /// Seconds that any schedule of these transfers takes at least: the largest
  /// of bytes / bandwidth over directed links (FasterMoE, equation 2).
  double boundSeconds(const std::vector<Transfer> &transfers) const;

private:
  Topology() = default;

  int rankCount = 0;
  int perNode = 0;
  std::vector<int> nodes; ///< by rank
  std::vector<Link> linkList;
  std::vector<std::vector<int>> paths; ///< [from, to]

  friend class TopologyReader;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_TOPOLOGY_H
