// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole layers: bodies of experts, placement, dropped pairs, empty groups.

#include "Autodiff/GradientProgram.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace moira;
using namespace moira::autodiff;

namespace {

/// A layer of f64: router, dispatch, experts, combine. D = 4, H = 5, N = 3.
struct LayerText {
  /// From %a, a pre-activation (and %b of a second product), to %h.
  std::string activation = "%z = arith.constant 0.0 : f64\n"
                           "      %h = arith.maximumf %a, %z : f64";
  bool gated = false, bias = false, padded = false;
  bool weightsOnInput = false;
  /// Weights enter the body, one per row.
  bool rowScalars = false;
  /// A number and a vector that all experts share.
  bool shared = false;
  /// Another product of hidden size between the two.
  bool threeProducts = false;
  /// Rows per expert; empty: all.
  std::string capacity;
  std::string router = "normalize = max_sum_eps";
  int64_t experts = 3, choices = 2;
};

} // namespace

/// `%name = rows x weight^T` of f64, from a bias or zeros; `rowCount` and
/// `zero` name what they say.
static std::string product(const std::string &name, const std::string &rows,
                           const std::string &weight, int64_t out, int64_t in,
                           const std::string &bias = "",
                           const std::string &rowCount = "%n",
                           const std::string &zero = "%f0") {
  std::string type = "tensor<?x" + std::to_string(out) + "xf64>";
  std::string text =
      "    %" + name + "_e = tensor.empty(" + rowCount + ") : " + type + "\n";
  if (bias.empty())
    text += "    %" + name + "_i = linalg.fill ins(" + zero + " : f64) outs(%" +
            name + "_e : " + type + ") -> " + type + "\n";
  else
    text += "    %" + name +
            "_i = linalg.generic {indexing_maps = [#col, #mn], iterator_types "
            "= [\"parallel\", \"parallel\"]} ins(" +
            bias + " : tensor<" + std::to_string(out) + "xf64>) outs(%" + name +
            "_e : " + type +
            ") {\n    ^bb1(%v: f64, %o: f64):\n      linalg.yield %v : f64\n"
            "    } -> " +
            type + "\n";
  return text + "    %" + name +
         " = linalg.matmul indexing_maps = [#mk, #nk, #mn2] ins(" + rows +
         ", " + weight + " : tensor<?x" + std::to_string(in) +
         "xf64>, tensor<" + std::to_string(out) + "x" + std::to_string(in) +
         "xf64>) outs(%" + name + "_i : " + type + ") -> " + type + "\n";
}

static std::string print(const LayerText &layer) {
  std::string E = std::to_string(layer.experts),
              K = std::to_string(layer.choices);
  std::string rows =
      layer.padded ? "tensor<" + E + "x?x4xf64>" : "tensor<?x4xf64>";
  auto rowsOf = [&](int64_t width) {
    std::string n = std::to_string(width);
    return layer.padded ? "tensor<" + E + "x?x" + n + "xf64>"
                        : "tensor<?x" + n + "xf64>";
  };
  std::string ids = "tensor<?x" + K + "xi32>",
              scores = "tensor<?x" + K + "xf64>",
              counts = "tensor<" + E + "xi32>";
  std::string text = R"(
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn2 = affine_map<(m, n, k) -> (m, n)>
#mn = affine_map<(m, n) -> (m, n)>
#col = affine_map<(m, n) -> (n)>
#one = affine_map<(m, n) -> (m, 0)>
)";
  text += "func.func @main(%x: tensor<?x4xf64>, %router: tensor<" + E +
          "x4xf64> {moe.param = #moe.param<\"router\">}, %w1: tensor<" + E +
          "x5x4xf64> {moe.param = #moe.param<\"w1\">}, %w2: tensor<" + E +
          "x3x5xf64> {moe.param = #moe.param<\"w2\">}";
  if (layer.gated)
    text += ", %wg: tensor<" + E + "x5x4xf64> {moe.param = #moe.param<\"wg\">}";
  if (layer.threeProducts)
    text += ", %wm: tensor<" + E + "x5x5xf64> {moe.param = #moe.param<\"wm\">}";
  if (layer.bias)
    text += ", %b1: tensor<" + E +
            "x5xf64> {moe.param = #moe.param<\"b1\">}, %b2: tensor<" + E +
            "x3xf64> {moe.param = #moe.param<\"b2\">}";
  if (layer.shared)
    text += ", %alpha: f64, %offset: tensor<5xf64> "
            "{moe.param = #moe.param<\"offset\">}";
  text += ") -> (tensor<?x3xf64>, " + ids + ", " + ids + ") {\n" +
          "  %first = arith.constant 0 : index\n"
          "  %zero = arith.constant 0.0 : f64\n"
          "  %tokens = tensor.dim %x, %first : tensor<?x4xf64>\n" +
          product("logits", "%x", "%router", layer.experts, 4, "", "%tokens",
                  "%zero") +
          "  %ids, %weights = moe.gate %logits router<" + layer.router +
          "> : tensor<?x" + E + "xf64> -> " + ids + ", " + scores +
          "\n  %counts = moe.count %ids : " + ids + " -> " + counts + "\n";
  if (!layer.capacity.empty())
    text += "  %capacity = arith.constant " + layer.capacity + " : index\n";
  text +=
      std::string("  %slots, %sizes, %bound = moe.assign %ids choice_major") +
      (layer.padded ? " padded" : "") + " counts(%counts : " + counts + ")" +
      (layer.capacity.empty() ? "" : " capacity(%capacity)") + " : " + ids +
      " -> " + ids + ", " + counts + ", index\n";
  auto dispatch = [&](const std::string &name, const std::string &what,
                      int64_t width, bool weighted) {
    return "  %" + name + " = moe.dispatch " + what +
           ", %slots, %sizes, %bound" +
           (weighted ? " weights(%weights : " + scores + ")" : "") +
           " : tensor<?x" + std::to_string(width) + "xf64>, " + ids + ", " +
           counts + " -> " + rowsOf(width) + "\n";
  };
  text += dispatch("rows", "%x", 4, layer.weightsOnInput);
  if (layer.rowScalars)
    // Rows of one number: ones, times the pairs' weights.
    text += "  %f1 = arith.constant 1.0 : f64\n"
            "  %ones_e = tensor.empty(%tokens) : tensor<?x1xf64>\n"
            "  %ones = linalg.fill ins(%f1 : f64) outs(%ones_e : "
            "tensor<?x1xf64>) -> tensor<?x1xf64>\n" +
            dispatch("scalars", "%ones", 1, true);
  std::string operands = "%w1, %w2",
              types = "tensor<" + E + "x5x4xf64>, tensor<" + E + "x3x5xf64>",
              blocks = ", %w1e: tensor<5x4xf64>, %w2e: tensor<3x5xf64>";
  auto add = [&](const std::string &name, const std::string &shape) {
    operands += ", %" + name;
    types += ", tensor<" + E + "x" + shape + "xf64>";
    blocks += ", %" + name + "e: tensor<" + shape + "xf64>";
  };
  if (layer.gated)
    add("wg", "5x4");
  if (layer.threeProducts)
    add("wm", "5x5");
  if (layer.bias) {
    add("b1", "5");
    add("b2", "3");
  }
  text +=
      "  %out = moe.expert rows(%rows" +
      std::string(layer.rowScalars ? ", %scalars" : "") + " : " + rows +
      (layer.rowScalars ? ", " + rowsOf(1) : "") +
      ") groups(%sizes : " + counts + ") per_expert(" + operands + " : " +
      types + ")" +
      (layer.shared ? " shared(%alpha, %offset : f64, tensor<5xf64>)" : "") +
      " -> " + rowsOf(3) + " {\n  ^bb0(%r: tensor<?x4xf64>" +
      (layer.rowScalars ? ", %s: tensor<?x1xf64>" : "") + blocks +
      (layer.shared ? ", %alphae: f64, %offsete: tensor<5xf64>" : "") +
      "):\n    %c0 = arith.constant 0 : index\n"
      "    %f0 = arith.constant 0.0 : f64\n"
      "    %n = tensor.dim %r, %c0 : tensor<?x4xf64>\n" +
      product("up", "%r", "%w1e", 5, 4, layer.bias ? "%b1e" : "");
  if (layer.gated)
    text += product("gate", "%r", "%wge", 5, 4);
  std::string maps = "#mn, ", ins = "%up", inTypes = "tensor<?x5xf64>",
              args = "%a: f64, ";
  if (layer.gated) {
    maps += "#mn, ";
    ins += ", %gate";
    inTypes += ", tensor<?x5xf64>";
    args += "%b: f64, ";
  }
  if (layer.shared) {
    maps += "#col, ";
    ins += ", %offsete";
    inTypes += ", tensor<5xf64>";
    args += "%off: f64, ";
  }
  text += "    %h_e = tensor.empty(%n) : tensor<?x5xf64>\n"
          "    %hidden = linalg.generic {indexing_maps = [" +
          maps + "#mn], iterator_types = [\"parallel\", \"parallel\"]} ins(" +
          ins + " : " + inTypes +
          ") outs(%h_e : tensor<?x5xf64>) {\n    ^bb1(" + args +
          "%o: f64):\n      " + layer.activation + "\n";
  if (layer.shared)
    text += "      %t0 = arith.mulf %h, %alphae : f64\n"
            "      %t1 = arith.addf %t0, %off : f64\n"
            "      linalg.yield %t1 : f64\n";
  else
    text += "      linalg.yield %h : f64\n";
  text += "    } -> tensor<?x5xf64>\n";
  std::string hidden = "%hidden";
  if (layer.threeProducts) {
    text += product("middle", "%hidden", "%wme", 5, 5) +
            "    %mid = math.tanh %middle : tensor<?x5xf64>\n";
    hidden = "%mid";
  }
  text += product("y", hidden, "%w2e", 3, 5, layer.bias ? "%b2e" : "");
  if (layer.rowScalars)
    text += "    %scaled = linalg.generic {indexing_maps = [#mn, #one, #mn], "
            "iterator_types = [\"parallel\", \"parallel\"]} ins(%y, %s : "
            "tensor<?x3xf64>, tensor<?x1xf64>) outs(%y_e : tensor<?x3xf64>) {\n"
            "    ^bb1(%v: f64, %w: f64, %o: f64):\n"
            "      %p = arith.mulf %v, %w : f64\n"
            "      linalg.yield %p : f64\n    } -> tensor<?x3xf64>\n"
            "    moe.yield %scaled : tensor<?x3xf64>\n  }\n";
  else
    text += "    moe.yield %y : tensor<?x3xf64>\n  }\n";
  bool weighted = !layer.weightsOnInput && !layer.rowScalars;
  text += "  %result = moe.combine %out, %slots" +
          std::string(weighted ? " weights(%weights : " + scores + ")" : "") +
          " : " + rowsOf(3) + ", " + ids + " -> tensor<?x3xf64>\n" +
          "  return %result, %ids, %slots : tensor<?x3xf64>, " + ids + ", " +
          ids + "\n}\n";
  return text;
}

static std::vector<Argument> argumentsOf(const LayerText &layer,
                                         int64_t tokens) {
  int64_t E = layer.experts;
  std::vector<Argument> arguments = {randomArgument("x", {tokens, 4}, 1),
                                     randomArgument("router", {E, 4}, 2, -2, 2),
                                     randomArgument("w1", {E, 5, 4}, 3),
                                     randomArgument("w2", {E, 3, 5}, 4)};
  if (layer.gated)
    arguments.push_back(randomArgument("wg", {E, 5, 4}, 5));
  if (layer.threeProducts)
    arguments.push_back(randomArgument("wm", {E, 5, 5}, 6));
  if (layer.bias) {
    arguments.push_back(randomArgument("b1", {E, 5}, 7));
    arguments.push_back(randomArgument("b2", {E, 3}, 8));
  }
  if (layer.shared) {
    arguments.push_back(randomArgument("alpha", {}, 9));
    arguments.push_back(randomArgument("offset", {5}, 10));
  }
  return arguments;
}

/// The same bits from kernels, and whatever is kept.
static void checkBits(const std::string &text,
                      const std::vector<Argument> &arguments) {
  GradientProgram expected(text);
  Outputs plain = expected.runPlain(arguments);
  std::vector<Argument> seeds = makeSeeds(plain, 3);
  GradientRun a = expected.run(arguments, seeds);
  EXPECT_EQ(conformance::difference(plain, a.results), "") << text;
  for (bool recompute : {false, true}) {
    GradientOptions product;
    product.oracle = false;
    product.recompute = recompute;
    GradientProgram got(text, product);
    GradientRun b = got.run(arguments, seeds);
    EXPECT_EQ(conformance::difference(a.results, b.results), "") << text;
    EXPECT_EQ(conformance::difference(a.gradients, b.gradients), "")
        << text << "recompute " << recompute;
  }
}

static void check(const LayerText &layer, int64_t tokens = 7) {
  std::string text = print(layer);
  std::vector<Argument> arguments = argumentsOf(layer, tokens);
  for (bool recompute : {false, true}) {
    CheckOptions options;
    options.program.recompute = recompute;
    CheckCounts counts;
    EXPECT_EQ(checkGradients(text, arguments, options, &counts), "")
        << text << "recompute " << recompute;
    EXPECT_GT(counts.compared, 4 * counts.skipped);
  }
  // The same bits from kernels.
  GradientOptions product;
  product.oracle = false;
  GradientProgram expected(text), got(text, product);
  std::vector<Argument> seeds = expected.makeSeeds(arguments, 3);
  GradientRun a = expected.run(arguments, seeds), b = got.run(arguments, seeds);
  EXPECT_EQ(conformance::difference(a.results, b.results), "") << text;
  EXPECT_EQ(conformance::difference(a.gradients, b.gradients), "") << text;
}

static LayerText withActivation(const std::string &activation,
                                bool gated = false) {
  LayerText layer;
  layer.activation = activation;
  layer.gated = gated;
  return layer;
}

static const char *const silu = "%one = arith.constant 1.0 : f64\n"
                                "      %neg = arith.negf %a : f64\n"
                                "      %exp = math.exp %neg : f64\n"
                                "      %den = arith.addf %one, %exp : f64\n"
                                "      %s = arith.divf %a, %den : f64\n";

TEST(Layer, Relu) { check(LayerText()); }

TEST(Layer, ExactGelu) {
  check(
      withActivation("%half = arith.constant 0.5 : f64\n"
                     "      %one = arith.constant 1.0 : f64\n"
                     "      %root = arith.constant 0.70710678118654752 : f64\n"
                     "      %t0 = arith.mulf %a, %root : f64\n"
                     "      %t1 = math.erf %t0 : f64\n"
                     "      %t2 = arith.addf %t1, %one : f64\n"
                     "      %t3 = arith.mulf %a, %half : f64\n"
                     "      %h = arith.mulf %t3, %t2 : f64"));
}

TEST(Layer, TanhGelu) {
  check(
      withActivation("%half = arith.constant 0.5 : f64\n"
                     "      %one = arith.constant 1.0 : f64\n"
                     "      %c = arith.constant 0.044715 : f64\n"
                     "      %root = arith.constant 0.79788456080286536 : f64\n"
                     "      %q0 = arith.mulf %a, %a : f64\n"
                     "      %q1 = arith.mulf %q0, %a : f64\n"
                     "      %q2 = arith.mulf %q1, %c : f64\n"
                     "      %q3 = arith.addf %a, %q2 : f64\n"
                     "      %q4 = arith.mulf %q3, %root : f64\n"
                     "      %q5 = math.tanh %q4 : f64\n"
                     "      %q6 = arith.addf %q5, %one : f64\n"
                     "      %q7 = arith.mulf %a, %half : f64\n"
                     "      %h = arith.mulf %q7, %q6 : f64"));
}

TEST(Layer, Silu) {
  check(
      withActivation(std::string(silu) + "      %h = arith.addf %s, %s : f64"));
}

TEST(Layer, GatedSilu) {
  check(withActivation(std::string(silu) + "      %h = arith.mulf %s, %b : f64",
                       true));
}

TEST(Layer, ClampedAndBiased) {
  LayerText layer =
      withActivation("%low = arith.constant -0.7 : f64\n"
                     "      %high = arith.constant 0.6 : f64\n"
                     "      %k0 = arith.maximumf %a, %low : f64\n"
                     "      %k1 = arith.minimumf %k0, %high : f64\n"
                     "      %k2 = arith.minimumf %b, %high : f64\n"
                     "      %one = arith.constant 1.0 : f64\n"
                     "      %k3 = arith.addf %k1, %one : f64\n"
                     "      %h = arith.mulf %k3, %k2 : f64",
                     true);
  layer.bias = true;
  check(layer);
}

TEST(Layer, ThreeProducts) {
  LayerText layer;
  layer.threeProducts = true;
  layer.bias = true;
  check(layer);
}

TEST(Layer, WeightsOnInput) {
  LayerText layer = withActivation(
      std::string(silu) + "      %h = arith.mulf %s, %b : f64", true);
  layer.weightsOnInput = true;
  check(layer);
}

TEST(Layer, WeightsInTheBody) {
  LayerText layer;
  layer.rowScalars = true;
  check(layer);
}

TEST(Layer, SharedOperands) {
  LayerText layer;
  layer.shared = true;
  check(layer);
}

TEST(Layer, PaddedWithDrops) {
  LayerText layer;
  layer.padded = true;
  layer.capacity = "3";
  layer.bias = true;
  check(layer);
}

TEST(Layer, RaggedWithDrops) {
  LayerText layer;
  layer.capacity = "2";
  layer.bias = true;
  layer.router = "score = sigmoid";
  check(layer);
}

TEST(Layer, OneChoiceAndOneExpert) {
  LayerText layer;
  layer.choices = 1;
  layer.router = "";
  check(layer);
  layer.experts = 1;
  layer.router = "score = sigmoid";
  check(layer);
}

TEST(Layer, NoTokens) {
  LayerText layer;
  layer.bias = layer.gated = layer.shared = true;
  for (bool oracle : {true, false}) {
    GradientOptions options;
    options.oracle = oracle;
    GradientProgram program(print(layer), options);
    std::vector<Argument> arguments = argumentsOf(layer, 0);
    GradientRun run =
        program.run(arguments, {randomArgument("seed", {0, 3}, 1)});
    ASSERT_EQ(run.gradients.size(), arguments.size());
    for (const conformance::Output &gradient : run.gradients)
      for (double value : gradient.values())
        EXPECT_EQ(value, 0);
  }
}

/// All tokens prefer expert 1 of 3, and 2 fits: pairs of token t >= 2 of the
/// first choice are dropped.
TEST(Layer, EmptyExpertsAndDroppedPairsHaveZeros) {
  LayerText layer;
  layer.choices = 1;
  layer.capacity = "2";
  layer.bias = true;
  layer.router = "score = sigmoid";
  std::vector<Argument> arguments = argumentsOf(layer, 5);
  for (double &value : arguments[0].values)
    value = std::fabs(value) + 0.1;
  arguments[1].values = {-1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
  for (bool oracle : {true, false}) {
    GradientOptions options;
    options.oracle = oracle;
    GradientProgram program(print(layer), options);
    GradientRun run =
        program.run(arguments, {randomArgument("seed", {5, 3}, 1)});
    ASSERT_EQ(run.gradients.size(), 6u);
    for (size_t i = 2; i < 6; ++i) { // w1, w2, b1, b2
      std::vector<double> values = run.gradients[i].values();
      size_t size = values.size() / 3;
      for (size_t e = 0; e < values.size(); ++e)
        if (e / size != 1)
          EXPECT_TRUE(values[e] == 0 && !std::signbit(values[e]))
              << i << " " << e;
      double most = 0;
      for (double value : values)
        most = std::max(most, std::fabs(value));
      EXPECT_GT(most, 0) << i;
    }
    std::vector<double> dx = run.gradients[0].values();
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t d = 0; d < 4; ++d)
        EXPECT_EQ(dx[t * 4 + d] != 0, t < 2) << t;
  }
}

/// The first token loses its only expert; those after it keep the gradients of
/// their gates.
TEST(Layer, AFirstTokenThatIsDroppedHidesNoOther) {
  LayerText layer;
  layer.choices = 1;
  layer.router = "score = sigmoid";
  std::string text = print(layer);
  // Tokens by priority: the first comes last.
  std::string order = "moe.assign %ids choice_major";
  text.replace(text.find(order), order.size(),
               "moe.assign %ids batch_prioritized");
  std::string counts = "counts(%counts : tensor<3xi32>)";
  text.replace(text.find(counts), counts.size(),
               counts + " capacity(%two) priority(%priority : tensor<?xf32>)");
  text.replace(text.find("%x: tensor<?x4xf64>,"), 20,
               "%x: tensor<?x4xf64>, %priority: tensor<?xf32>,");
  text.replace(text.find("  %first ="), 0,
               "  %two = arith.constant 2 : index\n");
  std::vector<Argument> arguments = argumentsOf(layer, 3);
  for (double &value : arguments[0].values)
    value = std::fabs(value) + 0.1;
  arguments[1].values = {1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
  arguments.insert(arguments.begin() + 1, {"priority", "f32", {3}, {0, 2, 1}});
  GradientProgram program(text);
  std::vector<Argument> seeds = program.makeSeeds(arguments, 5);
  GradientRun run = program.run(arguments, seeds);
  ASSERT_EQ(run.results.size(), 3u);
  EXPECT_EQ(run.results[2].values(), (std::vector<double>{-1, 0, 1}));
  std::vector<double> dx = run.gradients[0].values();
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(dx[d], 0);
    EXPECT_NE(dx[4 + d], 0);
    EXPECT_NE(dx[8 + d], 0);
  }
  EXPECT_EQ(checkGradients(text, arguments), "");
}

/// Rows that no slot names hold anything: outside of experts, too, a sum over
/// rows leaves them out.
TEST(Layer, SumsOverDispatchedRowsLeaveOutTheTail) {
  for (bool padded : {false, true}) {
    LayerText layer;
    layer.capacity = "2";
    layer.padded = padded;
    std::string text = print(layer);
    std::string rows = padded ? "tensor<3x?x3xf64>" : "tensor<?x3xf64>";
    size_t at = text.find("  %result = moe.combine %out");
    text.replace(text.find("%out,", at), 5, "%all,");
    text.insert(at,
                std::string("  %d1 = arith.constant 1 : index\n"
                            "  %count = tensor.dim %out, ") +
                    (padded ? "%d1" : "%first") + " : " + rows +
                    "\n  %all_e = tensor.empty(%count) : " + rows +
                    "\n  %all = linalg.generic {indexing_maps = [" +
                    (padded ? "affine_map<(e, p, n) -> (e, p, n)>, "
                              "affine_map<(e, p, n) -> (n)>, "
                              "affine_map<(e, p, n) -> (e, p, n)>]"
                            : "#mn, #col, #mn]") +
                    ", iterator_types = [" + (padded ? "\"parallel\", " : "") +
                    "\"parallel\", \"parallel\"]} ins(%out, %scale : " + rows +
                    ", tensor<3xf64>) outs(%all_e : " + rows +
                    ") {\n  ^bb0(%a: f64, %b: f64, %o: f64):\n"
                    "    %p = arith.mulf %a, %b : f64\n"
                    "    linalg.yield %p : f64\n  } -> " +
                    rows + "\n");
    std::string end = ") -> (tensor<?x3xf64>, tensor<?x2xi32>";
    text.replace(text.find(end), 1,
                 ", %scale: tensor<3xf64> {moe.param = "
                 "#moe.param<\"scale\">})");
    std::vector<Argument> arguments = argumentsOf(layer, 6);
    arguments.push_back(randomArgument("scale", {3}, 11));
    EXPECT_EQ(checkGradients(text, arguments), "") << text;
  }
}

/// A layer of 16-bit types as public implementations have it: every product is
/// rounded at once, so that rounded values are kept for the way back.
TEST(Layer, RoundedProducts) {
  for (std::string type : {"bf16", "f16"}) {
    std::string text = R"(
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn2 = affine_map<(m, n, k) -> (m, n)>
#mn = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<?x6xTYPE>, %sizes: tensor<3xi32>,
    %gate: tensor<3x5x6xTYPE> {moe.param = #moe.param<"gate">},
    %up: tensor<3x5x6xTYPE> {moe.param = #moe.param<"up">},
    %down: tensor<3x4x5xTYPE> {moe.param = #moe.param<"down">})
    -> tensor<?x4xTYPE> {
  %out = moe.expert rows(%x : tensor<?x6xTYPE>) groups(%sizes : tensor<3xi32>)
      per_expert(%gate, %up, %down : tensor<3x5x6xTYPE>, tensor<3x5x6xTYPE>,
                 tensor<3x4x5xTYPE>) -> tensor<?x4xTYPE> {
  ^bb0(%r: tensor<?x6xTYPE>, %g: tensor<5x6xTYPE>, %u: tensor<5x6xTYPE>,
       %d: tensor<4x5xTYPE>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x6xTYPE>
    %e = tensor.empty(%n) : tensor<?x5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5xf32>)
        -> tensor<?x5xf32>
    %a = linalg.matmul indexing_maps = [#mk, #nk, #mn2]
        ins(%r, %g : tensor<?x6xTYPE>, tensor<5x6xTYPE>)
        outs(%f : tensor<?x5xf32>) -> tensor<?x5xf32>
    %b = linalg.matmul indexing_maps = [#mk, #nk, #mn2]
        ins(%r, %u : tensor<?x6xTYPE>, tensor<5x6xTYPE>)
        outs(%f : tensor<?x5xf32>) -> tensor<?x5xf32>
    %he = tensor.empty(%n) : tensor<?x5xTYPE>
    %h = linalg.generic {indexing_maps = [#mn, #mn, #mn],
                         iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<?x5xf32>, tensor<?x5xf32>)
        outs(%he : tensor<?x5xTYPE>) {
    ^bb1(%a0: f32, %b0: f32, %o: TYPE):
      %a1 = arith.truncf %a0 : f32 to TYPE
      %a2 = arith.extf %a1 : TYPE to f32
      %b1 = arith.truncf %b0 : f32 to TYPE
      %b2 = arith.extf %b1 : TYPE to f32
      %one = arith.constant 1.0 : f32
      %neg = arith.negf %a2 : f32
      %exp = math.exp %neg : f32
      %den = arith.addf %one, %exp : f32
      %s0 = arith.divf %a2, %den : f32
      %s1 = arith.truncf %s0 : f32 to TYPE
      %s2 = arith.extf %s1 : TYPE to f32
      %p0 = arith.mulf %s2, %b2 : f32
      %p1 = arith.truncf %p0 : f32 to TYPE
      linalg.yield %p1 : TYPE
    } -> tensor<?x5xTYPE>
    %ye = tensor.empty(%n) : tensor<?x4xf32>
    %yf = linalg.fill ins(%zero : f32) outs(%ye : tensor<?x4xf32>)
        -> tensor<?x4xf32>
    %y = linalg.matmul indexing_maps = [#mk, #nk, #mn2]
        ins(%h, %d : tensor<?x5xTYPE>, tensor<4x5xTYPE>)
        outs(%yf : tensor<?x4xf32>) -> tensor<?x4xf32>
    %te = tensor.empty(%n) : tensor<?x4xTYPE>
    %t = linalg.generic {indexing_maps = [#mn, #mn],
                         iterator_types = ["parallel", "parallel"]}
        ins(%y : tensor<?x4xf32>) outs(%te : tensor<?x4xTYPE>) {
    ^bb1(%y0: f32, %o: TYPE):
      %y1 = arith.truncf %y0 : f32 to TYPE
      linalg.yield %y1 : TYPE
    } -> tensor<?x4xTYPE>
    moe.yield %t : tensor<?x4xTYPE>
  }
  return %out : tensor<?x4xTYPE>
}
)";
    for (size_t at; (at = text.find("TYPE")) != std::string::npos;)
      text.replace(at, 4, type);
    std::vector<Argument> arguments = {randomArgument("x", {9, 6}, 1),
                                       {"sizes", "i32", {3}, {4, 0, 5}},
                                       randomArgument("gate", {3, 5, 6}, 2),
                                       randomArgument("up", {3, 5, 6}, 3),
                                       randomArgument("down", {3, 4, 5}, 4)};
    for (Argument &argument : arguments) {
      if (argument.name == "sizes")
        continue;
      argument.elementType = type;
      for (double &value : argument.values)
        value = std::round(value * 64) / 64;
    }
    checkBits(text, arguments);
  }
}
