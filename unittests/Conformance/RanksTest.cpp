// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One layer on many grids. Integers: every grid and plan gives the bits of one
// rank. Real numbers: the same, where the hidden dimension is summed in as many
// blocks. A few grids by default, all of them with MOIRA_RANKS_ALL set.

#include "Conformance/Ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

namespace {

/// A grid that a layer is compiled for, once for all plans.
struct GridCase {
  int ranks, experts, copies;
  bool groups, padded;

  int shards() const { return std::max(1, ranks / experts); }
};

std::ostream &operator<<(std::ostream &stream, const GridCase &grid) {
  return stream << "W=" << grid.ranks << " E=" << grid.experts
                << " r=" << grid.copies << (grid.groups ? " groups" : " equal")
                << (grid.padded ? " padded" : " ragged");
}

class RankGrids : public testing::TestWithParam<GridCase> {};

/// Values that are exact in f32 and whose sums are not, unless integers.
double valueOf(int64_t i, bool integers) {
  int64_t number = i * 2654435761 % 1000003;
  return integers ? number % 5 - 2 : float(number % 2001 - 1000) / 997.0f;
}

Reals matrixOf(int64_t rows, int64_t cols, int64_t seed, bool integers) {
  Reals matrix(rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i)
    matrix.data[i] = valueOf(i + seed * 7919, integers);
  return matrix;
}

/// A gated layer of tokens that all prefer one expert where `skewed`.
struct Program {
  Program(const GridCase &grid, int64_t tokens, bool integers, bool skewed) {
    layer.experts = grid.experts;
    layer.features = 9;
    layer.hidden = 16; // of every number of shards here but 3
    if (16 % grid.shards() != 0)
      layer.hidden = 4 * grid.shards();
    layer.outFeatures = 7;
    layer.router.score = Score::Softmax;
    layer.router.topK = std::min(2, grid.experts);
    layer.gated = true;
    layer.activation = Activation::Relu;
    layer.padded = grid.padded;
    if (grid.padded)
      layer.capacity = Capacity{CapacityRule::Switch, 1.25, 1, grid.shards()};
    inputs.x = matrixOf(tokens, layer.features, 1, integers);
    inputs.gate.logits = matrixOf(tokens, layer.experts, 2, false);
    for (int64_t t = 0; skewed && t < tokens; ++t)
      inputs.gate.logits(t, layer.experts - 1) = 50;
    for (int64_t e = 0; e < layer.experts; ++e) {
      auto add = [&](std::vector<Reals> &list, int64_t rows, int64_t cols) {
        list.push_back(matrixOf(rows, cols, 3 + seed++, integers));
      };
      add(inputs.w1, layer.hidden, layer.features);
      add(inputs.wg, layer.hidden, layer.features);
      add(inputs.w2, layer.outFeatures, layer.hidden);
      inputs.b1.push_back(matrixOf(1, layer.hidden, seed, integers).data);
      inputs.b2.push_back(matrixOf(1, layer.outFeatures, seed, integers).data);
    }
  }
  Layer layer;
  LayerInputs inputs;
  int64_t seed = 0;
};

std::vector<std::vector<int32_t>> tokenCases(int ranks) {
  std::vector<int32_t> even(ranks, 6), uneven, one(ranks, 0);
  for (int rank = 0; rank < ranks; ++rank)
    uneven.push_back(rank * 5 % 8);
  one[ranks / 2] = 20;
  return {even, uneven, one, std::vector<int32_t>(ranks, 0)};
}

std::vector<int32_t> reversedTable(const GridCase &grid, int slots) {
  std::vector<int32_t> table(grid.ranks * slots);
  int units = grid.experts * grid.shards();
  for (size_t i = 0; i < table.size(); ++i)
    table[table.size() - 1 - i] = int(i) < units ? i : -1;
  return table;
}

bool runsAll() { return std::getenv("MOIRA_RANKS_ALL") != nullptr; }

std::vector<runtime::PlanOptions> plansOf(const GridCase &grid, int slots) {
  std::vector<runtime::PlanOptions> plans;
  for (int degree :
       runsAll() ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{1, 4})
    for (int exchange : {0, 1}) {
      plans.push_back({degree, exchange, {}});
      plans.push_back({degree, exchange, reversedTable(grid, slots)});
    }
  return plans;
}

} // namespace

/// Steps of every plan, against the bits of one rank.
static void runPlans(const GridCase &grid, const Program &program,
                     const std::vector<int32_t> &tokens, const Outputs &bits,
                     RankRunners &runners) {
  int slots = std::max(1, grid.experts / grid.ranks);
  for (const runtime::PlanOptions &plan : plansOf(grid, slots)) {
    SCOPED_TRACE(concat("degree ", plan.degree, ", exchange ", plan.exchange,
                        plan.slotTable.empty() ? "" : ", slots reversed"));
    runners.setPlan(plan);
    runners.bindWeights(program.layer, program.inputs, {});
    Outputs got = runners.run(program.layer, program.inputs, tokens);
    EXPECT_EQ(difference(bits, got), "");
  }
}

TEST_P(RankGrids, GiveTheBitsOfOneRank) {
  GridCase grid = GetParam();
  CompileOptions options;
  options.keepResults = tokenResults;
  options.hiddenBlocks = grid.shards();
  options.copies = grid.copies;
  options.groups = grid.groups;
  // Programs do not depend on values, nor sharded ones on numbers of tokens.
  Program sample(grid, 6, false, false);
  options.ranks = grid.ranks;
  auto together = compileLayer(sample.layer, sample.inputs, options);
  ASSERT_TRUE(together);
  options.ranks = 1;
  RankRunners runners(together, grid.ranks, /*ranksPerNode=*/2);
  for (const std::vector<int32_t> &tokens : tokenCases(grid.ranks)) {
    int64_t all = std::accumulate(tokens.begin(), tokens.end(), 0);
    Layer blocked = sample.layer;
    blocked.blocks = tokens;
    auto alone = compileLayer(blocked, sample.inputs, options);
    ASSERT_TRUE(alone);
    Runner expected(alone);
    for (bool integers : {true, false})
      for (bool skewed : {false, true}) {
        SCOPED_TRACE(concat(integers ? "integers" : "real numbers", ", ", all,
                            " tokens", skewed ? ", skewed" : ""));
        Program program(grid, all, integers, skewed);
        expected.bindWeights(blocked, program.inputs, {});
        Outputs bits = expected.run(stepArguments(blocked, program.inputs));
        runPlans(grid, program, tokens, bits, runners);
      }
  }
}

static std::vector<GridCase> grids() {
  std::vector<GridCase> cases;
  for (int ranks : {1, 2, 3, 4, 8})
    for (int experts : {1, 2, 4, 8, 12}) {
      if (experts % ranks != 0 && ranks % experts != 0)
        continue;
      int shards = std::max(1, ranks / experts);
      for (int copies = 0; copies <= shards; ++copies)
        for (int kind = 0; kind < 4; ++kind)
          if (copies == 0 || shards % copies == 0)
            cases.push_back({ranks, experts, copies, kind % 2 == 1, kind > 1});
    }
  if (runsAll())
    return cases;
  // Every rank count, number of shards, r, schedule and layout at least once.
  return {{2, 4, 1, false, false}, {2, 1, 2, true, true},
          {3, 12, 0, false, true}, {4, 2, 1, true, false},
          {4, 1, 2, false, true},  {8, 2, 2, false, false},
          {8, 8, 1, true, true},   {8, 1, 8, false, false}};
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankGrids, testing::ValuesIn(grids()),
                         [](const auto &info) {
                           const GridCase &grid = info.param;
                           return concat("W", grid.ranks, "E", grid.experts,
                                         "r", grid.copies,
                                         grid.groups ? "groups" : "equal",
                                         grid.padded ? "padded" : "ragged");
                         });
