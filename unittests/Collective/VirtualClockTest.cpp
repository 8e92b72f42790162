// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/VirtualClock.h"
#include "Collective/Conformance.h"
#include "Collective/Threads.h"
#include "statistics/Trace.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// Ranks with clocks that count injected compute time only.
template <typename Body>
void onVirtualClock(Topology topology, const Body &body,
                    std::vector<std::shared_ptr<TraceRecorder>> traces = {}) {
  int ranks = topology.ranks();
  auto network = std::make_shared<VirtualNetwork>(std::move(topology));
  auto ends = makeInProcess(ranks);
  std::vector<Status> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.timeoutSeconds = 20;
      options.clock = std::make_shared<VirtualClock>(network, 0);
      options.ranksPerNode = network->description().ranksPerNode();
      if (!traces.empty())
        options.trace = traces[rank];
      auto made = Communicator::create(std::move(ends[rank]), options);
      outcomes[rank] = body(**made);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << outcome.message;
}

/// Two ranks; a transfer of n takes n seconds at a byte per second.
struct Pair {
  std::vector<int32_t> counts;
  std::vector<char> memory = std::vector<char>(64);
  moira_exchange exchange{};

  Result<int64_t> start(Communicator &ranks, int direction, int32_t n) {
    counts = {0, n, n, 0};
    exchange.placement = {2, 1, 1, 1};
    exchange.direction = direction;
    exchange.chunks = 1;
    exchange.counts = counts.data();
    exchange.home = memory.data();
    exchange.away = memory.data() + 32;
    exchange.row_bytes = 1;
    return ranks.exchange(moira_plan{}, exchange);
  }
};

constexpr int transfers[] = {1, 3, 3, 2};
} // namespace

/// FasterMoE's schedule: S = R = [1, 3, 3, 2], C = [4, 4, 4, 4].
TEST(VirtualClock, TimelineOfFasterMoE) {
  onVirtualClock(Topology::uniform(2, 1, 0), [](Communicator &ranks) -> Status {
    VirtualClock &clock = *ranks.clock();
    Pair there[4], back[4];
    int64_t sent[4], returned[4];
    for (int i = 0; i < 4; ++i)
      sent[i] = *there[i].start(ranks, MOIRA_TO_EXPERTS, transfers[i]);
    std::vector<double> endC, endR;
    for (int i = 0; i < 4; ++i) {
      MOIRA_RETURN_IF_ERROR(ranks.wait(sent[i]));
      clock.add(4);
      endC.push_back(clock.seconds());
      returned[i] = *back[i].start(ranks, MOIRA_TO_TOKENS, transfers[i]);
    }
    for (int i = 0; i < 4; ++i) {
      MOIRA_RETURN_IF_ERROR(ranks.wait(returned[i]));
      endR.push_back(ranks.endOf(returned[i]));
    }
    EXPECT_EQ(endC, (std::vector<double>{5, 9, 13, 17}));
    EXPECT_EQ(endR, (std::vector<double>{10, 13, 16, 19}));
    EXPECT_EQ(clock.seconds(), 19);

    // One after the other.
    for (int i = 0; i < 4; ++i) {
      MOIRA_RETURN_IF_ERROR(
          ranks.wait(*there[i].start(ranks, MOIRA_TO_EXPERTS, transfers[i])));
      clock.add(4);
      MOIRA_RETURN_IF_ERROR(
          ranks.wait(*back[i].start(ranks, MOIRA_TO_TOKENS, transfers[i])));
    }
    EXPECT_EQ(clock.seconds(), 19 + 34);
    EXPECT_NEAR(34.0 / 19, 1.789, 1e-3);
    return Status();
  });
}

TEST(VirtualClock, OneChunkGainsNothing) {
  onVirtualClock(Topology::uniform(2, 1, 0), [](Communicator &ranks) -> Status {
    Pair there, back;
    MOIRA_RETURN_IF_ERROR(ranks.wait(*there.start(ranks, MOIRA_TO_EXPERTS, 9)));
    ranks.clock()->add(16);
    MOIRA_RETURN_IF_ERROR(ranks.wait(*back.start(ranks, MOIRA_TO_TOKENS, 9)));
    EXPECT_EQ(ranks.clock()->seconds(), 34);
    return Status();
  });
}

/// Gradients of rows travel beside products of weights, whose gradients are
/// added up beside what follows.
TEST(VirtualClock, SumsOverlapWithTheWayBack) {
  onVirtualClock(Topology::uniform(2, 1, 0), [](Communicator &ranks) -> Status {
    VirtualClock &clock = *ranks.clock();
    Pair rows;
    int64_t back = *rows.start(ranks, MOIRA_TO_TOKENS, 3); // 0 to 3
    clock.add(4);
    float whole[2] = {1, 2}, local = 0;
    moira_reduce reduce{};
    reduce.placement = {2, 1, 0, 1};
    reduce.whole = whole;
    reduce.local = &local;
    reduce.count = 1;
    reduce.dtype = MOIRA_F32;
    int64_t weights = *ranks.reduceWeights(moira_plan{}, reduce); // 4 to 8
    clock.add(2);
    MOIRA_RETURN_IF_ERROR(ranks.wait(back));
    EXPECT_EQ(clock.seconds(), 6);
    float shared[2] = {1, 2};
    // To each its half, and back.
    int64_t sum = *ranks.startAllReduce(shared, shared, 2, MOIRA_F32);
    MOIRA_RETURN_IF_ERROR(ranks.wait(weights));
    EXPECT_EQ(clock.seconds(), 8);
    clock.add(1);
    MOIRA_RETURN_IF_ERROR(ranks.wait(sum)); // 8 to 16
    EXPECT_EQ(clock.seconds(), 16);
    EXPECT_EQ(local, 2 * whole[ranks.rank()]);
    EXPECT_EQ(shared[1], 4);
    return Status();
  });
}

/// The slowest rank's compute holds up the others, and latency counts.
TEST(VirtualClock, RanksWaitForTheSlowest) {
  onVirtualClock(Topology::uniform(4, 100, 0.5),
                 [](Communicator &ranks) -> Status {
                   ranks.clock()->add(ranks.rank() == 2 ? 7 : 1);
                   MOIRA_RETURN_IF_ERROR(ranks.barrier());
                   // Rank 2's links carry three messages of a byte each way,
                   // rank 0's the second of both.
                   EXPECT_NEAR(ranks.clock()->seconds(),
                               ranks.rank() == 0 ? 7.52 : 7.53, 1e-9);
                   return Status();
                 });
}

/// The same times whatever the threads do, with both exchanges, and values as
/// ever.
TEST(VirtualClock, RepeatsExactly) {
  Result<Topology> cluster = Topology::parse(R"({
    "nodes": 4, "ranks_per_node": 2,
    "intra": {"bandwidth": 1e6, "latency": 1e-5},
    "inter": {"bandwidth": 1e5, "latency": 1e-4, "per": "node"}})");
  ASSERT_TRUE(cluster.ok());
  std::vector<std::vector<double>> times(5, std::vector<double>(8));
  for (std::vector<double> &run : times)
    onVirtualClock(*cluster, [&](Communicator &ranks) -> Status {
      ExchangeCase test;
      test.experts = 8;
      test.degree = 2;
      for (int algorithm : {0, 1}) {
        test.algorithm = algorithm;
        ranks.clock()->add(1e-3 * (ranks.rank() % 3));
        MOIRA_RETURN_IF_ERROR(ranks.beginStep());
        MOIRA_RETURN_IF_ERROR(ranks.endStep(testExchange(ranks, test)));
      }
      MOIRA_RETURN_IF_ERROR(testCollectives(ranks));
      run[ranks.rank()] = ranks.clock()->seconds();
      return Status();
    });
  for (const std::vector<double> &run : times)
    EXPECT_EQ(run, times[0]);
  EXPECT_GT(times[0][0], 0);
}

TEST(VirtualClock, FailuresEndAndTheNextStepIsTimed) {
  std::vector<Status> outcomes(3);
  onVirtualClock(
      Topology::uniform(3, 1, 0), [&](Communicator &ranks) -> Status {
        Status mine = ranks.beginStep();
        if (mine.ok() && ranks.rank() == 1)
          mine = Status(MOIRA_FAILED, "no");
        outcomes[ranks.rank()] = ranks.endStep(mine);
        MOIRA_RETURN_IF_ERROR(ranks.beginStep());
        ranks.clock()->add(5);
        Status status = ranks.endStep(Status());
        EXPECT_EQ(ranks.clock()->seconds(), 7); // two messages of a byte
        return status;
      });
  for (const Status &outcome : outcomes)
    EXPECT_EQ(outcome.message, "rank 1: no");
}

TEST(VirtualClock, CountsCpuTime) {
  auto network = std::make_shared<VirtualNetwork>(Topology::uniform(1, 1, 0));
  VirtualClock clock(network, 1000);
  auto work = [] {
    volatile double sum = 0;
    for (int i = 0; i < 2000000; ++i)
      sum = sum + std::sqrt(i);
  };
  clock.resume();
  work();
  clock.pause();
  double once = clock.seconds();
  EXPECT_GT(once, 1000 * 1e-4);
  work();
  EXPECT_EQ(clock.seconds(), once);
}

//===----------------------------------------------------------------------===//
// Traces
//===----------------------------------------------------------------------===//

TEST(Trace, EventsAndMessagesOfAnExchange) {
  std::vector<std::shared_ptr<TraceRecorder>> traces;
  for (int rank = 0; rank < 2; ++rank)
    traces.push_back(std::make_shared<TraceRecorder>(rank));
  onVirtualClock(
      Topology::uniform(2, 1, 0),
      [](Communicator &ranks) -> Status {
        Pair there, back;
        MOIRA_RETURN_IF_ERROR(
            ranks.wait(*there.start(ranks, MOIRA_TO_EXPERTS, 3)));
        ranks.clock()->add(2);
        return ranks.wait(*back.start(ranks, MOIRA_TO_TOKENS, 3));
      },
      traces);
  std::vector<TraceEvents> events = {traces[0]->events(), traces[1]->events()};
  ASSERT_EQ(events[1].events.size(), 2u);
  EXPECT_EQ(events[1].events[0].name, "exchange to experts, layer 0, chunk 0");
  EXPECT_EQ(events[1].events[1].begin, 5);
  EXPECT_EQ(events[1].events[1].end, 8);

  auto json = nlohmann::json::parse(toChromeTrace(events));
  int slices = 0;
  std::multiset<std::string> sent, received;
  for (const auto &event : json.at("traceEvents")) {
    std::string kind = event.at("ph");
    if (kind == "X") {
      ++slices;
      EXPECT_EQ(event.at("dur"), 3e6);
      EXPECT_EQ(event.at("tid"), 1);
    } else if (kind == "s") {
      sent.insert(event.at("id"));
    } else if (kind == "f") {
      received.insert(event.at("id"));
    }
  }
  EXPECT_EQ(slices, 4);
  EXPECT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent, received);
  EXPECT_EQ(std::set<std::string>(sent.begin(), sent.end()).size(), 4u);
}

TEST(Trace, NamesThatAreNoText) {
  TraceEvents events;
  events.events.push_back({"a \"b\"\n\xff", TraceQueue::Compute, 1, 2});
  auto json = nlohmann::json::parse(toChromeTrace({events}));
  EXPECT_EQ(json.at("traceEvents").size(), 4u);
  EXPECT_EQ(nlohmann::json::parse(toChromeTrace({})).at("traceEvents").size(),
            0u);
}
