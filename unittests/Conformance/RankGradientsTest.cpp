// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients on many grids, against those of one rank with the same token
// blocks: integers bit for bit, real numbers within rounding, and between plans
// bit for bit where docs/ranks.md says so. A few grids by default, all of them
// with MOIRA_RANKS_ALL set.

#include "Conformance/GradientComparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

using namespace moira;
using namespace moira::conformance;
using runtime::PlanOptions;
using runtime::Shape;
using runtime::TrafficKind;

namespace {

class RankGradients : public testing::TestWithParam<GradientGrid> {};

bool runsAll() { return std::getenv("MOIRA_RANKS_ALL") != nullptr; }

/// Unit u in slot u by default; then other orders, and replicas where there is
/// room.
std::vector<std::vector<int32_t>> tablesFor(const GradientGrid &grid) {
  int slots = grid.slots(), units = grid.experts * grid.shards();
  std::vector<int32_t> reversed(grid.ranks * slots, -1);
  for (int u = 0; u < units; ++u)
    reversed[reversed.size() - 1 - u] = u;
  std::vector<std::vector<int32_t>> tables{{}, reversed};
  if (grid.spare == 0)
    return tables;
  // The units in order, and each rank one more of the next rank's.
  std::vector<int32_t> replicas(grid.ranks * slots, -1);
  int own = slots - grid.spare;
  for (int p = 0; p < grid.ranks; ++p) {
    for (int l = 0; l < own; ++l)
      replicas[p * slots + l] = p * own + l;
    replicas[p * slots + own] = (p + 1) * own % units;
  }
  tables.push_back(replicas);
  return tables;
}

} // namespace

/// Bytes that a rank receives in a sum of n numbers.
static int64_t sumBytes(int64_t n, int rank, int ranks) {
  int64_t own = n * (rank + 1) / ranks - n * rank / ranks;
  return 4 * ((ranks - 1) * own + n - own);
}

/// The closed forms of docs/ranks.md: what the way back receives.
static void expectTraffic(const GradientGrid &grid, const GradientLayer &layer,
                          const GradientRanks &ranks) {
  int64_t w = grid.ranks, s = grid.shards(), r = grid.copies;
  int64_t e = grid.experts, h = layer.hidden;
  int64_t cut = e * (2 * h * layer.features + h + layer.outFeatures * h);
  int64_t own = std::max<int64_t>(1, e / w);
  int64_t whole = s > 1 ? 1 : 0; // where r >= 1 others have the same
  int64_t weights =
      r == 0 ? cut * (w - 1) / w + own * (w - 1) * layer.outFeatures
             : (s / r - 1) * cut / w + whole * (s - 1) * layer.outFeatures;
  for (int rank = 0; rank < grid.ranks; ++rank) {
    const runtime::Traffic &there = ranks.traffic(rank, false),
                           &back = ranks.traffic(rank, true);
    auto rows = [](const runtime::Traffic &traffic, TrafficKind kind,
                   int64_t width) {
      EXPECT_EQ(traffic[kind].bytesReceived % (4 * width), 0);
      return traffic[kind].bytesReceived / (4 * width);
    };
    // As many rows as there, with the widths of the results and of x.
    EXPECT_EQ(rows(back, TrafficKind::RowsToExperts, layer.outFeatures),
              rows(there, TrafficKind::RowsToExperts, layer.features));
    EXPECT_EQ(rows(back, TrafficKind::RowsToTokens, layer.features),
              rows(there, TrafficKind::RowsToTokens, layer.outFeatures));
    EXPECT_EQ(back[TrafficKind::Gradients].bytesReceived, 4 * weights);
    // Weights again, but for the biases unless products are computed again.
    // Small panels are wider than their matrices.
    int64_t biases = grid.recompute ? 0 : e * h + own * w * layer.outFeatures;
    int64_t most = there[TrafficKind::Weights].bytesReceived;
    if (s == 1 && r == 0)
      EXPECT_EQ(back[TrafficKind::Weights].bytesReceived,
                most - 4 * biases * (w - 1) / w);
    else
      EXPECT_LE(back[TrafficKind::Weights].bytesReceived, most);
    // The gradients of the router and of the bias travel together.
    EXPECT_EQ(
        back[TrafficKind::Sums].bytesReceived,
        sumBytes(e * layer.features + layer.outFeatures, rank, grid.ranks));
    EXPECT_EQ(there[TrafficKind::Sums].bytesReceived,
              sumBytes(1, rank, grid.ranks));
  }
}

/// Steps of every plan.
static void runPlans(const GradientGrid &grid, const GradientLayer &layer,
                     const std::vector<int32_t> &tokens,
                     const GradientStep &expected, GradientRanks &ranks) {
  double tolerance = layer.integers ? 0 : 2e-5;
  std::vector<GradientStep> first;
  for (const std::vector<int32_t> &table : tablesFor(grid))
    for (int degree : {1, 3})
      for (int exchange : {0, 1}) {
        SCOPED_TRACE(concat("degree ", degree, ", exchange ", exchange,
                            ", table ", table.empty() ? "none" : "given"));
        ranks.setPlan(PlanOptions{degree, exchange, table});
        ranks.bind(layer);
        std::vector<GradientStep> got = ranks.run(layer, tokens);
        EXPECT_EQ(compareAll(grid, table, layer, expected, got, tolerance), "");
        if (table.empty() && exchange == 0 && grid.spare == 0)
          expectTraffic(grid, layer, ranks);
        // Again: no order depends on time.
        if (degree == 3)
          EXPECT_EQ(sameBits(got, ranks.run(layer, tokens), true), "");
        if (first.empty())
          first = got;
        bool hasReplicas = grid.spare > 0 && !table.empty();
        if (!hasReplicas) {
          EXPECT_EQ(sameBits(first, got, table.empty()), "");
          EXPECT_EQ(sameUnits(grid, {}, first, table, got), "");
        }
      }
}

TEST_P(RankGradients, AreThoseOfOneRank) {
  GradientGrid grid = GetParam();
  CompileOptions options;
  options.gradients = true;
  options.recompute = grid.recompute;
  options.hiddenBlocks = grid.shards();
  for (bool integers : {true, false}) {
    SCOPED_TRACE(integers ? "integers" : "real numbers");
    GradientLayer layer = layerFor(grid, integers);
    CompileOptions alone = options, together = options;
    alone.tokenBlocks = grid.ranks;
    together.ranks = grid.ranks;
    together.copies = grid.copies;
    together.groups = grid.groups;
    together.spareSlots = grid.spare;
    auto one = compileText(layer.print(), alone);
    auto many = compileText(layer.print(), together);
    ASSERT_TRUE(one && many);
    GradientRanks reference(one, 1), ranks(many, grid.ranks, 2);
    reference.bind(layer);
    for (const std::vector<int32_t> &tokens : tokenCases(grid.ranks)) {
      SCOPED_TRACE(concat(std::accumulate(tokens.begin(), tokens.end(), 0),
                          " tokens, ", tokens[0], " on rank 0"));
      std::vector<GradientStep> expected =
          reference.run(layer, tokens, /*blocks=*/true);
      runPlans(grid, layer, tokens, expected[0], ranks);
    }
  }
}

/// Two steps on each rank, and their ways back in any order.
TEST(RanksResiduals, OfAnotherStepAreAnErrorOnAllRanks) {
  GradientGrid grid{2, 2, 1};
  GradientLayer layer = layerFor(grid, true);
  CompileOptions options;
  options.gradients = true;
  options.ranks = 2;
  auto program = compileText(layer.print(), options);
  ASSERT_TRUE(program);
  GradientRanks ranks(program, 2);
  ranks.bind(layer);
  std::vector<std::vector<std::string>> messages(2);
  std::vector<std::vector<Outputs>> gradients(2);
  auto run = [&](int rank) {
    runtime::Session &session = ranks.session(rank);
    std::vector<float> x(5 * layer.features), dy(5 * layer.outFeatures, 1);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(layer.value(0, int64_t(i) + 100 * rank));
    float one = 1;
    std::vector<runtime::TensorView> inputs{
        {runtime::DataType::F32, {5, layer.features}, x.data()}};
    std::vector<runtime::TensorView> seeds{
        {runtime::DataType::F32, {}, &one},
        {runtime::DataType::F32, {5, layer.outFeatures}, dy.data()}};
    std::vector<std::shared_ptr<const runtime::Residuals>> handles(2);
    for (auto &handle : handles) {
      std::vector<runtime::ResultTensor> results;
      Status status = session.forward("main", inputs, results, handle);
      EXPECT_TRUE(status.ok()) << status.message;
    }
    // Together, apart, and together again.
    for (int handle : {1, rank, 0, 1}) {
      std::vector<runtime::ResultTensor> results;
      Status status = session.backward(*handles[handle], seeds, results);
      messages[rank].push_back(status.message);
      gradients[rank].emplace_back();
      for (const runtime::ResultTensor &result : results) {
        int64_t bytes = 4;
        for (int64_t size : result.shape)
          bytes *= size;
        auto *data = static_cast<const unsigned char *>(result.data);
        gradients[rank].back().push_back(
            {result.dtype, result.shape, {data, data + bytes}});
      }
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (int rank : {0, 1}) {
    ASSERT_EQ(messages[rank].size(), 4u);
    EXPECT_NE(messages[rank][1].find("expected residuals of the same forward "
                                     "step and plan on all ranks"),
              std::string::npos)
        << messages[rank][1];
    for (int way : {0, 2, 3}) {
      EXPECT_EQ(messages[rank][way], "");
      EXPECT_EQ(difference(gradients[rank][0], gradients[rank][way]), "");
    }
  }
  EXPECT_EQ(messages[0][1], messages[1][1]);
}

static std::vector<GradientGrid> grids() {
  std::vector<GradientGrid> cases;
  if (!runsAll())
    // Every rank count, number of shards, r, schedule, layout, replicas and
    // recomputation at least once.
    return {{2, 4, 1},
            {2, 1, 2, true, true},
            {3, 12, 0, false, true},
            {4, 2, 1, true},
            {4, 1, 2, false, true, 0, true},
            {4, 4, 1, false, false, 1},
            {8, 2, 2, false, false, 1},
            {8, 8, 0, true, false, 0, true},
            {8, 1, 8}};
  for (int ranks : {2, 3, 4, 8})
    for (int experts : {1, 2, 4, 8, 12}) {
      if (experts % ranks != 0 && ranks % experts != 0)
        continue;
      int shards = std::max(1, ranks / experts);
      for (int copies = 0; copies <= shards; ++copies)
        for (int kind = 0; kind < 16; ++kind)
          if (copies == 0 || shards % copies == 0)
            cases.push_back({ranks, experts, copies, kind % 2 == 1,
                             kind / 2 % 2 == 1, kind / 4 % 2, kind / 8 == 1});
    }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankGradients, testing::ValuesIn(grids()),
                         [](const auto &info) {
                           const GradientGrid &grid = info.param;
                           return concat(
                               "W", grid.ranks, "E", grid.experts, "r",
                               grid.copies, grid.groups ? "groups" : "equal",
                               grid.padded ? "padded" : "ragged", "spare",
                               grid.spare, grid.recompute ? "recompute" : "");
                         });
