// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulator against the runtime itself on the virtual clock.

#include "Cost/World.h"
#include "collective/Communicator.h"
#include "collective/InProcess.h"
#include "collective/VirtualClock.h"
#include "cost/CollectiveCost.h"
#include "placement/Shadowing.h"

#include <gtest/gtest.h>

#include <thread>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// One rank's forward step as generated code asks for it.
class Rank {
public:
  Rank(Communicator &ranks, const LayerShape &shape, const LayerPlan &plan,
       const ComputeTimes &times, const std::vector<int32_t> &counts,
       const std::vector<int32_t> &table, const std::vector<int32_t> &shadowed)
      : ranks(ranks), shape(shape), plan(plan), times(times), counts(counts),
        shadowed(shadowed), clock(*ranks.clock()) {
    chosen.degree = plan.degree;
    chosen.exchange = plan.exchange;
    if (!table.empty()) {
      chosen.slots = shape.slots;
      chosen.slot_table = table.data();
    }
    (void)placement.set({shape.experts, shape.shards, plan.copies, shape.slots},
                        chosen.slot_table, shape.ranks);
  }

  Status step() {
    MOIRA_RETURN_IF_ERROR(ranks.beginStep());
    double begin = clock.seconds();
    Status status = run();
    seconds = clock.seconds() - begin;
    return ranks.endStep(status);
  }
  double seconds = 0;

private:
  Result<int64_t> start(int direction, int64_t chunk, int64_t rowBytes) {
    moira_exchange exchange = describe(direction, chunk);
    exchange.row_bytes = rowBytes;
    exchange.home = home.data();
    exchange.away = away.data();
    return ranks.exchange(chosen, exchange);
  }
  moira_exchange describe(int direction, int64_t chunk) {
    moira_exchange exchange{};
    exchange.placement = placement.constants();
    exchange.direction = direction;
    exchange.schedule = plan.schedule;
    exchange.chunk = chunk;
    exchange.chunks = ranks.chunks(chosen, plan.schedule);
    exchange.counts = counts.data();
    exchange.home_rows = int64_t(home.size()) /
                         std::max<int64_t>(shape.partialBytes, 1) /
                         std::max(plan.copies, 1);
    return exchange;
  }

  Status sendShadows(const std::vector<int32_t> &base) {
    for (int32_t unit : shadowed)
      for (const WeightShape &weight : shape.weights) {
        local.resize(
            std::max<size_t>(local.size(), shape.slots * weight.bytes));
        ShadowMove move;
        move.placement = placement.constants();
        move.unit = unit;
        move.lasting = base.data();
        move.slots = local.data();
        move.bytes = weight.bytes;
        MOIRA_RETURN_IF_ERROR(ranks.moveShadow(chosen, move).status());
      }
    return Status();
  }

  Status run() {
    const int32_t *mine = counts.data() + ranks.rank() * shape.experts;
    int64_t own = 0;
    for (int e = 0; e < shape.experts; ++e)
      own += mine[e];
    int64_t all = 0;
    for (int32_t n : counts)
      all += n;
    home.resize((own + 1) * shape.partialBytes * std::max(plan.copies, 1));
    away.resize((all + 1) * shape.partialBytes);
    std::vector<int32_t> base = shape.evenTable();
    if (!shape.lateShadows)
      MOIRA_RETURN_IF_ERROR(sendShadows(base));
    std::vector<int64_t> gathers;
    for (const WeightShape &weight : shape.weights) {
      moira_gather gather{};
      gather.placement = placement.constants();
      gather.bytes = weight.bytes;
      local.resize(std::max<size_t>(local.size(), shape.slots * weight.bytes));
      whole.resize(std::max<size_t>(
          whole.size(), shape.units() * (shape.slots + 1) * weight.bytes));
      gather.local = local.data();
      gather.whole = whole.data();
      if (plan.copies == 0 || !weight.replicated) {
        Result<int64_t> ticket = ranks.gatherWeights(chosen, gather);
        MOIRA_RETURN_IF_ERROR(ticket.status());
        gathers.push_back(*ticket);
      }
    }
    clock.add(times.gate(own));
    std::vector<int32_t> matrix(counts.size());
    MOIRA_RETURN_IF_ERROR(ranks.gatherCounts(0, shape.experts, mine,
                                             RankRecord(), matrix.data()));
    if (shape.lateShadows)
      MOIRA_RETURN_IF_ERROR(sendShadows(base));
    clock.add(times.dispatch(own));
    double product = times.call(false);
    if (plan.copies == 0) {
      for (int64_t ticket : gathers)
        MOIRA_RETURN_IF_ERROR(ranks.wait(ticket));
      for (int e = 0; e < shape.experts; ++e)
        product += mine[e] ? times.group(mine[e], false) : 0;
      clock.add(product + times.combine(own));
      return Status();
    }
    int64_t n = ranks.chunks(chosen, plan.schedule);
    std::vector<int64_t> there, back;
    for (int64_t i = 0; i < n; ++i) {
      Result<int64_t> ticket = start(MOIRA_TO_EXPERTS, i, shape.rowBytes);
      MOIRA_RETURN_IF_ERROR(ticket.status());
      there.push_back(*ticket);
    }
    for (int64_t ticket : gathers)
      MOIRA_RETURN_IF_ERROR(ranks.wait(ticket));
    std::vector<int32_t> sizes(shape.slots);
    for (int64_t i = 0; i < n; ++i) {
      MOIRA_RETURN_IF_ERROR(ranks.wait(there[i]));
      MOIRA_RETURN_IF_ERROR(
          ranks
              .receiveSizes(chosen, describe(MOIRA_TO_EXPERTS, i), sizes.data())
              .status());
      double seconds = product;
      for (int32_t rows : sizes)
        seconds += rows ? times.group(rows, false) / plan.copies : 0;
      clock.add(seconds);
      Result<int64_t> ticket =
          start(MOIRA_TO_TOKENS, i,
                plan.copies > 1 ? shape.partialBytes : shape.resultBytes);
      MOIRA_RETURN_IF_ERROR(ticket.status());
      back.push_back(*ticket);
    }
    for (int64_t ticket : back)
      MOIRA_RETURN_IF_ERROR(ranks.wait(ticket));
    clock.add(times.combine(own * plan.copies));
    return Status();
  }

  Communicator &ranks;
  const LayerShape &shape;
  const LayerPlan &plan;
  const ComputeTimes &times;
  const std::vector<int32_t> &counts;
  const std::vector<int32_t> &shadowed; ///< units
  VirtualClock &clock;
  moira_plan chosen{};
  Placement placement;
  std::vector<char> home, away, local, whole;
};

/// Seconds of the slowest rank of a real step.
double execute(const Topology &topology, const LayerShape &shape,
               const LayerPlan &plan, const ComputeTimes &times,
               const std::vector<int32_t> &counts,
               const std::vector<int32_t> &table = {},
               const std::vector<int32_t> &shadowed = {}) {
  auto network = std::make_shared<VirtualNetwork>(topology);
  auto ends = makeInProcess(shape.ranks);
  std::vector<double> seconds(shape.ranks);
  std::vector<Status> outcomes(shape.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks; ++rank)
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.clock = std::make_shared<VirtualClock>(network, 0);
      options.ranksPerNode = topology.ranksPerNode();
      auto made = Communicator::create(std::move(ends[rank]), options);
      Rank one(**made, shape, plan, times, counts, table, shadowed);
      outcomes[rank] = one.step();
      seconds[rank] = one.seconds;
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << outcome.message;
  return *std::max_element(seconds.begin(), seconds.end());
}

void compare(const Topology &topology, const LayerShape &shape,
             const std::vector<int32_t> &counts) {
  TiledKernel times;
  Calibration costs = calibrate(times);
  auto model = LayerModel::create(shape, topology, costs);
  ASSERT_TRUE(model.ok()) << model.status().message;
  LayerSimulator simulator(shape, topology, times);
  for (const LayerPlan &plan : allPlans(**model)) {
    if (plan.shadows > 0)
      continue;
    Result<double> simulated = simulator.run(plan, counts.data(), nullptr);
    ASSERT_TRUE(simulated.ok()) << simulated.status().message;
    double executed = execute(topology, shape, plan, times, counts);
    EXPECT_NEAR(*simulated, executed, 1e-9 * executed)
        << "r " << plan.copies << " schedule " << plan.schedule << " degree "
        << plan.degree << " exchange " << plan.exchange;
  }
}
} // namespace

TEST(Simulator, IsTheRuntimeOnTheVirtualClock) {
  for (const char *name : {"uniform", "zipf:1", "one-hot"})
    compare(cluster(2, 4, 1e9, 2e8), layerShape(8, 32, 16, 32),
            loads(name, 8, 32, 120, 2));
}

TEST(Simulator, WithShardsOfExperts) {
  for (const char *name : {"uniform", "one-hot"})
    compare(cluster(4, 2, 1e9, 2e8, "direct", "rank", 1e-6),
            layerShape(8, 2, 16, 64), loads(name, 8, 2, 111, 1));
}

TEST(Simulator, UnevenNodesAndNothingToDo) {
  Topology uneven = *Topology::parse(
      R"({"nodes": [2, 1], "intra": {"bandwidth": 1e9, "latency": 1e-6},
          "inter": {"bandwidth": 1e8}, "fabric": {"bandwidth": 1e8}})");
  compare(uneven, layerShape(3, 3, 8, 8), loads("zipf:2", 3, 3, 7, 1));
  compare(uneven, layerShape(3, 3, 8, 8), std::vector<int32_t>(9));
  compare(Topology::uniform(1, 1, 0), layerShape(1, 4, 8, 8),
          loads("uniform", 1, 4, 10, 2));
}

/// An expert that two ranks hold, and one in a spare slot.
TEST(Simulator, ReadsSlotTables) {
  Topology topology = Topology::uniform(2, 1e8, 1e-6);
  LayerShape shape = layerShape(2, 4, 16, 16, 1);
  std::vector<int32_t> table = {0, 1, 3, 2, 3, -1};
  std::vector<int32_t> counts = {5, 0, 7, 9, 1, 2, 3, 4};
  TiledKernel times;
  LayerSimulator simulator(shape, topology, times);
  for (int degree : {1, 3}) {
    LayerPlan plan{1, MOIRA_SCHEDULE_EQUAL, degree, 0, 0};
    double executed = execute(topology, shape, plan, times, counts, table);
    EXPECT_NEAR(*simulator.run(plan, counts.data(), table.data()), executed,
                1e-9 * executed);
  }
  EXPECT_EQ(simulator
                .run({1, 0, 1, 0, 0}, counts.data(),
                     std::vector<int32_t>(6, 9).data())
                .status()
                .message,
            "slot table: rank 0 slot 0: expected -1 or a unit below 4, got 9");
}

/// Weights of shadows down trees and, large ones, in parts.
TEST(Simulator, SendsShadows) {
  Topology topology = cluster(2, 4, 1e9, 2e8);
  for (auto [hidden, late] : {std::pair(16, false), std::pair(16, true),
                              std::pair(8192, false), std::pair(8192, true)}) {
    LayerShape shape = layerShape(8, 16, 16, hidden, 3);
    shape.lateShadows = late;
    EXPECT_EQ(shadowTransport(8, shape.weights[0].bytes),
              hidden == 16 ? ShadowTransport::Tree : ShadowTransport::Split);
    auto counts = loads("zipf:1.5", 8, 16, 120, 2);
    TiledKernel times;
    Calibration costs = calibrate(times);
    auto model = LayerModel::create(shape, topology, costs);
    LayerSimulator simulator(shape, topology, times);
    const Placement &base = (*model)->placement();
    std::vector<int32_t> experts = {0, 5, 15}, table;
    (*model)->setLoads(counts.data(), experts.data(), 3);
    for (int shadows : {1, 3}) {
      ASSERT_TRUE(writeShadowTable(base, experts.data(), shadows, table).ok());
      std::vector<Place> owners;
      for (int k = 0; k < shadows; ++k)
        owners.push_back(base.holder(experts[k], 0));
      LayerPlan plan{1, MOIRA_SCHEDULE_EQUAL, 2, 0, shadows};
      double executed = execute(topology, shape, plan, times, counts, table,
                                {experts.begin(), experts.begin() + shadows});
      EXPECT_NEAR(*simulator.run(plan, counts.data(), table.data(), owners),
                  executed, 1e-9 * executed);
      EXPECT_NEAR((*model)->predict(plan).seconds, executed, 0.04 * executed);
    }
  }
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

namespace {
/// Seconds of a real collective on the virtual clock, all ranks beginning at 0.
template <typename Body>
double timed(const Topology &topology, const Body &body,
             int64_t stagingBytes = int64_t(64) << 20) {
  int ranks = topology.ranks();
  auto network = std::make_shared<VirtualNetwork>(topology);
  auto ends = makeInProcess(ranks);
  std::vector<double> seconds(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.clock = std::make_shared<VirtualClock>(network, 0);
      options.stagingBytes = stagingBytes;
      auto made = Communicator::create(std::move(ends[rank]), options);
      EXPECT_TRUE(body(**made).ok());
      seconds[rank] = options.clock->seconds();
    });
  for (std::thread &thread : threads)
    thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}
} // namespace

TEST(CollectiveCost, IsTheRuntimeOnTheVirtualClock) {
  const Topology clusters[] = {cluster(2, 2, 1e6, 1e5), cluster(2, 3, 1e6, 2e5),
                               Topology::uniform(17, 1e6, 1e-4),
                               Topology::uniform(1, 1, 0)};
  for (const Topology &topology : clusters)
    for (int64_t count : {0, 1, 5, 1000}) {
      int ranks = topology.ranks();
      CollectiveCost whole(topology), blocks(topology, 1024);
      double executed = timed(topology, [&](Communicator &group) {
        std::vector<float> data(count);
        return group.allReduce(data.data(), count, MOIRA_F32, Reduction::Sum);
      });
      EXPECT_NEAR(whole.allReduce(count, 4), executed, 1e-9 * executed);
      executed = timed(
          topology,
          [&](Communicator &group) {
            std::vector<float> data(count);
            return group.allReduce(data.data(), count, MOIRA_F32,
                                   Reduction::Sum);
          },
          1024);
      EXPECT_NEAR(blocks.allReduce(count, 4), executed, 1e-9 * executed);
      executed = timed(
          topology,
          [&](Communicator &group) {
            std::vector<double> in(count * ranks), out(count);
            return group.reduceScatter(in.data(), out.data(), count, MOIRA_F64,
                                       Reduction::Sum);
          },
          1024);
      EXPECT_NEAR(blocks.reduceScatter(count, 8), executed, 1e-9 * executed);
      executed = timed(topology, [&](Communicator &group) {
        std::vector<char> mine(count), all(count * ranks);
        return group.allGather(mine.data(), count, all.data());
      });
      EXPECT_NEAR(whole.allGather(count), executed, 1e-9 * executed);
      executed = timed(topology, [&](Communicator &group) {
        std::vector<char> data(count);
        return group.broadcast(ranks / 2, data.data(), count);
      });
      EXPECT_NEAR(whole.broadcast(ranks / 2, count), executed, 1e-9 * executed);
    }
}

TEST(CollectiveCost, TreesTakeTheirDepth) {
  Topology eight = Topology::uniform(8, 100, 0);
  CollectiveCost tree(eight);
  // The root sends three times; the last to have it got it over three hops that
  // began with its first.
  EXPECT_DOUBLE_EQ(tree.broadcast(3, 100), 3);
}
