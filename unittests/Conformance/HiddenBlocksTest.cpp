// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of sums over hidden blocks, bit by bit: one chain of fused
// multiply-adds per block, the first from the bias, and the blocks' results
// added in pairs. The expected value is computed here, in plain C++.

#include "Conformance/Harness.h"

#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace moira;
using namespace moira::conformance;
using moira::reference::Argument;

namespace {

constexpr int64_t kExperts = 2, kN = 20, kK = 48;
constexpr int64_t kSizes[kExperts] = {3, 29};

float addInPairs(std::vector<float> sums) {
  for (; sums.size() % 2 == 0; sums.resize(sums.size() / 2))
    for (size_t i = 0; 2 * i < sums.size(); ++i)
      sums[i] = sums[2 * i] + sums[2 * i + 1];
  float total = sums.front();
  for (size_t i = 1; i < sums.size(); ++i)
    total += sums[i];
  return total;
}

std::string program(int64_t blocks, bool bias) {
  return llvm::formatv(
      R"(func.func @main(%x: tensor<?x{0}xf32>, %w: tensor<2x{1}x{0}xf32>,
    %b: tensor<2x{1}xf32>, %sizes: tensor<2xi32>) -> tensor<?x{1}xf32> {{
  %p = moe.pack %w nk {{hidden = #moe.hidden<{2} of k>}
      : tensor<2x{1}x{0}xf32> -> tensor<2x{2}x{3}x32xf32>
  %y = moe.grouped_matmul rows(%x : tensor<?x{0}xf32>)
      groups(%sizes : tensor<2xi32>)
      weights(%p : tensor<2x{2}x{3}x32xf32>) panels {4}
      -> tensor<?x{1}xf32> attributes {{hidden = #moe.hidden<{2} of k>} {{
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  return %y : tensor<?x{1}xf32>
}
)",
      kK, kN, blocks, kK / blocks, bias ? "bias(%b : tensor<2x20xf32>)" : "");
}

class HiddenBlocks : public testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(HiddenBlocks, AreAddedInPairs) {
  auto [blocks, bias] = GetParam();
  std::mt19937 generator{11};
  std::uniform_real_distribution<float> draw(-1, 1);
  auto random = [&](const std::string &name, std::vector<int64_t> shape) {
    int64_t size = 1;
    for (int64_t n : shape)
      size *= n;
    Argument argument{name, "f32", shape, {}};
    for (int64_t i = 0; i < size; ++i)
      argument.values.push_back(draw(generator));
    return argument;
  };
  int64_t rows = kSizes[0] + kSizes[1];
  Argument x = random("x", {rows, kK}), w = random("w", {kExperts, kN, kK}),
           b = random("b", {kExperts, kN}),
           sizes{
               "sizes", "i32", {kExperts}, {kSizes[0] * 1.0, kSizes[1] * 1.0}};
  std::vector<double> expected;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < kN; ++n) {
      int64_t e = r < kSizes[0] ? 0 : 1, length = kK / blocks;
      std::vector<float> sums;
      for (int64_t block = 0; block < blocks; ++block) {
        float sum = bias && block == 0
                        ? static_cast<float>(b.values[e * kN + n])
                        : 0.0F;
        for (int64_t k = block * length; k < (block + 1) * length; ++k)
          sum = std::fma(static_cast<float>(x.values[r * kK + k]),
                         static_cast<float>(w.values[(e * kN + n) * kK + k]),
                         sum);
        sums.push_back(sum);
      }
      expected.push_back(addInPairs(sums));
    }
  for (bool oracle : {false, true}) {
    CompileOptions options;
    options.oracle = oracle;
    options.optLevel = 1;
    Runner runner(compileText(program(blocks, bias), options));
    EXPECT_EQ(runner.run({x, w, b, sizes})[0].values(), expected)
        << blocks << " blocks, " << (oracle ? "decomposed" : "kernels");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, HiddenBlocks,
    testing::Values(std::pair{1, true}, std::pair{2, false}, std::pair{2, true},
                    std::pair{3, true}, std::pair{4, true}, std::pair{6, true},
                    std::pair{8, false}, std::pair{12, true},
                    std::pair{16, true}, std::pair{24, true}));

} // namespace
