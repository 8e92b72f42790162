// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Experts that move between ranks while they are trained, for long or for a
// step: training goes on as if they had stayed.

#include "JIT/TrainingRanks.h"

#include <array>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using Tensors = std::map<std::string, std::string>;

Tensors saved(Ranks &ranks) {
  Folder folder;
  ranks.save(folder.name(), true);
  return tensorsOf(folder.name());
}

void expectNear(const Tensors &expected, Tensors found, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto &[name, bytes] : expected) {
    ASSERT_EQ(found.count(name), 1u) << name;
    double largest = 0;
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      float wanted, got;
      std::memcpy(&wanted, bytes.data() + i, 4);
      std::memcpy(&got, found[name].data() + i, 4);
      double error =
          std::fabs(got - wanted) / std::max(0.1f, std::fabs(wanted));
      largest = std::max(largest, std::isnan(error) ? INFINITY : error);
    }
    EXPECT_LE(largest, tolerance) << name;
  }
}

void move(Ranks &ranks, const std::vector<int32_t> &table) {
  ranks.onAll(
      [&](int rank) { return ranks.sessions[rank]->moveWeights(0, table); });
}

void setShadows(Ranks &ranks, const std::vector<int32_t> &shadows) {
  for (auto &session : ranks.sessions)
    EXPECT_OK(session->setPlan(0, PlanOptions{1, 0, {}, shadows}));
}

} // namespace

/// Migrate: units change places, so that every sum is the same.
TEST(Moves, ChangeNoBitOfTraining) {
  for (int count : {2, 4}) {
    Ranks still(layer(count, 1), count), moved(layer(count, 1), count);
    for (Ranks *ranks : {&still, &moved}) {
      ranks->bind();
      ranks->train(1);
    }
    move(moved, {7, 6, 5, 4, 3, 2, 1, 0});
    for (Ranks *ranks : {&still, &moved})
      ranks->train(2);
    EXPECT_EQ(still.norm(), moved.norm());
    // Half-way: gradients are kept, and go with their experts.
    for (Ranks *ranks : {&still, &moved})
      ranks->forward(3, /*accumulate=*/true);
    move(moved, {3, 0, 1, 2, 6, 7, 4, 5});
    EXPECT_EQ(still.norm(), moved.norm());
    for (Ranks *ranks : {&still, &moved})
      ranks->onAll([&](int rank) {
        return ranks->sessions[rank]->update(UpdateOptions());
      });
    move(moved, {}); // back to the first one
    EXPECT_EQ(still.forward(9), moved.forward(9));
    EXPECT_TRUE(saved(still) == saved(moved));
  }
}

/// Expand and shrink, on ranks with spare slots, and shadows from step to step.
/// Small updates: sums are added in another order, and a router that has moved
/// far may send a token elsewhere by that. Moments tell gradients apart as
/// well.
TEST(Moves, ReplicasAndShadowsTrainAlike) {
  constexpr double rate = 1e-5;
  Ranks still(layer(2, 1), 2), moved(layer(2, 1, 2), 2);
  for (Ranks *ranks : {&still, &moved}) {
    ranks->bind();
    ranks->train(1, rate);
  }
  // Both hold experts 3 and 4.
  move(moved, {0, 1, 2, 3, 4, -1, 4, 5, 6, 7, 3, -1});
  for (Ranks *ranks : {&still, &moved})
    ranks->train(2, rate);
  EXPECT_EQ(still.forward(9).size(), moved.forward(9).size());
  expectNear(saved(still), saved(moved), 1e-4);
  // Shadows, others in each step.
  move(moved, {0, 1, 2, 3, -1, -1, 7, 6, 5, 4, -1, -1});
  for (std::vector<int32_t> shadows :
       {std::vector<int32_t>{1, 6}, {6, 1, 2}, {}, {5}, {0, 7}}) {
    for (auto &session : moved.sessions)
      EXPECT_OK(session->setPlan(
          0, PlanOptions{
                 1, 0, {0, 1, 2, 3, -1, -1, 7, 6, 5, 4, -1, -1}, shadows}));
    for (Ranks *ranks : {&still, &moved})
      ranks->train(3 + int(shadows.size()), rate);
    EXPECT_NEAR(still.norm(), moved.norm(), 1e-4 * still.norm());
  }
  expectNear(saved(still), saved(moved), 1e-3);
}

/// Shadows may change between a forward step and its way back, and between
/// steps whose gradients add up.
TEST(Moves, AWayBackHasItsOwnShadows) {
  Ranks still(layer(2, 1), 2), moved(layer(2, 1, 2), 2);
  auto gradients = [&](Ranks &ranks, bool shadows) {
    ranks.bind();
    std::vector<float> x = fractions(tokens * features, 1);
    std::vector<std::vector<std::shared_ptr<const Residuals>>> handles(2);
    for (int step = 0; step < 3; ++step) {
      if (shadows)
        setShadows(ranks, {step, 7 - step});
      ranks.onAll([&](int rank) {
        auto [begin, rows] = ranks.rowsOf(rank);
        std::vector<ResultTensor> results;
        return ranks.sessions[rank]->forward(
            "main",
            {{DataType::F32, {rows, features}, x.data() + begin * features}},
            results, handles[rank].emplace_back());
      });
    }
    for (int step : {1, 0, 2})
      ranks.onAll([&](int rank) {
        auto [begin, rows] = ranks.rowsOf(rank);
        std::vector<ResultTensor> ofInputs;
        return ranks.sessions[rank]->accumulate(
            *handles[rank][step],
            {{DataType::F32, {rows, features}, x.data() + begin * features}},
            ofInputs);
      });
    return ranks.norm();
  };
  double expected = gradients(still, false);
  EXPECT_NEAR(gradients(moved, true), expected, 1e-6 * expected);
}

TEST(Moves, RefuseWhatDoesNotFit) {
  Ranks ranks(layer(2, 1), 2);
  ranks.bind();
  std::array<Status, 2> outcomes;
  auto moveTo = [&](const std::vector<int32_t> &first,
                    const std::vector<int32_t> &second, int64_t at = 0) {
    ranks.onAll([&](int rank) {
      outcomes[rank] =
          ranks.sessions[rank]->moveWeights(at, rank == 0 ? first : second);
      return Status();
    });
    EXPECT_EQ(outcomes[0].message, outcomes[1].message);
    return outcomes[0].message;
  };
  std::vector<float> before = ranks.forward(9);
  std::vector<int32_t> table = {7, 6, 5, 4, 3, 2, 1, 0},
                       other = {0, 1, 2, 4, 3, 5, 6, 7};
  auto expectFailure = [](const std::string &message, const char *text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expectFailure(moveTo({0, 1}, {0, 1}),
                ": expected a slot table of 2 ranks with 4 slots each, got 2 "
                "places");
  expectFailure(moveTo({0, 1, 2, 3, 4, 5, 6, 6}, {0, 1, 2, 3, 4, 5, 6, 6}),
                "slot table: expected every unit somewhere, got none of expert "
                "7 shard 0");
  expectFailure(moveTo(table, table, 3),
                ": expected a layer of the program with experts on 2 ranks, "
                "got 3");
  expectFailure(moveTo(table, other),
                "expected the same tables and states on all ranks, got others "
                "on rank 1 than on rank 0");
  // Nothing has moved.
  EXPECT_EQ(ranks.forward(9), before);
  EXPECT_EQ(moveTo(table, table), "");
  EXPECT_EQ(ranks.forward(9), before);
}

TEST(Moves, EarlierHandlesAreRefused) {
  Ranks ranks(layer(2, 1), 2);
  ranks.bind();
  std::vector<float> x = fractions(5 * features, 1);
  TensorView view{DataType::F32, {5, features}, x.data()};
  std::vector<std::shared_ptr<const Residuals>> handles(2);
  ranks.onAll([&](int rank) {
    std::vector<ResultTensor> results;
    return ranks.sessions[rank]->forward("main", {view}, results,
                                         handles[rank]);
  });
  move(ranks, {7, 6, 5, 4, 3, 2, 1, 0});
  ranks.onAll([&](int rank) {
    std::vector<ResultTensor> gradients;
    Status status =
        ranks.sessions[rank]->backward(*handles[rank], {view}, gradients);
    EXPECT_NE(status.message.find("expected the parameters that the forward "
                                  "step 0 ran with"),
              std::string::npos)
        << status.message;
    return Status();
  });
}
