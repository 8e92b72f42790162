// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of equal sizes allocate nothing once one has run, and a rank without
// memory fails the step on all. A program of its own: it replaces operator new.

#include "Collective/Threads.h"

#include <atomic>
#include <cstdlib>
#include <new>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

static std::atomic<int64_t> allocations{0};
/// From so many bytes on there is no memory.
static std::atomic<size_t> noMemoryFrom{SIZE_MAX};

void *operator new(size_t bytes) {
  allocations.fetch_add(1);
  void *memory = bytes >= noMemoryFrom ? nullptr : std::malloc(bytes);
  if (!memory)
    throw std::bad_alloc();
  return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace {
struct Layer {
  explicit Layer(Communicator &ranks, int algorithm)
      : ranks(ranks), w(ranks.ranks()), mine(w, 3), matrix(w * w), sizes(1),
        home(3 * w * rowBytes), away(3 * w * rowBytes), weights(64),
        whole(64 * w) {
    plan.degree = 2;
    plan.exchange = algorithm;
  }

  Status step() {
    MOIRA_RETURN_IF_ERROR(ranks.beginStep());
    return ranks.endStep(run());
  }

  Status run() {
    moira_gather gather{};
    gather.placement = {w, 1, 0, 1};
    gather.local = weights.data();
    gather.whole = whole.data();
    gather.bytes = weights.size();
    MOIRA_RETURN_IF_ERROR(finish(ranks.gatherWeights(plan, gather)));
    MOIRA_RETURN_IF_ERROR(
        ranks.gatherCounts(0, w, mine.data(), RankRecord(), matrix.data()));
    moira_exchange exchange{};
    exchange.placement = {w, 1, 1, 1};
    exchange.chunks = 2;
    exchange.counts = matrix.data();
    exchange.home = home.data();
    exchange.away = away.data();
    exchange.row_bytes = rowBytes;
    for (exchange.direction = 0; exchange.direction < 2; ++exchange.direction)
      for (exchange.chunk = 0; exchange.chunk < 2; ++exchange.chunk) {
        MOIRA_RETURN_IF_ERROR(
            ranks.receiveSizes(plan, exchange, sizes.data()).status());
        MOIRA_RETURN_IF_ERROR(finish(ranks.exchange(plan, exchange)));
      }
    moira_reduce reduce{};
    reduce.placement = gather.placement;
    reduce.whole = whole.data();
    reduce.local = weights.data();
    reduce.count = static_cast<int64_t>(weights.size()) / 4;
    reduce.dtype = MOIRA_F32;
    MOIRA_RETURN_IF_ERROR(finish(ranks.reduceWeights(plan, reduce)));
    float sum[5] = {};
    return ranks.allReduce(sum, 5, MOIRA_F32, Reduction::Sum);
  }

  Status finish(const Result<int64_t> &ticket) {
    return ticket.ok() ? ranks.wait(*ticket) : ticket.status();
  }

  static constexpr int64_t rowBytes = 20;
  Communicator &ranks;
  int w;
  moira_plan plan{};
  std::vector<int32_t> mine, matrix, sizes;
  std::vector<char> home, away, weights, whole;
};
} // namespace

TEST(Allocation, SteadyStepsAllocateNothing) {
  for (int algorithm : {0, 1}) {
    CommunicatorOptions options;
    options.ranksPerNode = 2;
    std::atomic<int64_t> during{0};
    expectRanks(4, options, [&](Communicator &ranks) -> Status {
      Layer layer(ranks, algorithm);
      for (int i = 0; i < 20; ++i)
        MOIRA_RETURN_IF_ERROR(layer.step());
      MOIRA_RETURN_IF_ERROR(ranks.barrier());
      int64_t before = allocations;
      for (int i = 0; i < 50; ++i)
        MOIRA_RETURN_IF_ERROR(layer.step());
      MOIRA_RETURN_IF_ERROR(ranks.barrier());
      during += allocations - before;
      return ranks.barrier();
    });
    EXPECT_EQ(during, 0);
  }
}

TEST(Allocation, RankWithoutMemoryFailsTheStepOnAll) {
  std::vector<Status> outcomes(4);
  CommunicatorOptions options;
  options.ranksPerNode = 2;
  expectRanks(4, options, [&](Communicator &ranks) -> Status {
    std::vector<char> mine(1 << 20), all(4 << 20);
    Status status = ranks.beginStep();
    if (status.ok())
      status = ranks.barrier(); // all have their memory
    if (ranks.rank() == 0)
      noMemoryFrom = 100000;
    if (status.ok())
      status = ranks.barrier();
    if (status.ok()) // which stages
      status = ranks.reduceScatter(all.data(), mine.data(), 1 << 18, MOIRA_F32,
                                   Reduction::Sum);
    outcomes[ranks.rank()] = ranks.endStep(status);
    noMemoryFrom = SIZE_MAX;
    MOIRA_RETURN_IF_ERROR(ranks.beginStep());
    return ranks.endStep(ranks.reduceScatter(all.data(), mine.data(), 1 << 18,
                                             MOIRA_F32, Reduction::Sum));
  });
  for (const Status &outcome : outcomes) {
    EXPECT_EQ(outcome.code, MOIRA_OUT_OF_MEMORY);
    EXPECT_EQ(outcome.message, outcomes[0].message);
    EXPECT_NE(outcome.message.find("reduce-scatter: out of memory"),
              std::string::npos)
        << outcome.message;
  }
}
