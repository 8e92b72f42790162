// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/RankGroups.h"
#include "cost/LinkSchedule.h"

#include <gtest/gtest.h>

#include <set>

using namespace moira;
using namespace moira::runtime;

static Topology parsed(const std::string &json) {
  Result<Topology> topology = Topology::parse(json);
  EXPECT_TRUE(topology.ok()) << topology.status().message;
  return topology.ok() ? *topology : Topology::uniform(1, 1, 0);
}

static std::vector<Transfer> everyPair(int ranks, int64_t bytes) {
  std::vector<Transfer> transfers;
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q)
      if (p != q)
        transfers.push_back({p, q, bytes});
  return transfers;
}

TEST(Topology, SwitchesAndSharedCards) {
  Topology cluster = parsed(R"({
    "name": "c", "nodes": 2, "ranks_per_node": 4,
    "intra": {"bandwidth": 100, "latency": 2, "kind": "switch"},
    "inter": {"bandwidth": 10, "latency": 6, "per": "node", "overhead": 1},
    "fabric": {"bandwidth": 40}})");
  EXPECT_EQ(cluster.ranks(), 8);
  EXPECT_EQ(cluster.ranksPerNode(), 4);
  EXPECT_EQ(cluster.nodeOf(3), 0);
  EXPECT_EQ(cluster.nodeOf(4), 1);
  EXPECT_DOUBLE_EQ(cluster.messageSeconds(0, 3, 50), 2 + 0.5);
  EXPECT_DOUBLE_EQ(cluster.messageSeconds(0, 7, 50), 6 + 1 + 5);
  EXPECT_DOUBLE_EQ(cluster.messageSeconds(5, 5, 50), 0);
  // Four ranks send 4 messages each over one card: 160 bytes at 10 per second.
  EXPECT_DOUBLE_EQ(cluster.boundSeconds(everyPair(8, 10)), 16);
}

TEST(Topology, DirectLinksAndOwnCards) {
  Topology cluster = parsed(R"({
    "nodes": [2, 3],
    "intra": {"bandwidth": 100, "kind": "direct"},
    "inter": {"bandwidth": 10, "per": "rank"}})");
  EXPECT_EQ(cluster.ranks(), 5);
  EXPECT_EQ(cluster.ranksPerNode(), 0);
  EXPECT_DOUBLE_EQ(cluster.boundSeconds(everyPair(2, 100)), 1);
  // Each of node 0's ranks sends to three.
  EXPECT_DOUBLE_EQ(cluster.boundSeconds({{0, 2, 10}, {0, 3, 10}, {1, 4, 20}}),
                   2);
}

TEST(Topology, FaultsAreOneLine) {
  struct {
    const char *json, *message;
  } const cases[] = {
      {"{", "topology: expected JSON, got a fault at byte 2"},
      {"[]", "topology: description: expected an object, got array"},
      {"{}", "topology: nodes: expected a number or a list, got none"},
      {R"({"nodes": 0})",
       "topology: nodes: expected an integer from 1 to 4096, got 0"},
      {R"({"nodes": 1.5})",
       "topology: nodes: expected an integer from 1 to 4096, got 1.5"},
      {R"({"nodes": "2"})",
       "topology: nodes: expected an integer from 1 to 4096, got \"2\""},
      {R"({"nodes": []})",
       "topology: nodes: expected at least one node, got none"},
      {R"({"nodes": [1], "ranks_per_node": 2})",
       "topology: ranks_per_node: expected no such key beside a list of nodes"},
      {R"({"nodes": 4096, "ranks_per_node": 4})",
       "topology: nodes: expected at most 4096 ranks, got 4100"},
      {R"({"nodes": 2})", "topology: inter: expected a link, got none"},
      {R"({"nodes": 2, "inter": 3})",
       "topology: inter: expected an object, got number"},
      {R"({"nodes": 2, "inter": {}})",
       "topology: inter.bandwidth: expected a number, got none"},
      {R"({"nodes": 2, "inter": {"bandwidth": -1}})",
       "topology: inter.bandwidth: expected a number above 0, got -1"},
      {R"({"nodes": 2, "inter": {"bandwidth": 1, "latency": "x"}})",
       "topology: inter.latency: expected a number, got string"},
      {R"({"nodes": 2, "inter": {"bandwidth": 1, "per": "socket"}})",
       "topology: inter.per: expected \"node\" or \"rank\", got \"socket\""},
      {R"({"nodes": 2, "inter": {"bandwith": 1}})",
       "topology: inter: expected no key 'bandwith'"},
      {R"({"nodes": 1, "ranks_per_node": 2})",
       "topology: intra: expected a link, got none"},
  };
  for (const auto &c : cases) {
    Result<Topology> topology = Topology::parse(c.json);
    EXPECT_EQ(topology.status().message, c.message);
  }
  EXPECT_EQ(Topology::read("/nowhere/x.json").status().message,
            "/nowhere/x.json: expected a readable file");
}

/// All ranks ready at once: an even exchange ends at the bound.
TEST(LinkSchedule, EvenExchangeEndsAtTheBound) {
  for (int ranks : {2, 3, 8, 64}) {
    Topology topology = Topology::uniform(ranks, 100, 0);
    std::vector<TimedMessage> messages;
    for (int p = 0; p < ranks; ++p)
      for (int d = 1; d < ranks; ++d)
        messages.push_back({p, (p + d) % ranks, 50, d, 0, 0});
    std::vector<double> ready(ranks, 3);
    LinkSchedule(topology).place(ready, messages);
    double end = 0;
    for (const TimedMessage &message : messages)
      end = std::max(end, message.end);
    EXPECT_NEAR(end, 3 + topology.boundSeconds(everyPair(ranks, 50)), 1e-9);
  }
}

static int64_t pairsWithDistance(const RankGroups &groups, int d) {
  std::set<int> peers;
  for (int r = 0; r < groups.ranks; ++r)
    peers.insert(groups.peer(r, d));
  return static_cast<int64_t>(peers.size());
}

TEST(RankGroups, TurnsAreOneToOne) {
  for (int ranks : {1, 2, 3, 6, 8, 12, 512})
    for (int size : {1, 2, 3, 4, 8}) {
      RankGroups groups{0, ranks, size};
      std::set<int> peers;
      for (int d = 0; d < ranks; ++d) {
        EXPECT_EQ(pairsWithDistance(groups, d), ranks) << ranks << ' ' << size;
        peers.insert(groups.peer(ranks / 2, d));
      }
      EXPECT_EQ(peers.size(), size_t(ranks)) << ranks << ' ' << size;
      EXPECT_EQ(groups.peer(ranks / 2, 0), ranks / 2);
    }
}

/// What goes from each group to the next one alone is even too: nobody waits
/// for a neighbour. Counted from the rank's own number, all of a group would
/// begin with one rank, and end after 7 messages in place of 4.
TEST(LinkSchedule, ExchangeBetweenGroupsEndsAtTheBound) {
  const int ranks = 16, size = 4;
  RankGroups groups{0, ranks, size};
  Topology topology = Topology::uniform(ranks, 100, 0);
  std::vector<TimedMessage> messages;
  for (int p = 0; p < ranks; ++p) {
    int turn = 0;
    for (int d = 0; d < ranks; ++d) {
      int q = groups.peer(p, d);
      if (groups.groupOf(q) == (groups.groupOf(p) + 1) % groups.count())
        messages.push_back({p, q, 50, turn++, 0, 0});
    }
    EXPECT_EQ(turn, size);
  }
  LinkSchedule(topology).place(std::vector<double>(ranks, 3), messages);
  for (const TimedMessage &message : messages)
    EXPECT_NEAR(message.end, 3 + 0.5 * (message.turn + 1), 1e-9);
}

TEST(LinkSchedule, LateRanksDelayOnlyTheirs) {
  Topology topology = Topology::uniform(3, 10, 1);
  std::vector<TimedMessage> messages = {
      {0, 1, 10, 0, 0, 0}, {0, 2, 10, 1, 0, 0}, {2, 1, 10, 0, 0, 0}};
  LinkSchedule(topology).place({0, 5, 0}, messages);
  for (const TimedMessage &message : messages) {
    if (message.to == 2)
      EXPECT_DOUBLE_EQ(message.end, 2);
    else // to rank 1, ready at 5, one after the other on its link
      EXPECT_DOUBLE_EQ(message.end, message.from == 0 ? 7 : 8);
  }
}
