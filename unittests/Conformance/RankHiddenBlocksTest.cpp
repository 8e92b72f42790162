// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of experts that ranks share, with the sums over hidden dimensions
// in blocks: bit by bit.

#include "Conformance/GradientComparison.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::conformance;
using runtime::PlanOptions;

/// Rows of all ranks one after the other: bytes of output `i`.
static std::vector<unsigned char>
joinRows(const std::vector<GradientStep> &steps,
         const Outputs GradientStep::*list, size_t i) {
  std::vector<unsigned char> all;
  for (const GradientStep &step : steps) {
    const std::vector<unsigned char> &own = (step.*list)[i].bytes;
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

namespace {
/// The layer on one rank, with as many token blocks and hidden blocks.
GradientStep runAlone(const GradientLayer &layer, int64_t hiddenBlocks,
                      const std::vector<int32_t> &tokens, bool oracle) {
  CompileOptions options;
  options.gradients = true;
  options.oracle = oracle;
  options.hiddenBlocks = hiddenBlocks;
  options.tokenBlocks = static_cast<int64_t>(tokens.size());
  GradientRanks one(compileText(layer.print(), options), 1);
  one.bind(layer);
  return one.run(layer, tokens, /*blocks=*/true)[0];
}

/// The ranks and experts of a grid.
class RanksHiddenBlocks : public testing::TestWithParam<std::pair<int, int>> {
protected:
  GradientGrid grid{GetParam().first, GetParam().second, 0};
  GradientLayer layer = layerFor(grid, /*integers=*/false);
  std::vector<int32_t> tokens = tokenCases(grid.ranks)[1];
};
} // namespace

TEST_P(RanksHiddenBlocks, AreThoseOfTheOracle) {
  int64_t blocks = grid.shards();
  GradientStep product = runAlone(layer, blocks, tokens, /*oracle=*/false),
               oracle = runAlone(layer, blocks, tokens, /*oracle=*/true),
               uncut = runAlone(layer, 1, tokens, /*oracle=*/false);
  EXPECT_EQ(difference(oracle.results, product.results), "");
  EXPECT_EQ(difference(oracle.gradients, product.gradients), "");
  // Numbers that show the order of sums, on both ways.
  EXPECT_FALSE(uncut.results[1] == product.results[1]);
  EXPECT_FALSE(uncut.gradients[0] == product.gradients[0]);
}

/// No r, degree, exchange or schedule changes a bit of results, of gradients of
/// tokens or of what all ranks share, and rows have the bits of one rank
/// (docs/ranks.md, "The way back"). Gradients of experts are sums over other
/// rows.
TEST_P(RanksHiddenBlocks, NoCopiesChangeABit) {
  GradientStep expected =
      runAlone(layer, grid.shards(), tokens, /*oracle=*/false);
  std::vector<GradientStep> first;
  for (int copies = 0; copies <= grid.shards(); ++copies) {
    if (copies > 0 && grid.shards() % copies != 0)
      continue;
    for (bool groups : {false, true}) {
      CompileOptions options;
      options.gradients = true;
      options.hiddenBlocks = grid.shards();
      options.ranks = grid.ranks;
      options.copies = copies;
      options.groups = groups;
      GradientRanks many(compileText(layer.print(), options), grid.ranks, 2);
      for (int degree : {1, 3}) {
        SCOPED_TRACE(concat("r ", copies, ", degree ", degree,
                            groups ? ", groups" : ", equal"));
        many.setPlan(PlanOptions{degree, /*exchange=*/degree / 2, {}});
        many.bind(layer);
        std::vector<GradientStep> got = many.run(layer, tokens);
        if (first.empty())
          first = got;
        EXPECT_EQ(sameBits(first, got, /*sameSlots=*/false), "");
        EXPECT_EQ(joinRows(got, &GradientStep::results, 1),
                  expected.results[1].bytes);
        EXPECT_EQ(joinRows(got, &GradientStep::gradients, 0),
                  expected.gradients[0].bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksHiddenBlocks,
                         testing::Values(std::pair{4, 1}, std::pair{4, 2},
                                         std::pair{6, 2}),
                         [](const auto &info) {
                           return concat("W", info.param.first, "E",
                                         info.param.second);
                         });
