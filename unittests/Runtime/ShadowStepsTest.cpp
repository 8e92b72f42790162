// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions whose experts stand elsewhere from step to step: shadows and moves.

#include "Collective/Threads.h"
#include "Runtime/AdaptiveProgram.h"
#include "base/Draws.h"
#include "session/StepPlan.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <unistd.h>

#ifndef __has_feature // of clang only
#define __has_feature(name) 0
#endif
#if __has_feature(address_sanitizer)
#include <sanitizer/allocator_interface.h>
#endif

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;
constexpr int64_t rowBytes = P::features * sizeof(float);

/// A rank's session of the program; memory that nobody wrote is poison.
struct RankSession {
  explicit RankSession(Communicator &group) : group(group) {
    SessionOptions options;
    options.statisticsSteps = 1;
    options.poisonMemory = true;
    session = P::open(group, options);
    EXPECT_OK(session->setVariant("main", "r1-decode"));
  }
  Status step(int number = 0) {
    std::vector<float> x =
        P::rows(3 + (number + group.rank()) % 4,
                uint64_t(number * P::ranks + group.rank()), number % 4);
    SCOPED_TRACE(number);
    return P::run(*session, x);
  }
  /// Bytes of shadows that this rank has received since the last call.
  int64_t shadowBytes() {
    int64_t bytes = group.traffic()[TrafficKind::Shadows].bytesReceived;
    group.resetTraffic();
    return bytes;
  }
  Communicator &group;
  std::unique_ptr<Session> session;
};

PlanOptions withShadows(std::vector<int32_t> experts, int32_t degree = 1) {
  return {degree, 0, {}, std::move(experts)};
}

/// All units somewhere, in a random order; with `free` each rank's last slot
/// stays free, else some hold a second copy.
std::vector<int32_t> randomTable(Draws &draws, bool free) {
  std::vector<int32_t> units(P::experts), table;
  std::iota(units.begin(), units.end(), 0);
  for (int i = P::experts - 1; i > 0; --i)
    std::swap(units[i], units[draws.below(i + 1)]);
  for (int rank = 0; rank < P::ranks; ++rank) {
    table.push_back(units[2 * rank]);
    table.push_back(units[2 * rank + 1]);
    int64_t copy = draws.below(2 * P::experts);
    table.push_back(free || copy >= P::experts ? -1 : int32_t(copy));
  }
  return table;
}

/// Bytes that this process holds. AddressSanitizer keeps what was freed for a
/// while, so there it is asked what is in use.
int64_t heldBytes() {
#if __has_feature(address_sanitizer)
  return int64_t(__sanitizer_get_current_allocated_bytes());
#else
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * getpagesize();
#endif
}

/// Passes everything on, but for the post with this number, which fails.
class FaultyTransport final : public Transport {
public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::atomic<int> &left)
      : inner(std::move(inner)), left(left) {}

  const char *name() const override { return inner->name(); }
  int rank() const override { return inner->rank(); }
  int ranks() const override { return inner->ranks(); }
  Status post(const Batch &batch) override {
    if (left.fetch_sub(1) == 0)
      return Status(MOIRA_FAILED, "the link broke");
    return inner->post(batch);
  }
  Result<bool> test() override { return inner->test(); }
  void idle() override { inner->idle(); }
  int awaited() override { return inner->awaited(); }
  void abort(const Failure &failure) override { inner->abort(failure); }
  std::optional<Failure> failure() override { return inner->failure(); }
  bool recoverable() const override { return inner->recoverable(); }
  bool recover() override { return inner->recover(); }

private:
  std::unique_ptr<Transport> inner;
  std::atomic<int> &left;
};

} // namespace

TEST(ShadowSteps, WeightsTravelOncePerChange) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    bool owner = group.rank() == 0;
    auto expectBytes = [&](int64_t experts) {
      MOIRA_RETURN_IF_ERROR(rank.step());
      EXPECT_EQ(rank.shadowBytes(), owner ? 0 : experts * rowBytes);
      return Status();
    };
    EXPECT_OK(rank.session->setPlan(withShadows({0})));
    MOIRA_RETURN_IF_ERROR(expectBytes(2)); // of two layers
    MOIRA_RETURN_IF_ERROR(expectBytes(0));
    // Without them and back: slots have kept what they held.
    EXPECT_OK(rank.session->setPlan({}));
    MOIRA_RETURN_IF_ERROR(expectBytes(0));
    EXPECT_OK(rank.session->setPlan(withShadows({0}, 2)));
    MOIRA_RETURN_IF_ERROR(expectBytes(0));
    // Others, in one layer.
    EXPECT_OK(rank.session->setPlan(1, withShadows({1})));
    MOIRA_RETURN_IF_ERROR(expectBytes(1));
    EXPECT_OK(rank.session->setPlan(1, withShadows({0})));
    MOIRA_RETURN_IF_ERROR(expectBytes(1));
    // r = 0 needs none.
    EXPECT_OK(rank.session->setVariant("main", "r0-decode"));
    EXPECT_OK(rank.session->setPlan(withShadows({1})));
    MOIRA_RETURN_IF_ERROR(expectBytes(0));
    EXPECT_OK(rank.session->setVariant("main", "r1-decode"));
    // What one rank binds again is another version to all.
    EXPECT_OK(rank.session->setPlan(withShadows({0})));
    MOIRA_RETURN_IF_ERROR(expectBytes(0));
    if (owner) {
      std::vector<float> w = P::weights(0);
      EXPECT_OK(rank.session->bind("w0", view(w, {P::experts, P::features})));
    }
    MOIRA_RETURN_IF_ERROR(expectBytes(1));
    return Status();
  });
}

TEST(ShadowSteps, NewWeightsReachTheirShadows) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    std::vector<float> twice = P::weights(0);
    for (int k = 0; k < P::features; ++k)
      twice[k] *= 2; // of expert 0
    auto first = [&]() -> float {
      std::vector<float> x(P::features, 0.25f); // expert 0, then expert 3
      std::vector<ResultTensor> results;
      EXPECT_OK(
          rank.session->invoke("main", {view(x, {1, P::features})}, results));
      return values(results[0])[0];
    };
    EXPECT_OK(rank.session->setPlan(withShadows({0})));
    float before = first();
    if (group.rank() == 0)
      EXPECT_OK(
          rank.session->bind("w0", view(twice, {P::experts, P::features})));
    EXPECT_EQ(first(), 2 * before);
    return Status();
  });
}

/// Each step with other shadows and now and then another table, in memory that
/// does not grow. Ten thousand steps with MOIRA_RANKS_ALL set.
TEST(ShadowSteps, AnyTablesAndShadowsInFlatMemory) {
  int64_t held = 0;
  const int steps = std::getenv("MOIRA_RANKS_ALL") ? 10000 : 2000;
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    const char *variants[] = {"r1-decode", "r1-groups-prefill", "r0-decode"};
    std::vector<int32_t> tables[P::layers] = {{}, {}};
    bool free[P::layers] = {true, true};
    MemoryFigures before;
    for (int step = 0; step < steps; ++step) {
      Draws draws({3, 4}, uint32_t(step)); // alike on all ranks
      EXPECT_OK(rank.session->setVariant("main", variants[draws.below(3)]));
      int moved = step % 50 == 49 ? int(draws.below(P::layers)) : -1;
      for (int layer = 0; layer < P::layers; ++layer) {
        if (layer == moved) {
          free[layer] = draws.below(4) > 0;
          tables[layer] = randomTable(draws, free[layer]);
          MOIRA_RETURN_IF_ERROR(
              rank.session->moveWeights(layer, tables[layer]));
        }
        std::vector<int32_t> shadows;
        if (free[layer] && draws.below(3) > 0)
          shadows.push_back(int32_t(draws.below(P::experts)));
        EXPECT_OK(rank.session->setPlan(layer,
                                        PlanOptions{int32_t(1 + draws.below(3)),
                                                    int32_t(draws.below(2)),
                                                    tables[layer], shadows}));
      }
      MOIRA_RETURN_IF_ERROR(rank.step(step % 100));
      if (step == 1000) {
        before = rank.session->memory();
        if (group.rank() == 0)
          held = heldBytes();
      }
    }
    MemoryFigures after = rank.session->memory();
    EXPECT_EQ(after.workspace, before.workspace);
    EXPECT_EQ(after.parameters, before.parameters);
    if (group.rank() == 0)
      EXPECT_LE(heldBytes() - held, int64_t(1) << 20);
    return Status();
  });
}

/// A link breaks at any moment: all ranks have one error, and the next step has
/// its shadows again.
TEST(ShadowSteps, FailuresEndTheStepOfAllRanks) {
  int failures = 0;
  for (int number = 0; number < 14; ++number) {
    std::atomic<int> left{1 << 30};
    std::vector<Status> outcomes(P::ranks);
    std::vector<Status> ends = runRanks(
        P::ranks, {},
        [&](Communicator &group) {
          RankSession rank(group);
          EXPECT_OK(rank.session->setPlan(withShadows({3})));
          MOIRA_RETURN_IF_ERROR(rank.step(2));
          if (group.rank() == 1)
            left = number;
          EXPECT_OK(rank.session->setPlan(withShadows({2}))); // of rank 1
          outcomes[group.rank()] = rank.step();
          if (group.rank() == 1)
            left = 1 << 30;
          return rank.step(1);
        },
        [&](int ranks) {
          auto transports = makeInProcess(ranks);
          transports[1] =
              std::make_unique<FaultyTransport>(std::move(transports[1]), left);
          return transports;
        });
    for (int rank = 0; rank < P::ranks; ++rank) {
      EXPECT_OK(ends[rank]);
      EXPECT_EQ(outcomes[rank].message, outcomes[0].message) << number;
      EXPECT_EQ(outcomes[rank].code, outcomes[0].code);
    }
    failures += !outcomes[0].ok();
    if (number == 1)
      EXPECT_EQ(outcomes[0].message,
                "entry 'main': rank 1: shadow of expert 2, layer 0, parameter "
                "0: the link broke");
  }
  EXPECT_GE(failures, 10);
}

TEST(ShadowSteps, AFailedMoveLeavesNothingBound) {
  std::atomic<int> left{1 << 30};
  std::vector<Status> ends = runRanks(
      P::ranks, {},
      [&](Communicator &group) -> Status {
        RankSession rank(group);
        MOIRA_RETURN_IF_ERROR(rank.step());
        if (group.rank() == 1)
          left = 2; // the ranks have agreed, and voted
        std::vector<int32_t> table = {7, 6, -1, 5, 4, -1, 3, 2, -1, 1, 0, -1};
        EXPECT_ERROR(rank.session->moveWeights(0, table), MOIRA_FAILED,
                     "move of layer 0: rank 1: move of parameter 0: the link "
                     "broke");
        if (group.rank() == 1)
          left = 1 << 30;
        EXPECT_EQ(rank.session->unbound().size(), 2u);
        P::bind(*rank.session);
        MOIRA_RETURN_IF_ERROR(rank.step());
        MOIRA_RETURN_IF_ERROR(rank.session->moveWeights(0, table));
        return rank.step();
      },
      [&](int ranks) {
        auto transports = makeInProcess(ranks);
        transports[1] =
            std::make_unique<FaultyTransport>(std::move(transports[1]), left);
        return transports;
      });
  for (const Status &end : ends)
    EXPECT_OK(end);
}

TEST(ShadowSteps, RanksThatDisagreeFailTogether) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    EXPECT_OK(rank.session->setPlan(withShadows({group.rank() == 2 ? 1 : 0})));
    Status status = rank.step();
    EXPECT_NE(status.message.find("expected the same plan on all ranks, got "
                                  "another on rank 2 than on rank 0"),
              std::string::npos)
        << status.message;
    EXPECT_OK(rank.session->setPlan(withShadows({1})));
    return rank.step();
  });
}

TEST(ShadowSteps, PlansThatDoNotFitAreRefused) {
  expectRanks(P::ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    auto expectRefused = [&](int64_t layer, const PlanOptions &plan,
                             int32_t code, const char *message) {
      EXPECT_ERROR(rank.session->setPlan(layer, plan), code, message);
    };
    expectRefused(2, {}, MOIRA_NOT_FOUND,
                  "expected a layer of the program (it has 2), got 2");
    expectRefused(1, withShadows({8}), MOIRA_INVALID_ARGUMENT,
                  "layer 1: shadow: expected an expert below 8, got 8");
    expectRefused(0, withShadows({1, 1}), MOIRA_INVALID_ARGUMENT,
                  "layer 0: shadow: expected each expert once, got 1 again");
    expectRefused(0, withShadows({1, 2}), MOIRA_INVALID_ARGUMENT,
                  "layer 0: shadow: expected a free slot on rank 2 for expert "
                  "2, got none of 3");
    return rank.step();
  });
}

/// Layers that share their experts have one table and the same shadows.
TEST(ShadowSteps, SharedParametersStandInOnePlace) {
  Manifest manifest = P::manifest();
  manifest.entries[0].layers[1].cost->weights[0].parameter = 0;
  LayerPlans plans(manifest, P::ranks);
  std::vector<int32_t> table = {7, 6, -1, 5, 4, -1, 3, 2, -1, 1, 0, -1};
  Result<LayerPlans> apart = plans.with(1, PlanOptions{1, 0, table, {}});
  ASSERT_OK(apart.status());
  EXPECT_ERROR(apart->tables().status(), MOIRA_INVALID_ARGUMENT,
               "parameter 'w0': expected one slot table for layers 0 and 1, "
               "which share it, got two");
  Result<LayerPlans> together = plans.withTable(0, table);
  ASSERT_OK(together.status());
  ASSERT_OK(together->tables().status());
  EXPECT_EQ((*together->tables())[0], table);
  EXPECT_EQ(together->lastingTable(1), table);
}
