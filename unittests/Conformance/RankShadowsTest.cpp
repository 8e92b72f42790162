// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shadows of experts: whichever of them all ranks hold, results have the same
// bits and gradients the same sums, which their owners have
// (docs/placement.md).

#include "Conformance/GradientLayer.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace moira;
using namespace moira::conformance;
using runtime::PlanOptions;
using runtime::TrafficCount;
using runtime::TrafficKind;

namespace {

class RankShadows : public testing::TestWithParam<GradientGrid> {};

GradientLayer layerFor(const GradientGrid &grid, bool integers) {
  GradientLayer layer;
  layer.experts = grid.experts;
  layer.hidden = 16;
  layer.padded = grid.padded;
  layer.integers = integers;
  return layer;
}

std::vector<int32_t> expertsOf(int mask) {
  std::vector<int32_t> experts;
  for (int e = 0; mask >> e; ++e)
    if (mask >> e & 1)
      experts.push_back(e);
  return experts;
}

/// Results have the same bits. Gradients too where numbers are integers; else
/// sums over ranks are rounded in another order.
void expectSame(const std::vector<GradientStep> &without,
                const std::vector<GradientStep> &with, bool integers) {
  for (size_t rank = 0; rank < with.size(); ++rank) {
    EXPECT_EQ(difference(without[rank].results, with[rank].results), "");
    ASSERT_EQ(without[rank].gradients.size(), with[rank].gradients.size());
    for (size_t i = 0; i < with[rank].gradients.size(); ++i) {
      std::vector<double> one = without[rank].gradients[i].values(),
                          other = with[rank].gradients[i].values();
      ASSERT_EQ(one.size(), other.size());
      double largest = 0;
      for (size_t k = 0; k < one.size(); ++k) {
        double error = std::abs(one[k] - other[k]);
        largest = std::max(largest, std::isnan(error) ? INFINITY : error);
      }
      EXPECT_LE(largest, integers ? 0 : 2e-5)
          << "gradient " << i << " on rank " << rank;
    }
  }
}

/// What all ranks have received of a kind.
int64_t received(const GradientRanks &ranks, int count, bool back,
                 TrafficKind kind) {
  int64_t bytes = 0;
  for (int rank = 0; rank < count; ++rank)
    bytes += ranks.traffic(rank, back)[kind].bytesReceived;
  return bytes;
}

/// Packed bytes of all parameters of experts in a slot.
int64_t slotBytes(const runtime::Manifest &manifest) {
  int64_t bytes = 0;
  for (const runtime::ParameterSpec &spec : manifest.parameters)
    bytes += spec.placement ? spec.packedSliceBytes : 0;
  return bytes;
}

/// Gradients of a slot's elements: w1, wg and w2 cut, their biases.
int64_t gradientBytes(const GradientGrid &grid, const GradientLayer &layer) {
  int64_t cut = 2 * layer.hidden * layer.features + layer.hidden +
                layer.outFeatures * layer.hidden;
  return 4 * (cut / grid.shards() + grid.shards() * layer.outFeatures);
}

} // namespace

TEST_P(RankShadows, ChangeNoResult) {
  GradientGrid grid = GetParam();
  CompileOptions options;
  options.gradients = true;
  options.ranks = grid.ranks;
  options.copies = grid.copies;
  options.groups = grid.groups;
  options.spareSlots = grid.spare;
  options.hiddenBlocks = grid.shards();
  std::vector<int32_t> tokens;
  for (int rank = 0; rank < grid.ranks; ++rank)
    tokens.push_back(rank == 1 ? 0 : 9 + rank);
  for (bool integers : {true, false}) {
    if (!integers && !grid.groups)
      continue; // two grids show what rounding does
    GradientLayer layer = layerFor(grid, integers);
    auto program = compileText(layer.print(), options);
    ASSERT_TRUE(program);
    GradientRanks ranks(program, grid.ranks, 2);
    std::vector<GradientStep> without;
    int64_t gradientsWithout = 0;
    for (int mask = 0; mask < 1 << grid.experts; ++mask) {
      std::vector<int32_t> shadows = expertsOf(mask);
      SCOPED_TRACE(concat("shadows ", mask, integers ? ", integers" : ""));
      ranks.setPlan(PlanOptions{1 + mask % 3, mask % 2, {}, shadows});
      ranks.bind(layer);
      std::vector<GradientStep> with = ranks.run(layer, tokens);
      if (mask == 0)
        without = with;
      expectSame(without, with, integers);
      // Each unit's weights reach all other ranks once, and gradients return:
      // with r = s once, too.
      int64_t moves = grid.copies == 0 ? 0
                                       : int64_t(shadows.size()) *
                                             grid.shards() * (grid.ranks - 1);
      EXPECT_EQ(received(ranks, grid.ranks, false, TrafficKind::Shadows),
                moves * slotBytes(program->manifest()));
      EXPECT_EQ(received(ranks, grid.ranks, true, TrafficKind::Shadows), 0);
      int64_t gradients =
          received(ranks, grid.ranks, true, TrafficKind::Gradients);
      if (mask == 0)
        gradientsWithout = gradients;
      if (grid.shards() == 1 && grid.copies == 1)
        EXPECT_EQ(gradients - gradientsWithout,
                  moves * gradientBytes(grid, layer));
      // What slots hold is not sent again, and all choices of an expert that
      // everyone holds stay.
      expectSame(with, ranks.run(layer, tokens), integers);
      EXPECT_EQ(received(ranks, grid.ranks, false, TrafficKind::Shadows), 0);
      if (mask == (1 << grid.experts) - 1 && grid.copies > 0)
        EXPECT_EQ(
            received(ranks, grid.ranks, false, TrafficKind::RowsToExperts), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankShadows,
                         testing::Values(GradientGrid{2, 4, 1, false, false, 2},
                                         GradientGrid{4, 4, 1, true, false, 3},
                                         GradientGrid{4, 4, 0, false, false, 3},
                                         GradientGrid{4, 2, 1, false, true, 3},
                                         GradientGrid{4, 2, 2, true, false, 3},
                                         GradientGrid{2, 1, 2, false, false,
                                                      1}),
                         [](const auto &info) {
                           const GradientGrid &grid = info.param;
                           return concat("W", grid.ranks, "E", grid.experts,
                                         "r", grid.copies,
                                         grid.groups ? "groups" : "equal",
                                         grid.padded ? "padded" : "");
                         });
