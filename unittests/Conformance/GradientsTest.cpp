// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moe.gate_gradient and moe.pair_dot against the interpreter, as decomposed and
// as compiled: every router, logits that are no numbers, rows without slots.

#include "Harness.h"

#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

namespace {

struct Spelled {
  const char *text;
  Score score;
};
struct SpelledNormalize {
  const char *text;
  Normalize normalize;
};
constexpr Spelled kScores[] = {{"softmax", Score::Softmax},
                               {"sigmoid", Score::Sigmoid},
                               {"sqrtsoftplus", Score::SqrtSoftplus},
                               {"identity", Score::Identity}};
constexpr SpelledNormalize kNormalizations[] = {
    {"none", Normalize::None},
    {"sum_plus_eps", Normalize::SumPlusEps},
    {"max_sum_eps", Normalize::MaxSumEps}};

std::string printRouter(const Router &router) {
  std::string score, normalize;
  for (const Spelled &one : kScores)
    if (one.score == router.score)
      score = one.text;
  for (const SpelledNormalize &one : kNormalizations)
    if (one.normalize == router.normalize)
      normalize = one.text;
  std::string text =
      llvm::formatv("score = {0}, normalize = {1}, scale = {2:F3}", score,
                    normalize, router.scale);
  if (router.normalize != Normalize::None)
    text += llvm::formatv(", eps = {0:F4}", router.eps);
  if (router.afterTopK)
    text += ", after_top_k";
  if (router.expertChoice)
    text += ", expert_choice";
  return text;
}

Argument toArgument(const std::string &name, const std::string &type,
                    const Reals &values) {
  return {name, type, {values.rows, values.cols}, values.data};
}

Argument toArgument(const std::string &name, const Ids &ids) {
  return {
      name, "i32", {ids.rows, ids.cols}, {ids.data.begin(), ids.data.end()}};
}

/// Compares product and decomposition with each other, bit by bit, and with the
/// interpreter.
void checkGate(const Router &router, const GateInputs &inputs) {
  for (const char *type : {"f32", "f64"}) {
    Router used = router;
    used.wide = std::string(type) == "f64";
    GateResult chosen = gate(used, inputs);
    Reals dweights(chosen.ids.rows, chosen.ids.cols);
    for (size_t i = 0; i < dweights.data.size(); ++i)
      dweights.data[i] = static_cast<double>(i % 7) / 4 - 0.75;
    Reals expected = gateGradient(used, inputs, chosen, dweights);
    std::string text = llvm::formatv(
        R"(func.func @main(%logits: tensor<?x{0}x{2}>, %ids: tensor<?x{1}xi32>,
    %d: tensor<?x{1}x{2}>, %w: tensor<?x{1}x{2}>) -> tensor<?x{0}x{2}> {{
  %0 = moe.gate_gradient %logits, %ids, %d router<{3}>
      weights(%w : tensor<?x{1}x{2}>)
      : tensor<?x{0}x{2}>, tensor<?x{1}xi32>, tensor<?x{1}x{2}>
      -> tensor<?x{0}x{2}>
  return %0 : tensor<?x{0}x{2}>
}
)",
        inputs.logits.cols, chosen.ids.cols, type, printRouter(router));
    std::vector<Argument> arguments = {
        toArgument("logits", type, inputs.logits),
        toArgument("ids", chosen.ids), toArgument("d", type, dweights),
        toArgument("w", type, chosen.weights)};
    CompileOptions options;
    Runner product(compileText(text, options), 2);
    options.oracle = true;
    Runner oracle(compileText(text, options));
    Outputs got = product.run(arguments);
    EXPECT_EQ(difference(oracle.run(arguments), got), "") << text;
    EXPECT_EQ(differenceFrom({toArgument("gradient", type, expected)}, got,
                             used.wide ? 1e-13 : 1e-5),
              "")
        << text;
  }
}

Reals randomLogits(int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-3, 3);
  Reals logits(rows, cols);
  for (double &value : logits.data)
    value = distribution(generator);
  return logits;
}

} // namespace

TEST(Gradients, GatesOfEveryRouter) {
  for (const Spelled &score : kScores)
    for (const SpelledNormalize &normalize : kNormalizations)
      for (bool after : {false, true}) {
        if (after && score.score != Score::Softmax &&
            score.score != Score::Sigmoid)
          continue;
        Router router;
        router.score = score.score;
        router.afterTopK = after;
        router.normalize = normalize.normalize;
        router.eps = 0.25;
        router.scale = 2.5;
        router.topK = 3;
        GateInputs inputs;
        inputs.logits = randomLogits(9, 7, 1);
        inputs.bias = {0.5, -0.5, 0, 0.25, -0.25, 0.125, 0};
        inputs.mask = {1, 1, 0, 1, 1, 1, 0, 1, 1};
        inputs.k = 2;
        checkGate(router, inputs);
      }
}

TEST(Gradients, GatesOfExpertChoice) {
  Router router;
  router.expertChoice = true;
  router.score = Score::Sigmoid;
  router.normalize = Normalize::SumPlusEps;
  router.eps = 0.125;
  GateInputs inputs;
  inputs.logits = randomLogits(11, 5, 2);
  inputs.expertRows = 4;
  checkGate(router, inputs);
}

/// Logits that are no numbers, experts that only keep ids distinct, no tokens.
TEST(Gradients, GatesOfWhatIsConstant) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  for (const Spelled &score : kScores)
    for (bool after : {false, true}) {
      if (after && score.score != Score::Softmax &&
          score.score != Score::Sigmoid)
        continue;
      Router router;
      router.score = score.score;
      router.afterTopK = after;
      router.normalize = Normalize::MaxSumEps;
      router.eps = 0.0625;
      router.topK = 3;
      GateInputs inputs;
      inputs.logits = {
          {nan, 1, 2, 0.5},     {nan, nan, nan, nan}, {-inf, -inf, -inf, -inf},
          {-inf, 0.5, nan, -1}, {0, 0, 0, 0},         {-90, -80, -100, -120}};
      checkGate(router, inputs);
      // Two experts are switched off, and one of them is chosen nevertheless.
      inputs.bias = {-inf, 0, -inf, 0};
      checkGate(router, inputs);
      inputs.bias.clear();
      inputs.logits = Reals(0, 4);
      checkGate(router, inputs);
    }
}

TEST(Gradients, PairDots) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<int> numbers(-40, 40);
  for (const char *type : {"f32", "f64", "bf16"})
    for (int64_t features : {1, 7, 33, 64})
      for (int64_t choices : {1, 2, 8})
        for (std::optional<int64_t> padded :
             {std::optional<int64_t>(), std::optional<int64_t>(5)}) {
          int64_t tokens = 13, experts = 4;
          Ids ids(tokens, choices);
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t j = 0; j < choices; ++j)
              ids(t, j) = (t + j) % 3 == 2 && j > 0
                              ? -1
                              : static_cast<int32_t>((t * 5 + j) % experts);
          AssignInputs options;
          options.experts = experts;
          options.capacity = 5;
          options.paddedRows = padded;
          Assignment assignment = assign(ids, options);
          Reals x(tokens, features), dy(tokens, features);
          for (Reals *matrix : {&x, &dy})
            for (double &value : matrix->data)
              value = numbers(generator) / 8.0;
          DType dtype = std::string(type) == "f64"    ? DType::F64
                        : std::string(type) == "bf16" ? DType::BF16
                                                      : DType::F32;
          Reals rows = dispatch(x, assignment, dtype);
          Reals expected = weightGradient(rows, assignment, dy, dtype);
          std::string real = dtype == DType::F64 ? "f64" : "f32";
          std::string rowsType = llvm::formatv(
              "tensor<{0}{1}x{2}>", padded ? "4x?x" : "?x", features, type);
          std::string text = llvm::formatv(
              R"(func.func @main(%rows: {0}, %x: tensor<?x{1}x{2}>,
    %slots: tensor<?x{3}xi32>) -> tensor<?x{3}x{4}> {{
  %0 = moe.pair_dot %rows, %x, %slots
      : {0}, tensor<?x{1}x{2}>, tensor<?x{3}xi32> -> tensor<?x{3}x{4}>
  return %0 : tensor<?x{3}x{4}>
}
)",
              rowsType, features, type, choices, real);
          Argument held = toArgument("rows", type, rows);
          if (padded)
            held.shape = {experts, *padded, features};
          std::vector<Argument> arguments = {
              held, toArgument("x", type, dy),
              toArgument("slots", assignment.slots)};
          for (bool oracle : {false, true}) {
            CompileOptions compile;
            compile.oracle = oracle;
            Runner runner(compileText(text, compile), oracle ? 1 : 2);
            // One chain in increasing d: equal, not close.
            EXPECT_EQ(differenceFrom({toArgument("dots", real, expected)},
                                     runner.run(arguments), 0),
                      "")
                << text;
          }
        }
}
