// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of scalar derivatives: every operation against differences, and
// against numbers where it has a kink.

#include "Autodiff/GradientProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace moira;
using namespace moira::autodiff;

namespace {

/// An operation on vectors: its text with %0, %1 for operands, where the result
/// is %y, and where to try it.
struct ScalarCase {
  std::string name, text;
  std::vector<std::vector<double>> at;
};

} // namespace

static std::string operandName(const ScalarCase &c, size_t i) {
  return c.name + "_" + std::to_string(i);
}

/// One function with a vector per operand and per operation.
static std::string printProgram(const std::vector<ScalarCase> &cases,
                                const std::string &type = "f64") {
  std::string arguments, body, results, types;
  for (const ScalarCase &c : cases) {
    std::string vector =
        "tensor<" + std::to_string(c.at[0].size()) + "x" + type + ">";
    std::string ins, inTypes, blockArgs, maps;
    for (size_t i = 0; i < c.at.size(); ++i) {
      std::string sep = i ? ", " : "";
      arguments +=
          (arguments.empty() ? "%" : ", %") + operandName(c, i) + ": " + vector;
      ins += sep + "%" + operandName(c, i);
      inTypes += sep + vector;
      blockArgs += "%" + std::to_string(i) + ": " + type + ", ";
      maps += "#id, ";
    }
    std::string text = c.text;
    body += "  %" + c.name + "_e = tensor.empty() : " + vector + "\n  %" +
            c.name + "_r = linalg.generic {indexing_maps = [" + maps +
            "#id], iterator_types = [\"parallel\"]} ins(" + ins + " : " +
            inTypes + ") outs(%" + c.name + "_e : " + vector + ") {\n" +
            "  ^bb0(";
    // Names of block arguments may not be numbers.
    for (size_t i = 0; i < c.at.size(); ++i)
      body += "%a" + std::to_string(i) + ": " + type + ", ";
    body += "%o: " + type + "):\n    " + text +
            "\n    linalg.yield %y : " + type + "\n  } -> " + vector + "\n";
    results += (results.empty() ? "%" : ", %") + c.name + "_r";
    types += (types.empty() ? "" : ", ") + vector;
  }
  return "#id = affine_map<(i) -> (i)>\nfunc.func @main(" + arguments +
         ") -> (" + types + ") {\n" + body + "  return " + results + " : " +
         types + "\n}\n";
}

static std::vector<Argument> argumentsOf(const std::vector<ScalarCase> &cases,
                                         const std::string &type = "f64") {
  std::vector<Argument> arguments;
  for (const ScalarCase &c : cases)
    for (size_t i = 0; i < c.at.size(); ++i)
      arguments.push_back({operandName(c, i),
                           type,
                           {static_cast<int64_t>(c.at[i].size())},
                           c.at[i]});
  return arguments;
}

static ScalarCase unary(const std::string &dialect, const std::string &name,
                        std::vector<double> at) {
  return {name, "%y = " + dialect + "." + name + " %a0 : f64", {at}};
}

static ScalarCase binary(const std::string &dialect, const std::string &name,
                         std::vector<double> a, std::vector<double> b) {
  return {name, "%y = " + dialect + "." + name + " %a0, %a1 : f64", {a, b}};
}

TEST(Scalar, UnaryAgreesWithDifferences) {
  const std::vector<double> any = {-2.3, -0.7, -0.01, 0.4, 1.9},
                            positive = {0.03, 0.4, 1.3, 2, 9.5},
                            small = {-0.9, -0.3, 0.02, 0.5, 0.88};
  std::vector<ScalarCase> cases = {unary("arith", "negf", any),
                                   unary("math", "absf", any),
                                   unary("math", "exp", any),
                                   unary("math", "exp2", any),
                                   unary("math", "expm1", any),
                                   unary("math", "log", positive),
                                   unary("math", "log2", positive),
                                   unary("math", "log10", positive),
                                   unary("math", "log1p", small),
                                   unary("math", "sqrt", positive),
                                   unary("math", "rsqrt", positive),
                                   unary("math", "cbrt", positive),
                                   unary("math", "tanh", any),
                                   unary("math", "erf", any),
                                   unary("math", "erfc", any),
                                   unary("math", "sin", any),
                                   unary("math", "cos", any),
                                   unary("math", "tan", small),
                                   unary("math", "sinh", any),
                                   unary("math", "cosh", any),
                                   unary("math", "asin", small),
                                   unary("math", "acos", small),
                                   unary("math", "atan", any),
                                   unary("math", "asinh", any),
                                   unary("math", "acosh", {1.2, 2, 3.5}),
                                   unary("math", "atanh", small),
                                   unary("math", "floor", any),
                                   unary("math", "ceil", any),
                                   unary("math", "round", any),
                                   unary("math", "roundeven", any),
                                   unary("math", "trunc", any)};
  EXPECT_EQ(checkGradients(printProgram(cases), argumentsOf(cases)), "");
}

TEST(Scalar, BinaryAgreesWithDifferences) {
  const std::vector<double> a = {-2.3, -0.7, 0.4, 1.9, 3},
                            b = {1.7, -0.4, -2.2, 0.8, 2.5},
                            positive = {0.3, 1.2, 2.1, 0.7, 4};
  std::vector<ScalarCase> cases = {
      binary("arith", "addf", a, b),
      binary("arith", "subf", a, b),
      binary("arith", "mulf", a, b),
      binary("arith", "divf", a, b),
      binary("arith", "remf", a, b),
      binary("arith", "maximumf", a, b),
      binary("arith", "minimumf", a, b),
      binary("arith", "maxnumf", a, b),
      binary("arith", "minnumf", a, b),
      binary("math", "powf", positive, b),
      binary("math", "atan2", a, b),
      binary("math", "copysign", a, b),
      {"fma", "%y = math.fma %a0, %a1, %a2 : f64", {a, b, positive}},
      {"clampf",
       "%y = math.clampf %a0 to [%a1, %a2] : f64",
       {{-3, -0.2, 0.9, 2, 5}, {-1, -1, -1, -1, -1}, {1, 1, 1, 1, 1}}},
      {"crossed",
       "%y = math.clampf %a0 to [%a1, %a2] : f64",
       {{-3, 0, 3}, {2, 2, 2}, {1, 1, 1}}},
      {"select",
       "%c = arith.cmpf ogt, %a0, %a1 : f64\n"
       "    %y = arith.select %c, %a1, %a2 : f64",
       {a, b, positive}},
      {"fpowi",
       "%n = arith.constant 3 : i32\n"
       "    %y = math.fpowi %a0, %n : f64, i32",
       {a}},
      {"fpowi0",
       "%n = arith.constant 0 : i32\n"
       "    %y = math.fpowi %a0, %n : f64, i32",
       {{0, 1, -2}}},
      {"square", "%y = arith.mulf %a0, %a0 : f64", {a}}};
  EXPECT_EQ(checkGradients(printProgram(cases), argumentsOf(cases)), "");
}

/// Gradients of the first operands with seeds of 1.
static std::vector<std::vector<double>>
gradientsAt(const std::vector<ScalarCase> &cases) {
  std::vector<Argument> seeds;
  for (const ScalarCase &c : cases)
    seeds.push_back({"seed",
                     "f64",
                     {static_cast<int64_t>(c.at[0].size())},
                     std::vector<double>(c.at[0].size(), 1)});
  GradientProgram program(printProgram(cases));
  std::vector<std::vector<double>> values;
  for (const conformance::Output &output :
       program.run(argumentsOf(cases), seeds).gradients)
    values.push_back(output.values());
  return values;
}

TEST(Scalar, KinksGoAsPyTorchs) {
  const double infinity = std::numeric_limits<double>::infinity();
  auto withConstant = [](const std::string &name, const std::string &op,
                         const std::string &constant, std::vector<double> at) {
    return ScalarCase{name,
                      "%c = arith.constant " + constant +
                          " : f64\n    %y = arith." + op + " %a0, %c : f64",
                      {std::move(at)}};
  };
  std::vector<ScalarCase> cases = {
      withConstant("relu", "maximumf", "0.0", {-1, 0, 1, -infinity}),
      withConstant("most", "maximumf", "2.0", {1, 2, 3}),
      withConstant("least", "minimumf", "2.0", {1, 2, 3}),
      withConstant("relumin", "minimumf", "0.0", {-1, 0, 1}),
      unary("math", "absf", {-1, 0, 1}),
      {"clampf",
       "%l = arith.constant -1.0 : f64\n    %h = arith.constant 1.0 : f64\n"
       "    %y = math.clampf %a0 to [%l, %h] : f64",
       {{-2, -1, 0, 1, 2}}},
      binary("arith", "maximumf", {1, 2, 3}, {2, 2, 2}),
      binary("arith", "maxnumf", {1, 2, std::nan("")}, {2, 2, 2}),
      {"silu",
       "%one = arith.constant 1.0 : f64\n    %n = arith.negf %a0 : f64\n"
       "    %e = math.exp %n : f64\n    %d = arith.addf %one, %e : f64\n"
       "    %y = arith.divf %a0, %d : f64",
       {{-infinity, -1000, 0, 1000}}},
      binary("math", "powf", {0, 0, 2}, {0, 2, 0})};
  cases.front().at[0].pop_back();
  cases[8].at[0].erase(cases[8].at[0].begin());
  std::vector<std::vector<double>> got = gradientsAt(cases);
  std::vector<std::vector<double>> expected = {{0, 0, 1},
                                               {0, 1, 1},
                                               {1, 1, 0},
                                               {1, 0, 0},
                                               {-1, 0, 1},
                                               {0, 1, 1, 1, 0},
                                               {0, 0.5, 1},
                                               {1, 0.5, 0},
                                               {0, 1, 0},
                                               {1, 0, 1},
                                               {0, 0.5, 1},
                                               {0, 0, 0},
                                               {0, 0, std::log(2.0)}};
  EXPECT_EQ(got, expected);
}

TEST(Scalar, OperationsWithoutARuleAreNamed) {
  auto error = [](const std::string &text) {
    return getDifferentiationError(printProgram({{"x", text, {{1, 2}}}}));
  };
  EXPECT_EQ(error("%s, %y = math.sincos %a0 : f64"),
            "'math.sincos' op expected a scalar operation with a derivative, "
            "got one without a rule");
  EXPECT_EQ(
      error("%t = arith.truncf %a0 : f64 to f16\n"
            "    %b = arith.bitcast %t : f16 to bf16\n"
            "    %y = arith.extf %b : bf16 to f64"),
      "'arith.bitcast' op expected a scalar operation with a derivative, got "
      "one without a rule");
}
