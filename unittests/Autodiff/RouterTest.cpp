// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients through gates: every option of a router against differences, and
// the traps of published implementations.

#include "Autodiff/GradientProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace moira;
using namespace moira::autodiff;

namespace {

/// A gate of f64 logits [T, E]: what stands in its text.
struct Gate {
  std::string router, options, arguments;
  int64_t tokens = 5, experts = 6, choices = 2;
};

} // namespace

static std::string print(const Gate &gate) {
  std::string experts = std::to_string(gate.experts),
              choices = std::to_string(gate.choices);
  return "func.func @main(%logits: tensor<?x" + experts + "xf64>" +
         gate.arguments + ") -> (tensor<?x" + choices + "xf64>, tensor<?x" +
         choices +
         "xi32>) {\n  %two = arith.constant 2 : index\n"
         "  %limit = arith.constant 0.2 : f64\n"
         "  %ids, %weights = moe.gate %logits router<" +
         gate.router + "> " + gate.options + "\n      : tensor<?x" + experts +
         "xf64> -> tensor<?x" + choices + "xi32>, tensor<?x" + choices +
         "xf64>\n  return %weights, %ids : tensor<?x" + choices +
         "xf64>, tensor<?x" + choices + "xi32>\n}\n";
}

static Argument logitsOf(const Gate &gate) {
  return randomArgument("logits", {gate.tokens, gate.experts}, 3, 0.2, 2);
}

static void check(const Gate &gate, std::vector<Argument> others = {},
                  double low = 0.2, double high = 2) {
  std::vector<Argument> arguments = {
      randomArgument("logits", {gate.tokens, gate.experts}, 3, low, high)};
  arguments.insert(arguments.end(), others.begin(), others.end());
  for (bool oracle : {true, false}) {
    CheckOptions options;
    options.program.oracle = oracle;
    CheckCounts counts;
    EXPECT_EQ(checkGradients(print(gate), arguments, options, &counts), "")
        << print(gate) << (oracle ? "oracle" : "product");
    EXPECT_GT(counts.compared, 10u);
    EXPECT_EQ(counts.skipped, 0u);
  }
}

TEST(Router, ScoresAndNormalisations) {
  for (const char *score : {"softmax", "sigmoid", "sqrtsoftplus", "identity"})
    for (const char *normalize :
         {"none", "sum_plus_eps, eps = 0.125", "max_sum_eps, eps = 0.0625",
          "max_sum_eps, eps = 64.0"})
      check({std::string("score = ") + score + ", normalize = " + normalize +
                 ", scale = 2.5",
             "", ""});
}

TEST(Router, ScoresAfterTheChoice) {
  for (const char *score : {"softmax", "sigmoid"})
    for (const char *normalize : {"none", "sum_plus_eps, eps = 0.125"})
      check({std::string("score = ") + score +
                 ", after_top_k, normalize = " + normalize,
             "", "", 5, 6, 3});
}

TEST(Router, GroupsAndBias) {
  Argument bias = {"bias", "f64", {6}, {0.3, -0.2, 0.1, 0, -0.4, 0.2}};
  Gate gate = {"score = sigmoid, groups = 3, keep = 2, group_score = sum_top2, "
               "normalize = sum_plus_eps, eps = 1.0e-20",
               "bias(%bias : tensor<6xf64>)", ", %bias: tensor<6xf64>"};
  check(gate, {bias});
  gate.router = "groups = 2, keep = 1";
  check(gate, {bias});
  // A bias selects only: its gradient is 0 (which the check above compares).
}

TEST(Router, MasksThresholdsAndRunTimeChoices) {
  Argument mask = {"mask", "i1", {5}, {1, 0, 1, 1, 0}};
  for (const char *after : {"", "after_top_k, "}) {
    std::string router = std::string(after) + "normalize = max_sum_eps";
    check({router, "mask(%mask : tensor<?xi1>)", ", %mask: tensor<?xi1>"},
          {mask});
    check({router, "threshold(%limit : f64)", "", 5, 6, 3}, {}, -2, 2);
    check({router, "top_k(%two)", "", 5, 6, 4});
  }
}

TEST(Router, SampledSecondChoices) {
  Argument draws = {"sample", "f32", {5}, {0.9, 0.1, 0.5, 0.2, 0.99}};
  for (const char *after : {"", "after_top_k, "})
    check({std::string(after) + "normalize = sum_plus_eps, eps = 0.125",
           "sample(%sample : tensor<?xf32>)", ", %sample: tensor<?xf32>"},
          {draws});
}

TEST(Router, ReplayedChoices) {
  Argument replay = {
      "replay", "i32", {5, 2}, {0, 5, 1, -1, -1, -1, 3, 2, 4, 0}};
  for (const char *score : {"softmax", "sigmoid"})
    check({std::string("score = ") + score + ", normalize = max_sum_eps",
           "replay(%replay : tensor<?x2xi32>)", ", %replay: tensor<?x2xi32>"},
          {replay});
}

TEST(Router, ExpertsThatChoose) {
  check({"expert_choice", "capacity(%two)", "", 5, 4, 4});
  check({"score = sigmoid, expert_choice, normalize = sum_plus_eps, eps = 0.5",
         "capacity(%two)", "", 5, 4, 4});
}

TEST(Router, OneExpert) {
  check({"score = sigmoid", "", "", 11, 1, 1});
  GradientProgram program(print({"", "", "", 3, 1, 1}));
  GradientRun run = program.run({logitsOf({"", "", "", 3, 1, 1})},
                                {{"d", "f64", {3, 1}, {1, 2, 3}}});
  ASSERT_EQ(run.gradients.size(), 1u);
  EXPECT_EQ(run.gradients[0].values(), std::vector<double>(3, 0));
}

TEST(Router, OneChoiceKeepsAGradientWhereScoresComeFirst) {
  Gate gate = {"", "", "", 5, 6, 1};
  check(gate);
  GradientProgram program(print(gate));
  GradientRun run =
      program.run({logitsOf(gate)}, {{"d", "f64", {5, 1}, {1, 1, 1, 1, 1}}});
  ASSERT_EQ(run.gradients.size(), 1u);
  for (double value : run.gradients[0].values())
    EXPECT_NE(value, 0);
}

TEST(Router, LogitsThatAreNotFiniteDoNotSpread) {
  const double infinity = std::numeric_limits<double>::infinity();
  Gate gate = {"normalize = sum_plus_eps", "", "", 3, 4, 2};
  Argument logits = {"logits",
                     "f64",
                     {3, 4},
                     {1, 2, -infinity, 0.5, std::nan(""), 1, 2, 3, -infinity,
                      -infinity, -infinity, -infinity}};
  for (bool oracle : {true, false}) {
    GradientOptions options;
    options.oracle = oracle;
    GradientProgram program(print(gate), options);
    GradientRun run =
        program.run({logits}, {{"d", "f64", {3, 2}, {1, -1, 0.5, 2, 3, 4}}});
    ASSERT_EQ(run.gradients.size(), 1u);
    std::vector<double> values = run.gradients[0].values();
    for (double value : values)
      EXPECT_TRUE(std::isfinite(value));
    for (int i : {2, 4, 8, 9, 10, 11})
      EXPECT_EQ(values[i], 0) << i;
    EXPECT_NE(values[1], 0);
    EXPECT_NE(values[7], 0);
  }
}
