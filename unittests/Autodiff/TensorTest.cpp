// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that move elements against differences.

#include "Autodiff/GradientProgram.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::autodiff;

static std::string program(const std::string &arguments,
                           const std::string &body, const std::string &result) {
  return "func.func @main(" + arguments + ") -> " + result + " {\n" + body +
         "  return %y : " + result + "\n}\n";
}

static Argument a(const std::string &name, std::vector<int64_t> shape) {
  return randomArgument(name, shape, name[0] + shape.size());
}

static void check(const std::string &text, const std::vector<Argument> &args) {
  CheckCounts counts;
  EXPECT_EQ(checkGradients(text, args, {}, &counts), "") << text;
  EXPECT_GT(counts.compared, 0u);
}

TEST(Tensor, Slices) {
  check(program("%x: tensor<?x7xf64>, %z: tensor<2x3xf64>", R"(
  %0 = tensor.extract_slice %x[1, 1] [2, 3] [1, 2]
      : tensor<?x7xf64> to tensor<2x3xf64>
  %1 = math.sin %0 : tensor<2x3xf64>
  %2 = arith.mulf %1, %z : tensor<2x3xf64>
  %3 = math.exp %x : tensor<?x7xf64>
  %4 = tensor.insert_slice %2 into %3[0, 2] [2, 3] [1, 1]
      : tensor<2x3xf64> into tensor<?x7xf64>
  %y = tensor.extract_slice %4[0, 0] [1, 6] [1, 1]
      : tensor<?x7xf64> to tensor<6xf64>
)",
                "tensor<6xf64>"),
        {a("x", {3, 7}), a("z", {2, 3})});
}

TEST(Tensor, Shapes) {
  check(program("%x: tensor<?x6xf64>", R"(
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x6xf64>
  %0 = tensor.expand_shape %x [[0], [1, 2]] output_shape [%n, 2, 3]
      : tensor<?x6xf64> into tensor<?x2x3xf64>
  %1 = math.sin %0 : tensor<?x2x3xf64>
  %2 = tensor.collapse_shape %1 [[0, 1], [2]]
      : tensor<?x2x3xf64> into tensor<?x3xf64>
  %y = math.exp %2 : tensor<?x3xf64>
)",
                "tensor<?x3xf64>"),
        {a("x", {2, 6})});
}

TEST(Tensor, ConcatenationPaddingAndCasts) {
  check(program("%x: tensor<?x2xf64>, %z: tensor<?x3xf64>", R"(
  %0 = tensor.concat dim(1) %x, %z, %x
      : (tensor<?x2xf64>, tensor<?x3xf64>, tensor<?x2xf64>) -> tensor<?x7xf64>
  %1 = math.sin %0 : tensor<?x7xf64>
  %pad = arith.constant 0.5 : f64
  %2 = tensor.pad %1 low[1, 0] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %pad : f64
  } : tensor<?x7xf64> to tensor<?x9xf64>
  %3 = math.exp %2 : tensor<?x9xf64>
  %4 = tensor.cast %3 : tensor<?x9xf64> to tensor<3x9xf64>
  %y = arith.mulf %4, %4 : tensor<3x9xf64>
)",
                "tensor<3x9xf64>"),
        {a("x", {2, 2}), a("z", {2, 3})});
}

TEST(Tensor, Elements) {
  check(program("%x: tensor<3x4xf64>, %s: f64", R"(
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %0 = tensor.extract %x[%c2, %c1] : tensor<3x4xf64>
  %1 = arith.mulf %0, %s : f64
  %2 = tensor.insert %1 into %x[%c1, %c1] : tensor<3x4xf64>
  %3 = tensor.splat %1 : tensor<3x4xf64>
  %4 = arith.mulf %2, %3 : tensor<3x4xf64>
  %5 = tensor.from_elements %s, %0, %1, %1 : tensor<2x2xf64>
  %6 = tensor.extract_slice %4[0, 0] [2, 2] [1, 1]
      : tensor<3x4xf64> to tensor<2x2xf64>
  %y = arith.mulf %5, %6 : tensor<2x2xf64>
)",
                "tensor<2x2xf64>"),
        {a("x", {3, 4}), a("s", {})});
}

TEST(Tensor, UnusedValuesHaveExactZeros) {
  GradientProgram program(R"(
func.func @main(%x: tensor<?x2xf64>, %ids: tensor<?xi32>,
    %w: tensor<2x3xf64> {moe.param = #moe.param<"w">}, %s: f64)
    -> (tensor<?x2xf64>, tensor<?xi32>) {
  %y = math.floor %x : tensor<?x2xf64>
  return %y, %ids : tensor<?x2xf64>, tensor<?xi32>
}
)");
  std::vector<Argument> arguments = {
      a("x", {3, 2}), {"ids", "i32", {2}, {1, 2}}, a("w", {2, 3}), a("s", {})};
  GradientRun run = program.run(arguments, {a("seed", {3, 2})});
  ASSERT_EQ(run.gradients.size(), 3u);
  EXPECT_EQ(run.gradients[0].values(), std::vector<double>(6, 0));
  EXPECT_EQ(run.gradients[1].values(), std::vector<double>(1, 0));
  EXPECT_EQ(run.gradients[2].values(), std::vector<double>(6, 0));
  EXPECT_EQ(program.getArgument(2), 2u);
}

TEST(Tensor, OpsWithoutARuleAreNamed) {
  EXPECT_EQ(getDifferentiationError(
                program("%x: tensor<4xf64>, %i: tensor<2x1xi32>", R"(
  %y = tensor.gather %x[%i] gather_dims([0])
      : (tensor<4xf64>, tensor<2x1xi32>) -> tensor<2xf64>
)",
                        "tensor<2xf64>")),
            "'tensor.gather' op expected an op with a rule for its gradient, "
            "got one without");
  EXPECT_EQ(getDifferentiationError(program("%x: tensor<4xf64>, %s: f64", R"(
  %y = tensor.pad %x low[1] high[0] {
  ^bb0(%i: index):
    tensor.yield %s : f64
  } : tensor<4xf64> to tensor<5xf64>
)",
                                            "tensor<5xf64>")),
            "'tensor.pad' op expected padding with a constant to "
            "differentiate");
  EXPECT_EQ(getDifferentiationError(program("%x: tensor<4xf64>, %c: i1", R"(
  %y = scf.if %c -> tensor<4xf64> {
    scf.yield %x : tensor<4xf64>
  } else {
    %z = math.exp %x : tensor<4xf64>
    scf.yield %z : tensor<4xf64>
  }
)",
                                            "tensor<4xf64>")),
            "'scf.if' op expected an op with a rule for its gradient, got one "
            "without");
}
