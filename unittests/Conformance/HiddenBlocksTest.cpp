// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of sums over hidden blocks, bit by bit: one chain of fused
// multiply-adds per block, the first from the bias, and the blocks' results
// added in pairs. The expected value is computed here, in plain C++.

#include "Conformance/Harness.h"

#include "moira/Pipelines/Pipelines.h"
#include "moira/Sharding/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

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

/// Two products in one chain over hidden blocks of k, as a gradient of rows has
/// them; the weights are those of the forward products, `[n, k]`, with the
/// blocks in n, plain or packed.
std::string chainedProgram(int64_t blocks, bool packed) {
  const char *weights = "tensor<2x48x20xf32>";
  std::string panels = llvm::formatv("tensor<2x{0}x20x16xf32>",
                                     blocks * ((48 / blocks + 15) / 16));
  std::string packs = llvm::formatv(
      "  %pg = moe.pack %g nk {{hidden = #moe.hidden<{0} of n>} : {1} -> {2}\n"
      "  %pu = moe.pack %u nk {{hidden = #moe.hidden<{0} of n>} : {1} -> {2}\n",
      blocks, weights, panels);
  std::string used = packed ? "weights(%pg, %pu : " + panels + ", " + panels +
                                  ") transposed_panels"
                            : std::string("weights(%g, %u : ") + weights +
                                  ", " + weights + ") kn";
  return llvm::formatv(
      R"(func.func @main(%dg: tensor<?x48xf32>, %du: tensor<?x48xf32>,
    %g: {0}, %u: {0}, %b: tensor<2x20xf32>, %sizes: tensor<2xi32>)
    -> tensor<?x20xf32> {{
{1}  %dx = moe.grouped_matmul
      rows(%dg, %du : tensor<?x48xf32>, tensor<?x48xf32>)
      groups(%sizes : tensor<2xi32>) {2} chained bias(%b : tensor<2x20xf32>)
      -> tensor<?x20xf32> attributes {{hidden = #moe.hidden<{3} of k>} {{
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  return %dx : tensor<?x20xf32>
}
)",
      weights, packed ? packs : "", used, blocks);
}

/// Numbers in (-1, 1).
Argument drawArgument(std::mt19937 &generator, const std::string &name,
                      std::vector<int64_t> shape) {
  std::uniform_real_distribution<float> draw(-1, 1);
  Argument argument{name, "f32", std::move(shape), {}};
  int64_t size = 1;
  for (int64_t n : argument.shape)
    size *= n;
  for (int64_t i = 0; i < size; ++i)
    argument.values.push_back(draw(generator));
  return argument;
}

TEST(HiddenBlocksOfChains, AreAddedInPairs) {
  std::mt19937 generator{19};
  int64_t rows = kSizes[0] + kSizes[1];
  std::vector<Argument> arguments{
      drawArgument(generator, "dg", {rows, kK}),
      drawArgument(generator, "du", {rows, kK}),
      drawArgument(generator, "g", {kExperts, kK, kN}),
      drawArgument(generator, "u", {kExperts, kK, kN}),
      drawArgument(generator, "b", {kExperts, kN}),
      {"sizes", "i32", {kExperts}, {kSizes[0] * 1.0, kSizes[1] * 1.0}}};
  std::vector<double> uncut;
  for (int64_t blocks : {1, 2, 3, 4, 6, 8, 12}) {
    std::vector<double> expected;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < kN; ++n) {
        int64_t e = r < kSizes[0] ? 0 : 1, length = kK / blocks;
        std::vector<float> sums;
        for (int64_t block = 0; block < blocks; ++block) {
          float sum = block == 0
                          ? static_cast<float>(arguments[4].values[e * kN + n])
                          : 0.0F;
          for (int term : {0, 1})
            for (int64_t k = block * length; k < (block + 1) * length; ++k)
              sum = std::fma(
                  static_cast<float>(arguments[term].values[r * kK + k]),
                  static_cast<float>(
                      arguments[2 + term].values[(e * kK + k) * kN + n]),
                  sum);
          sums.push_back(sum);
        }
        expected.push_back(addInPairs(sums));
      }
    if (blocks == 1)
      uncut = expected;
    else
      EXPECT_NE(expected, uncut) << "numbers that show the order of sums";
    for (bool oracle : {false, true})
      for (bool packed : {false, true}) {
        CompileOptions options;
        options.oracle = oracle;
        options.optLevel = 1;
        Runner runner(compileText(chainedProgram(blocks, packed), options));
        EXPECT_EQ(runner.run(arguments)[0].values(), expected)
            << blocks << " blocks, " << (oracle ? "decomposed" : "kernels")
            << (packed ? ", packed" : "");
      }
  }
}

/// An expert with a gate, a bias of each product and an activation; `start` is
/// what its last product starts from.
std::string expert(const std::string &start) {
  return R"(
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x8xf32>, %w: tensor<2x96x8xf32>,
    %b: tensor<2x96xf32>, %d: tensor<2x20x48xf32>, %c: tensor<2x20xf32>,
    %sizes: tensor<2xi32>) -> tensor<?x20xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w, %b, %d, %c : tensor<2x96x8xf32>, tensor<2x96xf32>,
        tensor<2x20x48xf32>, tensor<2x20xf32>) -> tensor<?x20xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<96x8xf32>, %be: tensor<96xf32>,
       %de: tensor<20x48xf32>, %ce: tensor<20xf32>):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x96xf32>
    %s = linalg.broadcast ins(%be : tensor<96xf32>)
        outs(%e : tensor<?x96xf32>) dimensions = [0]
    %a = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%r, %we : tensor<?x8xf32>, tensor<96x8xf32>)
        outs(%s : tensor<?x96xf32>) -> tensor<?x96xf32>
    %g = tensor.extract_slice %a[0, 0] [%n, 48] [1, 1]
        : tensor<?x96xf32> to tensor<?x48xf32>
    %u = tensor.extract_slice %a[0, 48] [%n, 48] [1, 1]
        : tensor<?x96xf32> to tensor<?x48xf32>
    %t = math.tanh %g : tensor<?x48xf32>
    %h = arith.mulf %t, %u : tensor<?x48xf32>
    )" + start +
         R"(
    %eo = tensor.empty(%n) : tensor<?x20xf32>
    %so = linalg.broadcast ins(%start : tensor<20xf32>)
        outs(%eo : tensor<?x20xf32>) dimensions = [0]
    %o = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%h, %de : tensor<?x48xf32>, tensor<20x48xf32>)
        outs(%so : tensor<?x20xf32>) -> tensor<?x20xf32>
    moe.yield %o : tensor<?x20xf32>
  }
  return %y : tensor<?x20xf32>
})";
}

/// The program with its products cut, for the oracle.
std::string cutHidden(const std::string &text, int64_t blocks) {
  mlir::DialectRegistry registry;
  moira::registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  mlir::moe::CutHiddenPassOptions options;
  options.blocks = blocks;
  mlir::PassManager manager(&context);
  manager.addNestedPass<mlir::func::FuncOp>(
      mlir::moe::createCutHiddenPass(options));
  EXPECT_TRUE(module && succeeded(manager.run(*module)));
  std::string printed;
  llvm::raw_string_ostream(printed) << *module;
  return printed;
}

TEST(HiddenBlocksOfExperts, AreTheSameInKernelsAndLoops) {
  using mlir::moe::Fusions;
  std::mt19937 generator{5};
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
  std::vector<Argument> arguments{
      random("x", {37, 8}), random("w", {2, 96, 8}),
      random("b", {2, 96}), random("d", {2, 20, 48}),
      random("c", {2, 20}), {"sizes", "i32", {2}, {30.0, 7.0}}};
  // A bias that is computed in the body keeps kernels away.
  const std::string plain =
      "%start = tensor.cast %ce : tensor<20xf32> to tensor<20xf32>";
  const std::string computed = "%start = math.tanh %ce : tensor<20xf32>";
  struct Case {
    std::string start;
    int64_t blocks;
    std::vector<Fusions> disabled;
  };
  for (const Case &c :
       {Case{plain, 4, {Fusions{}}},
        Case{plain,
             6,
             {Fusions{}, Fusions::Activation, Fusions::Bias, Fusions::GateUp}},
        Case{computed, 6, {Fusions{}}}}) {
    std::string text = expert(c.start);
    CompileOptions options;
    options.optLevel = 1;
    options.oracle = true;
    Runner oracle(compileText(cutHidden(text, c.blocks), options));
    Outputs expected = oracle.run(arguments);
    Runner uncut(compileText(text, options));
    EXPECT_NE(difference(expected, uncut.run(arguments)), "")
        << "expected numbers that show the order of sums";
    options.oracle = false;
    options.hiddenBlocks = c.blocks;
    for (Fusions disabled : c.disabled) {
      options.disabledFusions = disabled;
      Runner runner(compileText(text, options));
      EXPECT_EQ(difference(expected, runner.run(arguments)), "")
          << c.blocks << " blocks, without '"
          << mlir::moe::stringifyFusions(disabled) << "', " << c.start;
    }
  }
}

} // namespace
