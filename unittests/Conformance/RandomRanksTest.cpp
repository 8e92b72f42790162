// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs on random grids: the ranks together against one rank with
// the same token blocks, bit for bit, and against the interpreter.
// MOIRA_RANDOM_RANKS (200) is how many, MOIRA_RANDOM_SEED (0) the first seed.

#include "Conformance/LayerTools.h"
#include "Conformance/Ranks.h"
#include "Reference/RandomProgram.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

namespace {
class RandomRanks : public testing::TestWithParam<uint64_t> {};
} // namespace

static CompileOptions optionsFor(uint64_t seed) {
  CompileOptions options;
  options.optLevel = seed % 2;
  options.keepResults = tokenResults;
  WeightFormat &format = options.weights;
  format.perExpert = seed % 3 == 0;
  format.transposed = seed / 2 % 2 == 0;
  format.joined = seed / 4 % 2 == 0;
  format.interleaved = seed / 8 % 2 == 0;
  return options;
}

/// ids, weights and y of the interpreter.
static std::vector<Argument> tokensOf(const LayerResult &result,
                                      const Layer &layer) {
  std::vector<Argument> all = results(result, layer), kept;
  for (unsigned index : tokenResults)
    kept.push_back(all[index]);
  return kept;
}

TEST_P(RandomRanks, Agree) {
  RandomShardedProgram p = randomShardedProgram(GetParam());
  const RandomGrid &grid = p.grid;
  const Layer &layer = p.program.layer;
  const LayerInputs &inputs = p.program.inputs;
  Layer rankLayer = p.rankLayer();
  SCOPED_TRACE(concat("to print it: MOIRA_RANDOM_PRINT=1 MOIRA_RANDOM_RANKS=1 "
                      "MOIRA_RANDOM_SEED=",
                      GetParam(),
                      " MoiraConformanceTests --gtest_filter='*RandomRanks*'"));
  SCOPED_TRACE(p.describe());
  if (std::getenv("MOIRA_RANDOM_PRINT"))
    std::cout << printModule(rankLayer, inputs) << std::flush;

  CompileOptions options = optionsFor(GetParam());
  options.hiddenBlocks = grid.shards;
  auto alone = compileLayer(layer, inputs, options);
  options.ranks = grid.ranks;
  options.copies = grid.copies;
  options.spareSlots = grid.spareSlots;
  options.groups = grid.groups;
  auto together = compileLayer(rankLayer, inputs, options);
  ASSERT_TRUE(alone && together);

  Runner expected(alone);
  expected.bindWeights(layer, inputs, options.weights);
  Outputs bits = expected.run(stepArguments(layer, inputs));
  LayerResult result = p.program.evaluate();
  // Sums over hidden in blocks are those of the interpreter where they are
  // exact.
  double tolerance =
      p.program.sameBits && (grid.shards == 1 || p.hasExactSums())
          ? 0
          : looseTolerance(layer, result);
  EXPECT_EQ(differenceFrom(tokensOf(result, layer), bits, tolerance), "")
      << "one rank against interpreter";

  RankRunners runners(together, grid.ranks, grid.ranksPerNode);
  runtime::PlanOptions plan;
  plan.degree = grid.degree;
  plan.exchange = grid.hierarchical;
  plan.slotTable = grid.slotTable;
  runners.setPlan(plan);
  runners.bindWeights(rankLayer, inputs, options.weights);
  for (const std::string &variant : runners.variants()) {
    runners.setVariant(variant);
    Outputs got = runners.run(rankLayer, inputs, grid.tokens);
    if (p.hasOneOrder())
      EXPECT_EQ(difference(bits, got), "") << "variant " << variant;
    else
      EXPECT_EQ(differenceFrom(tokensOf(result, layer), got,
                               looseTolerance(layer, result)),
                "")
          << "variant " << variant;
  }
}

static uint64_t numberOf(const char *variable, uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

static std::vector<uint64_t> seeds() {
  uint64_t first = numberOf("MOIRA_RANDOM_SEED", 0);
  std::vector<uint64_t> all(numberOf("MOIRA_RANDOM_RANKS", 200));
  for (uint64_t &seed : all)
    seed = first++;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, RandomRanks, testing::ValuesIn(seeds()),
                         [](const auto &info) {
                           return concat("seed", info.param);
                         });
