// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/ReplicaPolicy.h"
#include "base/Draws.h"
#include "collective/Placement.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace moira;
using namespace moira::runtime;

using Loads = std::vector<int64_t>;

namespace {
/// Experts 0, 1 on ranks 0, 2 and 2, 3 on ranks 1, 3; one node.
ReplicaTable golden() {
  return *ReplicaTable::create(4, 2, 4, {0, 1, 2, 3, 0, 1, 2, 3});
}
Topology oneNode() {
  return *Topology::parse(
      R"({"nodes": 1, "ranks_per_node": 4, "intra": {"bandwidth": 1e9}})");
}
Topology twoNodes() {
  return *Topology::parse(
      R"({"nodes": 2, "ranks_per_node": 2, "intra": {"bandwidth": 1e9},
          "inter": {"bandwidth": 1e8}})");
}
std::vector<int32_t> each(const std::vector<int32_t> &rows, int ranks = 4) {
  std::vector<int32_t> counts;
  for (int rank = 0; rank < ranks; ++rank)
    counts.insert(counts.end(), rows.begin(), rows.end());
  return counts;
}
Loads loads(const ReplicaPolicy &policy, int ranks = 4) {
  Loads result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(policy.routing().load(rank));
  return result;
}
std::vector<int> replicas(const ReplicaTable &table) {
  std::vector<int> result;
  for (int e = 0; e < table.experts(); ++e)
    result.push_back(table.replicas(e));
  return result;
}
} // namespace

TEST(ReplicaPolicy, GoldenOfComputeOnly) {
  ReplicaPolicy policy(oneNode(), {}, 1.0);
  ReplicaTable table = golden();
  auto counts = each({160, 40, 30, 20});
  EXPECT_EQ(policy.cost(table, counts.data()), 400);
  EXPECT_EQ(loads(policy), (Loads{400, 100, 400, 100}));
  EXPECT_DOUBLE_EQ(policy.routing().ratio(), 1.6);

  std::vector<Adjustment> moves = policy.adjustOnce(table, counts.data());
  EXPECT_EQ(moves, (std::vector<Adjustment>{{Adjustment::Shrink, 3, 1},
                                            {Adjustment::Expand, 0, 1, 0}}));
  EXPECT_EQ(policy.cost(table, counts.data()), 294);
  EXPECT_EQ(loads(policy), (Loads{294, 273, 293, 140}));
  EXPECT_NEAR(policy.routing().ratio(), 1.176, 1e-9);

  moves = policy.adjustOnce(table, counts.data());
  EXPECT_EQ(moves, (std::vector<Adjustment>{{Adjustment::Shrink, 2, 3},
                                            {Adjustment::Expand, 0, 3, 0}}));
  EXPECT_EQ(policy.cost(table, counts.data()), 280);
  EXPECT_EQ(loads(policy), (Loads{240, 280, 240, 240}));
  EXPECT_NEAR(policy.routing().ratio(), 1.12, 1e-9);
  // All rows of expert 0 stay where they are.
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(policy.routing().rows(rank, 0, rank), 160);

  EXPECT_TRUE(policy.adjustOnce(table, counts.data()).empty());
  EXPECT_EQ(replicas(table), (std::vector<int>{4, 2, 1, 1}));

  ReplicaTable again = golden();
  EXPECT_EQ(policy.adjust(again, counts.data()).size(), 4u);
  EXPECT_TRUE(again == table);
}

TEST(ReplicaPolicy, GoldenWithSums) {
  ReplicaCosts costs;
  costs.syncIntra = costs.syncInter = 30;
  ReplicaPolicy policy(oneNode(), costs, 1.0);
  ReplicaTable table = golden();
  auto counts = each({160, 40, 30, 20});
  EXPECT_EQ(policy.cost(table, counts.data()), 460);
  EXPECT_EQ(policy.adjustOnce(table, counts.data()).size(), 2u);
  EXPECT_EQ(policy.cost(table, counts.data()), 354);
  EXPECT_EQ(policy.adjustOnce(table, counts.data()).size(), 2u);
  EXPECT_EQ(policy.cost(table, counts.data()), 310);
  EXPECT_TRUE(policy.adjustOnce(table, counts.data()).empty());
}

TEST(ReplicaPolicy, GoldenOfOneHotExpert) {
  ReplicaPolicy policy(oneNode(), {}, 1.0);
  ReplicaTable table = golden();
  auto counts = each({0, 0, 0, 250});
  policy.cost(table, counts.data());
  EXPECT_EQ(loads(policy), (Loads{0, 500, 0, 500}));
  policy.adjustOnce(table, counts.data());
  policy.cost(table, counts.data());
  Loads after = loads(policy);
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, (Loads{0, 333, 333, 334}));
  policy.adjust(table, counts.data());
  EXPECT_EQ(loads(policy), (Loads{250, 250, 250, 250}));
  EXPECT_EQ(replicas(table), (std::vector<int>{1, 1, 2, 4}));
}

TEST(ReplicaPolicy, LeavesBalanceAlone) {
  ReplicaPolicy policy(oneNode(), {});
  ReplicaTable table = golden();
  EXPECT_TRUE(policy.adjust(table, each({50, 50, 50, 50}).data()).empty());
  EXPECT_TRUE(policy.adjust(table, each({0, 0, 0, 0}).data()).empty());
  EXPECT_EQ(policy.routing().ratio(), 1);
  EXPECT_EQ(policy.cost(table, each({0, 0, 0, 0}).data()), 0);
  EXPECT_TRUE(table == golden());
  // Nothing can shrink.
  ReplicaTable tight(2, 1, 2);
  ReplicaPolicy two(Topology::uniform(2, 1e9, 0), {}, 1.0);
  EXPECT_TRUE(two.adjust(tight, each({9, 1}, 2).data()).empty());
}

/// What must hold under any loads, placements and costs.
TEST(ReplicaPolicy, Invariants) {
  int changed = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Draws draws({3, 4}, seed);
    int ranks = 4, experts = 1 + int(draws.below(9));
    int slots = (experts + 3) / 4 + int(draws.below(3));
    ReplicaCosts costs;
    costs.perRow = 1e-6;
    costs.bytesPerRow = seed % 2 ? 4096 : 0;
    costs.syncIntra = seed % 3 ? 1e-4 : 0;
    costs.syncInter = 2 * costs.syncIntra;
    costs.stateBytes = 1e6;
    Topology topology = seed % 2 ? twoNodes() : oneNode();
    ReplicaPolicy policy(topology, costs, 1.05), other(topology, costs, 1.05);
    ReplicaTable table(ranks, slots, experts), copy = table;
    for (int step = 0; step < 6; ++step) {
      std::vector<int32_t> counts(ranks * experts);
      for (int32_t &n : counts)
        n = int32_t(draws.uniform() < 0.3 ? draws.below(900) : draws.below(9));
      double before = policy.cost(table, counts.data());
      std::vector<Adjustment> moves = policy.adjust(table, counts.data());
      changed += !moves.empty();
      EXPECT_LE(policy.cost(table, counts.data()), before);
      if (step % 2)
        policy.migrate(table, counts.data(), 100);
      // The same from the same, on whatever rank.
      EXPECT_EQ(other.adjust(copy, counts.data()), moves);
      if (step % 2)
        other.migrate(copy, counts.data(), 100);
      ASSERT_TRUE(copy == table);
      // Slots are constant, every expert has one.
      std::vector<int> n = replicas(table);
      EXPECT_EQ(std::accumulate(n.begin(), n.end(), 0), ranks * slots);
      for (int e = 0; e < experts; ++e)
        EXPECT_GE(n[e], 1);
      // Every row goes somewhere that has the expert, within quotas.
      const ReplicaRouting &routing = policy.routing();
      for (int e = 0; e < experts; ++e) {
        int64_t sum = 0;
        for (int g = 0; g < ranks; ++g)
          sum += counts[g * experts + e];
        for (int g = 0; g < ranks; ++g) {
          int64_t sent = 0, held = 0;
          for (int q = 0; q < ranks; ++q) {
            sent += routing.rows(g, e, q);
            held += routing.rows(q, e, g);
            EXPECT_GE(routing.rows(g, e, q), 0);
          }
          EXPECT_EQ(sent, counts[g * experts + e]);
          int64_t here = table.replicasOn(e, g);
          EXPECT_LE(held, here * (sum / n[e]) + std::min(here, sum % n[e]));
        }
      }
      // The exchange understands it.
      Placement placement;
      EXPECT_TRUE(
          placement.set({experts, 1, 1, slots}, table.slotTable().data(), ranks)
              .ok());
      for (int e = 0; e < experts; ++e)
        EXPECT_EQ(placement.holders(e), table.ranksOf(e));
    }
  }
  EXPECT_GT(changed, 100);
}

/// Replicas of a node cost less to keep equal than those of two.
TEST(ReplicaPolicy, MigratesIntoANode) {
  ReplicaCosts costs;
  costs.syncIntra = 1;
  costs.syncInter = 10;
  costs.stateBytes = 1e8; // a second between nodes
  ReplicaPolicy policy(twoNodes(), costs);
  // Experts 0 and 1 each on a rank of both nodes.
  auto split = *ReplicaTable::create(4, 1, 2, {0, 1, 0, 1});
  auto counts = each({10, 10});
  ReplicaTable table = split;
  std::vector<Adjustment> moves = policy.migrate(table, counts.data(), 1000);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0], (Adjustment{Adjustment::Migrate, 0, 0, 3, 1}));
  EXPECT_EQ(table.expert(0, 0), table.expert(1, 0));
  EXPECT_EQ(table.expert(2, 0), table.expert(3, 0));
  EXPECT_DOUBLE_EQ(policy.moveSeconds(moves[0]), 1);
  EXPECT_TRUE(policy.migrate(table, counts.data(), 1000).empty());
  // Not where the move costs more than it saves: 36 seconds a step here.
  costs.syncInter = 1.01;
  ReplicaPolicy cheap(twoNodes(), costs);
  EXPECT_TRUE(cheap.migrate(split, counts.data(), 1).empty());
}

TEST(ReplicaTable, DealsAndRefuses) {
  ReplicaTable table(4, 2, 4);
  EXPECT_EQ(replicas(table), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(ReplicaTable(3, 1, 2).slotTable(), (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(ReplicaTable::create(1, 3, 2, {1, 0, 1})->slotTable(),
            (std::vector<int32_t>{1, 0, -1}));
  auto message = [](int slots, const std::vector<int32_t> &entries) {
    return ReplicaTable::create(2, slots, 3, entries).status().message;
  };
  EXPECT_EQ(message(1, {0, 1}),
            "replicas: expected slots for 3 experts, got 1 on each of 2 ranks");
  EXPECT_EQ(message(2, {0, 1}), "replicas: expected 4 entries, got 2");
  EXPECT_EQ(message(2, {0, 1, 3, 2}),
            "replicas: rank 1 slot 0: expected an expert below 3, got 3");
  EXPECT_EQ(message(2, {0, 1, 1, 0}), "replicas: expected every expert "
                                      "somewhere, got none of expert 2");
}
