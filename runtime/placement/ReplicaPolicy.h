// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lasting placements that follow the loads: FlexMoE (SIGMOD 2023), its expand,
// shrink and migrate. docs/placement.md.

#ifndef MOIRA_RUNTIME_PLACEMENT_REPLICAPOLICY_H
#define MOIRA_RUNTIME_PLACEMENT_REPLICAPOLICY_H

#include "cost/Topology.h"

#include <array>
#include <cstdint>
#include <vector>

namespace moira::runtime {

/// Virtual experts: every rank has the same number of them, each bound to one
/// expert. Several of one expert on a rank share a copy of its weights and mean
/// a larger share of its rows there.
class ReplicaTable {
public:
  /// experts dealt out evenly, in order: expert e gets the e-th part of all
  /// virtual experts, rank after rank.
  ReplicaTable(int ranks, int slots, int experts);
  /// [ranks, slots] of expert ids. Fails where one has none or an id is out of
  /// range.
  static Result<ReplicaTable> create(int ranks, int slots, int experts,
                                     const std::vector<int32_t> &table);

  int ranks() const { return rankCount; }
  int slots() const { return slotCount; }
  int experts() const { return expertCount; }
  int32_t expert(int rank, int slot) const {
    return table[size_t(rank) * slotCount + slot];
  }
  /// Virtual experts of an expert, in all and on a rank.
  int replicas(int expert) const { return total[expert]; }
  int replicasOn(int expert, int rank) const {
    return perRank[size_t(expert) * rankCount + rank];
  }
  int ranksOf(int expert) const;

  /// Gives the slot of one expert to another; `from` has one there.
  void replace(int rank, int from, int to);

  /// As the exchange reads it (docs/ranks.md): a copy per rank and expert, at
  /// its lowest virtual expert; -1 elsewhere.
  std::vector<int32_t> slotTable() const;

  bool operator==(const ReplicaTable &other) const {
    return table == other.table;
  }

private:
  void count();

  int rankCount, slotCount, expertCount;
  std::vector<int32_t> table, total, perRank;
};

/// Which rows go to which replica (section 3.6 of the reference): each virtual
/// expert may have an equal part of its expert's rows, one more for the first
/// ones where they do not divide. A rank keeps its own rows within that, the
/// rest goes to replicas of its node, then by rank.
class ReplicaRouting {
public:
  /// nodes[ranks]: the node of each.
  explicit ReplicaRouting(std::vector<int> nodes) : nodes(std::move(nodes)) {}

  /// counts[ranks, experts]. Fills rows(source, expert, holder).
  void route(const ReplicaTable &table, const int32_t *counts);
  int64_t rows(int source, int expert, int holder) const {
    return moved[(size_t(source) * expertCount + expert) * rankCount + holder];
  }
  /// Rows that a rank computes, and gets from another one.
  int64_t load(int rank) const { return loads[rank]; }
  int64_t between(int source, int holder) const {
    return pairs[size_t(source) * rankCount + holder];
  }
  /// The largest load over the mean one; 1 where there is nothing.
  double ratio() const;

private:
  std::vector<int> nodes;
  int rankCount = 0, expertCount = 0;
  std::vector<int64_t> moved, loads, pairs, left;
};

/// What the policy thinks that things take, seconds.
struct ReplicaCosts {
  double perRow = 1;      ///< of an expert, all passes
  double bytesPerRow = 0; ///< that travel, all passes; 0: nothing does
  /// Sum of gradients over the ranks of a replicated expert: within a node, and
  /// across nodes.
  double syncIntra = 0, syncInter = 0;
  double stateBytes = 0; ///< of an expert with its optimizer, for moves
};

struct Adjustment {
  enum Kind { Expand, Shrink, Migrate };
  Kind kind;
  int expert; ///< Migrate: that leaves `rank` for `other`
  int rank;
  int source = -1; ///< Expand: nearest holder, `rank` itself if it has it.
                   ///< Migrate: the other rank
  int other = -1;  ///< Migrate: the expert that comes in exchange

  bool operator==(const Adjustment &o) const {
    return kind == o.kind && expert == o.expert && rank == o.rank &&
           source == o.source && other == o.other;
  }
};

/// FlexMoE's scheduler. Deterministic: of equal choices the one with the lower
/// id.
class ReplicaPolicy {
public:
  /// `threshold`: a ratio of largest to mean load above which it acts.
  ReplicaPolicy(const Topology &topology, const ReplicaCosts &costs,
                double threshold = 1.1, int maxRounds = 16);

  /// The cost of a step under a placement.
  double cost(const ReplicaTable &table, const int32_t *counts);
  /// One expansion with its shrinking, applied, or nothing.
  std::vector<Adjustment> adjustOnce(ReplicaTable &table,
                                     const int32_t *counts);
  /// Until the threshold is met or nothing helps.
  std::vector<Adjustment> adjust(ReplicaTable &table, const int32_t *counts);
  /// Swaps virtual experts between ranks where sums over replicas take less
  /// then, by more than the moves spread over `steps` steps, and the cost does
  /// not grow.
  std::vector<Adjustment> migrate(ReplicaTable &table, const int32_t *counts,
                                  int64_t steps);
  /// Seconds to move the state for one adjustment, the network being idle.
  double moveSeconds(const Adjustment &adjustment) const;
  /// Of the placement that was routed last.
  const ReplicaRouting &routing() const { return router; }

private:
  double sync(const ReplicaTable &table, int expert) const;
  double syncSum(const ReplicaTable &table) const;
  int nearest(const ReplicaTable &table, int expert, int rank) const;

  const Topology topology;
  const ReplicaCosts costs;
  const double threshold;
  const int maxRounds;
  ReplicaRouting router;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_PLACEMENT_REPLICAPOLICY_H
