// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moe.grouped_matmul in every mode, against its decomposition: sizes around the
// borders of tiles, panels and blocks, every element type, cut hidden
// dimensions. Equal bits, for any variant and number of threads.

#include "Harness.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace moira;
using namespace moira::conformance;
using reference::Argument;

namespace {

struct Dims {
  int64_t n, k;
  /// Blocks that divide both.
  int64_t blocks;
};

struct Element {
  std::string name;
  std::string sum() const { return name == "f64" ? "f64" : "f32"; }
  /// The epilogue's end: rounds `%sum`.
  std::string yield(const std::string &value) const {
    if (name == sum())
      return "moe.yield " + value + " : " + name;
    return llvm::formatv("%rounded = arith.truncf {0} : {1} to {2}\n"
                         "    moe.yield %rounded : {2}",
                         value, sum(), name);
  }
  /// Rounds `value`, and yields `other` as it is, too.
  std::string yieldBoth(const std::string &value,
                        const std::string &other) const {
    if (name == sum())
      return llvm::formatv("moe.yield {0}, {1} : {2}, {2}", value, other, name);
    return llvm::formatv("%rounded = arith.truncf {0} : {2} to {3}\n"
                         "    moe.yield %rounded, {1} : {3}, {2}",
                         value, other, sum(), name);
  }
};

const std::vector<std::vector<int>> kSizes = {{3, 0, 7, 54},
                                              {0, 0, 0, 0},
                                              {1, 1, 1, 1},
                                              {6, 12, 24, 25},
                                              {205, 0, 97, 1}};

class GroupedMatmul : public testing::TestWithParam<std::string> {
protected:
  Element element{GetParam()};
  std::mt19937 generator{7};

  Argument random(const std::string &name, std::vector<int64_t> shape) {
    int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                   std::multiplies<>());
    std::uniform_real_distribution<double> distribution(-1, 1);
    Argument argument{name, element.name, std::move(shape), {}};
    // Few bits, so that every element type holds the value.
    for (int64_t i = 0; i < size; ++i)
      argument.values.push_back(std::round(distribution(generator) * 64) / 64);
    return argument;
  }

  /// Runs product and oracle on what `make` gives for every list of sizes: the
  /// arguments that the sizes follow.
  void check(const std::string &text,
             llvm::function_ref<std::vector<Argument>(int64_t rows)> make) {
    CompileOptions options;
    options.oracle = true;
    Runner oracle(compileText(text, options));
    options.oracle = false;
    options.optLevel = 1;
    auto program = compileText(text, options);
    Runner one(program, 1), three(program, 3);
    for (const std::vector<int> &sizes : kSizes) {
      std::vector<Argument> arguments =
          make(std::accumulate(sizes.begin(), sizes.end(), 0));
      arguments.push_back({"sizes", "i32", {4}, {sizes.begin(), sizes.end()}});
      Outputs expected = oracle.run(arguments);
      for (Runner *runner : {&one, &three})
        for (const std::string &variant : runner->variants()) {
          runner->setVariant(variant);
          EXPECT_EQ(difference(expected, runner->run(arguments)), "")
              << text << variant << ", " << testing::PrintToString(sizes)
              << (runner == &one ? "" : " threads");
        }
    }
  }

  void checkGradientOfWeights(const Dims &d, const std::string &result);

  /// Panels, and what reads them, in one program.
  std::string panels(const Dims &d, const std::string &hidden) {
    int64_t width = element.name == "f64" ? 32 : 64;
    bool cutsN = hidden.find("of n") != std::string::npos;
    int64_t columns = cutsN ? d.n / d.blocks : d.n;
    int64_t blocks = hidden.empty() ? 1 : d.blocks;
    int64_t count = blocks * ((columns + width - 1) / width);
    int64_t steps = hidden.empty() || cutsN ? d.k : d.k / d.blocks;
    return llvm::formatv("tensor<4x{0}x{1}x{2}x{3}>", count, steps, width,
                         element.name);
  }
};

void GroupedMatmul::checkGradientOfWeights(const Dims &d,
                                           const std::string &result) {
  std::string text = llvm::formatv(
      R"(func.func @main(%dy: tensor<?x{0}x{2}>, %x: tensor<?x{1}x{2}>,
    %sizes: tensor<4xi32>) -> tensor<4x{0}x{1}x{3}> {{
  %dw = moe.grouped_matmul rows(%dy, %x : tensor<?x{0}x{2}>, tensor<?x{1}x{2}>)
      groups(%sizes : tensor<4xi32>) nk contraction -> tensor<4x{0}x{1}x{3}> {{
  }
  return %dw : tensor<4x{0}x{1}x{3}>
}
)",
      d.n, d.k, element.name, result);
  check(text, [&](int64_t rows) -> std::vector<Argument> {
    return {random("dy", {rows, d.n}), random("x", {rows, d.k})};
  });
}

TEST_P(GroupedMatmul, ForwardAndGradientOfRows) {
  for (const Dims &d : {Dims{64, 64, 2},
                        {100, 70, 10},
                        {17, 33, 1},
                        {40, 5, 5},
                        {1, 1, 1},
                        {192, 1100, 4}})
    for (std::string dim : {"", "n", "k"}) {
      // The dimension of the weight that is cut, as each product sees it.
      std::string own, other;
      if (!dim.empty()) {
        own = llvm::formatv("hidden = #moe.hidden<{0} of {1}>", d.blocks, dim);
        other = llvm::formatv("hidden = #moe.hidden<{0} of {1}>", d.blocks,
                              dim == "n" ? "k" : "n");
      }
      std::string text = llvm::formatv(
          R"(func.func @main(%x: tensor<?x{1}x{2}>, %dy: tensor<?x{0}x{2}>,
    %w: tensor<4x{0}x{1}x{2}>, %sizes: tensor<4xi32>)
    -> (tensor<?x{0}x{2}>, tensor<?x{1}x{2}>) {{
  %p = moe.pack %w nk {{{5}} : tensor<4x{0}x{1}x{2}> -> {7}
  %y = moe.grouped_matmul rows(%x : tensor<?x{1}x{2}>)
      groups(%sizes : tensor<4xi32>) weights(%p : {7}) panels
      -> tensor<?x{0}x{2}> attributes {{{5}} {{
  ^bb0(%sum: {3}):
    {4}
  }
  %dx = moe.grouped_matmul rows(%dy : tensor<?x{0}x{2}>)
      groups(%sizes : tensor<4xi32>) weights(%p : {7}) transposed_panels
      -> tensor<?x{1}x{2}> attributes {{{6}} {{
  ^bb0(%sum: {3}):
    {4}
  }
  return %y, %dx : tensor<?x{0}x{2}>, tensor<?x{1}x{2}>
}
)",
          d.n, d.k, element.name, element.sum(), element.yield("%sum"), own,
          other, panels(d, own));
      check(text, [&](int64_t rows) -> std::vector<Argument> {
        return {random("x", {rows, d.k}), random("dy", {rows, d.n}),
                random("w", {4, d.n, d.k})};
      });
    }
}

TEST_P(GroupedMatmul, GradientOfWeights) {
  for (const Dims &d : {Dims{64, 64, 1},
                        {100, 70, 1},
                        {17, 33, 1},
                        {5, 40, 1},
                        {48, 96, 1},
                        {1, 1, 1},
                        {530, 130, 1}})
    checkGradientOfWeights(d, "f32");
  // Rounded to the type of the weights, by the kernel and after it.
  for (const Dims &d : {Dims{70, 192, 1}, {64, 70, 1}})
    checkGradientOfWeights(d, element.name);
}

/// Gradients in the form of their parameters: panels of several widths, and of
/// pairs.
TEST_P(GroupedMatmul, PackedGradientOfWeights) {
  int64_t lanes = element.name == "f64" ? 8 : 16;
  for (const Dims &d :
       {Dims{64, 64, 1}, {100, 71, 1}, {1, 1, 1}, {530, 130, 1}})
    for (int64_t width : {lanes, 4 * lanes})
      for (bool pairs : {false, true}) {
        if (pairs && element.name != "bf16")
          continue;
        std::string packed = llvm::formatv("tensor<4x{0}x{1}x{2}{3}x{4}>",
                                           (d.n + width - 1) / width,
                                           pairs ? (d.k + 1) / 2 : d.k, width,
                                           pairs ? "x2" : "", element.name);
        std::string text = llvm::formatv(
            R"(func.func @main(%dy: tensor<?x{0}x{2}>, %x: tensor<?x{1}x{2}>,
    %sizes: tensor<4xi32>) -> {3} {{
  %dw = moe.grouped_matmul rows(%dy, %x : tensor<?x{0}x{2}>, tensor<?x{1}x{2}>)
      groups(%sizes : tensor<4xi32>) panels contraction -> {3} {{
  }
  return %dw : {3}
}
)",
            d.n, d.k, element.name, packed);
        check(text, [&](int64_t rows) -> std::vector<Argument> {
          return {random("dy", {rows, d.n}), random("x", {rows, d.k})};
        });
      }
}

/// One chain over two products, plain and over panels of the forward products,
/// with two results and a bias.
TEST_P(GroupedMatmul, ChainedProducts) {
  for (const Dims &d :
       {Dims{64, 64, 1}, {100, 70, 1}, {1, 1, 1}, {192, 600, 1}, {530, 40, 1}})
    for (bool packs : {false, true}) {
      // Weights are [n, k] of the forward products; n is contracted here.
      std::string packed = panels(d, "");
      std::string weights =
          llvm::formatv("tensor<4x{0}x{1}x{2}>", d.n, d.k, element.name);
      std::string pack = llvm::formatv("  %pg = moe.pack %g nk : {0} -> {1}\n"
                                       "  %pu = moe.pack %u nk : {0} -> {1}\n",
                                       weights, packed);
      std::string used = llvm::formatv(
          "weights({0} : {1}, {1}) {2}", packs ? "%pg, %pu" : "%g, %u",
          packs ? packed : weights, packs ? "transposed_panels" : "kn");
      std::string text = llvm::formatv(
          R"(func.func @main(%dg: tensor<?x{0}x{2}>, %du: tensor<?x{0}x{2}>,
    %g: {6}, %u: {6}, %b: tensor<4x{1}x{2}>, %sizes: tensor<4xi32>)
    -> (tensor<?x{1}x{2}>, tensor<?x{1}x{3}>) {{
{5}  %dx:2 = moe.grouped_matmul
      rows(%dg, %du : tensor<?x{0}x{2}>, tensor<?x{0}x{2}>)
      groups(%sizes : tensor<4xi32>) {7} chained bias(%b : tensor<4x{1}x{2}>)
      -> tensor<?x{1}x{2}>, tensor<?x{1}x{3}> {{
  ^bb0(%sum: {3}):
    %half = arith.constant 0.5 : {3}
    %scaled = arith.mulf %sum, %half : {3}
    {4}
  }
  return %dx#0, %dx#1 : tensor<?x{1}x{2}>, tensor<?x{1}x{3}>
}
)",
          d.n, d.k, element.name, element.sum(),
          element.yieldBoth("%scaled", "%sum"), packs ? pack : "", weights,
          used);
      check(text, [&](int64_t rows) -> std::vector<Argument> {
        return {random("dg", {rows, d.n}), random("du", {rows, d.n}),
                random("g", {4, d.n, d.k}), random("u", {4, d.n, d.k}),
                random("b", {4, d.k})};
      });
    }
}

/// Two weights, biases, gathered rows, an element, a vector and a scalar.
TEST_P(GroupedMatmul, Epilogue) {
  const std::string &type = element.name;
  auto wide = [&](const std::string &value) {
    if (type == element.sum())
      return std::string();
    return llvm::formatv("%wide_{0} = arith.extf %{0} : {1} to {2}\n    ",
                         value, type, element.sum())
        .str();
  };
  std::string prefix = type == element.sum() ? "%" : "%wide_";
  for (const Dims &d : {Dims{64, 64, 1}, {50, 7, 1}, {33, 20, 1}}) {
    std::string text = llvm::formatv(
        R"(func.func @main(%x: tensor<5x{1}x{2}>, %g: tensor<4x{0}x{1}x{2}>,
    %u: tensor<4x{0}x{1}x{2}>, %bg: tensor<4x{0}x{2}>, %bu: tensor<4x{0}x{2}>,
    %v: tensor<4x{0}x{2}>, %e: tensor<?x{0}x{2}>, %s: tensor<?x{2}>,
    %gather: tensor<?xi32>, %sizes: tensor<4xi32>) -> tensor<?x{0}x{2}> {{
  %y = moe.grouped_matmul rows(%x : tensor<5x{1}x{2}>)
      groups(%sizes : tensor<4xi32>)
      weights(%g, %u : tensor<4x{0}x{1}x{2}>, tensor<4x{0}x{1}x{2}>) nk
      bias(%bg, %bu : tensor<4x{0}x{2}>, tensor<4x{0}x{2}>)
      gather(%gather : tensor<?xi32>) vectors(%v : tensor<4x{0}x{2}>)
      elements(%e : tensor<?x{0}x{2}>) scalars(%s : tensor<?x{2}>)
      -> tensor<?x{0}x{2}> {{
  ^bb0(%gate: {3}, %up: {3}, %vector: {2}, %element: {2}, %scalar: {2}):
    {4}%0 = arith.mulf %gate, %up : {3}
    %1 = arith.addf %0, {5}vector : {3}
    %2 = arith.mulf %1, {5}element : {3}
    %3 = arith.mulf %2, {5}scalar : {3}
    {6}
  }
  return %y : tensor<?x{0}x{2}>
}
)",
        d.n, d.k, type, element.sum(),
        wide("vector") + wide("element") + wide("scalar"), prefix,
        element.yield("%3"));
    check(text, [&](int64_t rows) -> std::vector<Argument> {
      Argument gather{"gather", "i32", {rows}, {}};
      for (int64_t r = 0; r < rows; ++r)
        gather.values.push_back(r % 7 == 3 ? -1.0
                                           : static_cast<double>(r * 3 % 5));
      return {random("x", {5, d.k}),
              random("g", {4, d.n, d.k}),
              random("u", {4, d.n, d.k}),
              random("bg", {4, d.n}),
              random("bu", {4, d.n}),
              random("v", {4, d.n}),
              random("e", {rows, d.n}),
              random("s", {rows}),
              gather};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, GroupedMatmul,
                         testing::Values("f32", "bf16", "f16", "f64"),
                         [](const auto &info) { return info.param; });

} // namespace
