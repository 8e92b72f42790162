// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every form of linalg op against differences.

#include "Autodiff/GradientProgram.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::autodiff;

/// `body` computes %y of `result` from the arguments, all f64.
static std::string program(const std::string &arguments,
                           const std::string &body, const std::string &result) {
  return R"(
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#col = affine_map<(m, n) -> (n)>
#all = affine_map<(m, n) -> ()>
#swap = affine_map<(m, n) -> (n, m)>
func.func @main()" +
         arguments + ") -> " + result +
         " {\n  %zero = arith.constant 0.0 : f64\n" + body +
         "  return %y : " + result + "\n}\n";
}

static Argument a(const std::string &name, std::vector<int64_t> shape,
                  double low = -1, double high = 1) {
  return randomArgument(name, shape, name[0] * 7 + shape.size(), low, high);
}

static void check(const std::string &text, const std::vector<Argument> &args) {
  for (bool recompute : {false, true}) {
    CheckOptions options;
    options.program.recompute = recompute;
    CheckCounts counts;
    EXPECT_EQ(checkGradients(text, args, options, &counts), "") << text;
    EXPECT_GT(counts.compared, 0u);
    EXPECT_EQ(counts.skipped, 0u);
  }
}

TEST(Linalg, Products) {
  check(program("%x: tensor<3x5xf64>, %w: tensor<4x5xf64>, %c: tensor<3x4xf64>",
                R"(
  %y = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %w : tensor<3x5xf64>, tensor<4x5xf64>)
      outs(%c : tensor<3x4xf64>) -> tensor<3x4xf64>
)",
                "tensor<3x4xf64>"),
        {a("x", {3, 5}), a("w", {4, 5}), a("c", {3, 4})});
  check(program("%x: tensor<2x3x5xf64>, %w: tensor<2x5x4xf64>", R"(
  %e = tensor.empty() : tensor<2x3x4xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<2x3x4xf64>)
      -> tensor<2x3x4xf64>
  %y = linalg.batch_matmul ins(%x, %w : tensor<2x3x5xf64>, tensor<2x5x4xf64>)
      outs(%f : tensor<2x3x4xf64>) -> tensor<2x3x4xf64>
)",
                "tensor<2x3x4xf64>"),
        {a("x", {2, 3, 5}), a("w", {2, 5, 4})});
  check(program("%x: tensor<3x5xf64>, %v: tensor<5xf64>", R"(
  %e = tensor.empty() : tensor<3xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<3xf64>) -> tensor<3xf64>
  %0 = linalg.matvec ins(%x, %v : tensor<3x5xf64>, tensor<5xf64>)
      outs(%f : tensor<3xf64>) -> tensor<3xf64>
  %1 = tensor.empty() : tensor<5xf64>
  %2 = linalg.fill ins(%zero : f64) outs(%1 : tensor<5xf64>) -> tensor<5xf64>
  %3 = linalg.vecmat ins(%0, %x : tensor<3xf64>, tensor<3x5xf64>)
      outs(%2 : tensor<5xf64>) -> tensor<5xf64>
  %4 = tensor.empty() : tensor<f64>
  %5 = linalg.fill ins(%zero : f64) outs(%4 : tensor<f64>) -> tensor<f64>
  %y = linalg.dot ins(%3, %v : tensor<5xf64>, tensor<5xf64>)
      outs(%5 : tensor<f64>) -> tensor<f64>
)",
                "tensor<f64>"),
        {a("x", {3, 5}), a("v", {5})});
}

TEST(Linalg, ProductsOfOneTensor) {
  // x x^T: both operands are one value.
  check(program("%x: tensor<3x5xf64>", R"(
  %e = tensor.empty() : tensor<3x3xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<3x3xf64>)
      -> tensor<3x3xf64>
  %y = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %x : tensor<3x5xf64>, tensor<3x5xf64>)
      outs(%f : tensor<3x3xf64>) -> tensor<3x3xf64>
)",
                "tensor<3x3xf64>"),
        {a("x", {3, 5})});
}

TEST(Linalg, DynamicSizes) {
  check(program("%x: tensor<?x5xf64>, %b: tensor<5xf64>, %s: f64", R"(
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x5xf64>
  %e = tensor.empty(%n) : tensor<?x5xf64>
  %y = linalg.generic {indexing_maps = [#id, #col, #all, #id],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %b, %s : tensor<?x5xf64>, tensor<5xf64>, f64)
      outs(%e : tensor<?x5xf64>) {
  ^bb0(%0: f64, %1: f64, %2: f64, %o: f64):
    %3 = arith.addf %0, %1 : f64
    %4 = math.tanh %3 : f64
    %5 = arith.mulf %4, %2 : f64
    linalg.yield %5 : f64
  } -> tensor<?x5xf64>
)",
                "tensor<?x5xf64>"),
        {a("x", {3, 5}), a("b", {5}), a("s", {})});
}

TEST(Linalg, CapturedScalars) {
  check(program("%x: tensor<3x5xf64>, %s: f64", R"(
  %t = math.exp %s : f64
  %e = tensor.empty() : tensor<5x3xf64>
  %y = linalg.generic {indexing_maps = [#id, #swap],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<3x5xf64>) outs(%e : tensor<5x3xf64>) {
  ^bb0(%0: f64, %o: f64):
    %1 = arith.mulf %0, %t : f64
    %2 = arith.divf %1, %s : f64
    linalg.yield %2 : f64
  } -> tensor<5x3xf64>
)",
                "tensor<5x3xf64>"),
        {a("x", {3, 5}), a("s", {}, 0.5, 1)});
}

TEST(Linalg, AccumulatorsOfElementwiseOps) {
  check(program("%x: tensor<3x5xf64>, %z: tensor<3x5xf64>", R"(
  %y = linalg.generic {indexing_maps = [#id, #id],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<3x5xf64>) outs(%z : tensor<3x5xf64>) {
  ^bb0(%0: f64, %o: f64):
    %1 = arith.mulf %0, %o : f64
    linalg.yield %1 : f64
  } -> tensor<3x5xf64>
)",
                "tensor<3x5xf64>"),
        {a("x", {3, 5}), a("z", {3, 5})});
}

TEST(Linalg, SeveralResults) {
  check(program("%x: tensor<3x5xf64>, %z: tensor<3x5xf64>", R"(
  %e = tensor.empty() : tensor<3x5xf64>
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id],
                         iterator_types = ["parallel", "parallel"]}
      ins(%x, %z : tensor<3x5xf64>, tensor<3x5xf64>)
      outs(%e, %e : tensor<3x5xf64>, tensor<3x5xf64>) {
  ^bb0(%1: f64, %2: f64, %o: f64, %p: f64):
    %3 = arith.mulf %1, %2 : f64
    %4 = arith.addf %1, %2 : f64
    linalg.yield %3, %4 : f64, f64
  } -> (tensor<3x5xf64>, tensor<3x5xf64>)
  %y = linalg.div ins(%0#0, %0#1 : tensor<3x5xf64>, tensor<3x5xf64>)
      outs(%e : tensor<3x5xf64>) -> tensor<3x5xf64>
)",
                "tensor<3x5xf64>"),
        {a("x", {3, 5}, 1, 2), a("z", {3, 5}, 1, 2)});
}

/// A reduction over columns by `combine` of %in and %acc, from `start`.
static std::string reduction(const std::string &start,
                             const std::string &combine) {
  return program("%x: tensor<3x5xf64>, %z: tensor<3xf64>", R"(
  %start = arith.constant )" + start + R"( : f64
  %e = tensor.empty() : tensor<3xf64>
  %f = linalg.fill ins(%start : f64) outs(%e : tensor<3xf64>) -> tensor<3xf64>
  %y = linalg.reduce ins(%x : tensor<3x5xf64>)
      outs()" + (start == "0.5" ? "%z" : "%f") + R"( : tensor<3xf64>)
      dimensions = [1] (%in: f64, %acc: f64) {
    )" + combine + R"(
    linalg.yield %r : f64
  }
)",
                 "tensor<3xf64>");
}

TEST(Linalg, Reductions) {
  std::vector<Argument> args = {a("x", {3, 5}), a("z", {3})};
  check(reduction("0.0", "%r = arith.addf %in, %acc : f64"), args);
  check(reduction("0.5", "%r = arith.addf %acc, %in : f64"), args);
  check(reduction("0.5", "%r = arith.subf %acc, %in : f64"), args);
  check(reduction("0.5", "%r = math.fma %in, %in, %acc : f64"), args);
  check(reduction("0.5", "%s = math.sin %in : f64\n"
                         "    %t = arith.addf %acc, %s : f64\n"
                         "    %r = arith.addf %in, %t : f64"),
        args);
  check(reduction("-9.0", "%r = arith.maximumf %in, %acc : f64"), args);
  check(reduction("9.0", "%r = arith.minimumf %acc, %in : f64"), args);
  check(reduction("9.0", "%r = arith.minnumf %acc, %in : f64"), args);
  check(reduction("-9.0", "%s = arith.mulf %in, %in : f64\n"
                          "    %r = arith.maxnumf %s, %acc : f64"),
        args);
  // One of the starts wins.
  args[1].values[1] = 3;
  check(reduction("0.5", "%r = arith.maximumf %in, %acc : f64"), args);
}

TEST(Linalg, TiesOfAnExtremumShareEqually) {
  GradientProgram program(
      reduction("-9.0", "%r = arith.maximumf %in, %acc : f64"));
  Argument x = a("x", {3, 5});
  x.values = {1, 2, 2, 0, 2, 5, 1, 1, 1, 1, 0, 0, 0, 0, 0};
  Argument seed = {"seed", "f64", {3}, {3, 1, 10}};
  GradientRun run = program.run({x, a("z", {3})}, {seed});
  ASSERT_EQ(run.gradients.size(), 2u);
  EXPECT_EQ(run.gradients[0].values(),
            (std::vector<double>{0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 2}));
  EXPECT_EQ(run.gradients[1].values(), (std::vector<double>{0, 0, 0}));
}

TEST(Linalg, OtherReductionsAreNamed) {
  EXPECT_EQ(getDifferentiationError(
                reduction("1.0", "%r = arith.mulf %in, %acc : f64")),
            "'linalg.reduce' op expected a reduction that adds or takes an "
            "extremum to differentiate, result #0 does neither");
  EXPECT_EQ(getDifferentiationError(
                reduction("1.0", "%s = arith.mulf %in, %acc : f64\n"
                                 "    %r = arith.addf %s, %acc : f64")),
            "'linalg.reduce' op expected a reduction that adds or takes an "
            "extremum to differentiate, result #0 does neither");
}

TEST(Linalg, NamedElementwise) {
  check(program("%x: tensor<3x5xf64>, %z: tensor<3x5xf64>", R"(
  %e = tensor.empty() : tensor<3x5xf64>
  %0 = linalg.exp ins(%x : tensor<3x5xf64>) outs(%e : tensor<3x5xf64>)
      -> tensor<3x5xf64>
  %1 = linalg.mul ins(%0, %z : tensor<3x5xf64>, tensor<3x5xf64>)
      outs(%e : tensor<3x5xf64>) -> tensor<3x5xf64>
  %2 = linalg.map { math.tanh } ins(%1 : tensor<3x5xf64>)
      outs(%e : tensor<3x5xf64>)
  %3 = linalg.sub ins(%2, %x : tensor<3x5xf64>, tensor<3x5xf64>)
      outs(%e : tensor<3x5xf64>) -> tensor<3x5xf64>
  %4 = tensor.empty() : tensor<5x3xf64>
  %5 = linalg.transpose ins(%3 : tensor<3x5xf64>) outs(%4 : tensor<5x3xf64>)
      permutation = [1, 0]
  %6 = tensor.empty() : tensor<2x5x3xf64>
  %7 = linalg.broadcast ins(%5 : tensor<5x3xf64>) outs(%6 : tensor<2x5x3xf64>)
      dimensions = [0]
  %8 = tensor.empty() : tensor<2x5x3xf64>
  %y = linalg.copy ins(%7 : tensor<2x5x3xf64>) outs(%8 : tensor<2x5x3xf64>)
      -> tensor<2x5x3xf64>
)",
                "tensor<2x5x3xf64>"),
        {a("x", {3, 5}), a("z", {3, 5})});
}

TEST(Linalg, ArithmeticOnTensorsAndScalars) {
  check(program("%x: tensor<3x5xf64>, %z: tensor<3x5xf64>, %s: f64", R"(
  %0 = arith.mulf %x, %z : tensor<3x5xf64>
  %1 = math.sin %0 : tensor<3x5xf64>
  %two = arith.constant 2.0 : f64
  %t = arith.mulf %s, %two : f64
  %u = math.exp %t : f64
  %e = tensor.empty() : tensor<3x5xf64>
  %f = linalg.fill ins(%u : f64) outs(%e : tensor<3x5xf64>) -> tensor<3x5xf64>
  %y = arith.divf %1, %f : tensor<3x5xf64>
)",
                "tensor<3x5xf64>"),
        {a("x", {3, 5}), a("z", {3, 5}), a("s", {})});
}

TEST(Linalg, Softmax) {
  for (const char *dim : {"0", "1"})
    check(program("%x: tensor<3x5xf64>", std::string(R"(
  %e = tensor.empty() : tensor<3x5xf64>
  %y = linalg.softmax dimension()") + dim + R"() ins(%x : tensor<3x5xf64>)
      outs(%e : tensor<3x5xf64>) -> tensor<3x5xf64>
)",
                  "tensor<3x5xf64>"),
          {a("x", {3, 5})});
}

TEST(Linalg, NormsAndOneHotCrossEntropy) {
  // RMS norm of the rows, a product, and the loss of integer targets.
  std::string text = R"(
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#col = affine_map<(m, n) -> (n)>
#none = affine_map<(m, n) -> ()>
func.func @main(%x: tensor<?x6xf64>, %targets: tensor<?xi32>,
    %g: tensor<6xf64> {moe.param = #moe.param<"g">},
    %w: tensor<7x6xf64> {moe.param = #moe.param<"w">}) -> tensor<f64> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f64
  %n = tensor.dim %x, %c0 : tensor<?x6xf64>
  %re = tensor.empty(%n) : tensor<?xf64>
  %rz = linalg.fill ins(%zero : f64) outs(%re : tensor<?xf64>) -> tensor<?xf64>
  %squares = linalg.generic {indexing_maps = [#id, #row],
                             iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x6xf64>) outs(%rz : tensor<?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %0 = arith.mulf %a, %a : f64
    %1 = arith.addf %o, %0 : f64
    linalg.yield %1 : f64
  } -> tensor<?xf64>
  %he = tensor.empty(%n) : tensor<?x6xf64>
  %h = linalg.generic {indexing_maps = [#id, #row, #col, #id],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares, %g : tensor<?x6xf64>, tensor<?xf64>, tensor<6xf64>)
      outs(%he : tensor<?x6xf64>) {
  ^bb0(%a: f64, %s: f64, %b: f64, %o: f64):
    %six = arith.constant 6.0 : f64
    %eps = arith.constant 1.0e-5 : f64
    %0 = arith.divf %s, %six : f64
    %1 = arith.addf %0, %eps : f64
    %2 = math.rsqrt %1 : f64
    %3 = arith.mulf %a, %2 : f64
    %4 = arith.mulf %3, %b : f64
    linalg.yield %4 : f64
  } -> tensor<?x6xf64>
  %le = tensor.empty(%n) : tensor<?x7xf64>
  %lz = linalg.fill ins(%zero : f64) outs(%le : tensor<?x7xf64>)
      -> tensor<?x7xf64>
  %logits = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h, %w : tensor<?x6xf64>, tensor<7x6xf64>)
      outs(%lz : tensor<?x7xf64>) -> tensor<?x7xf64>
  %least = arith.constant 0xFFF0000000000000 : f64
  %mz = linalg.fill ins(%least : f64) outs(%re : tensor<?xf64>) -> tensor<?xf64>
  %most = linalg.generic {indexing_maps = [#id, #row],
                          iterator_types = ["parallel", "reduction"]}
      ins(%logits : tensor<?x7xf64>) outs(%mz : tensor<?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %0 = arith.maximumf %a, %o : f64
    linalg.yield %0 : f64
  } -> tensor<?xf64>
  %sums = linalg.generic {indexing_maps = [#id, #row, #row],
                          iterator_types = ["parallel", "reduction"]}
      ins(%logits, %most : tensor<?x7xf64>, tensor<?xf64>)
      outs(%rz : tensor<?xf64>) {
  ^bb0(%a: f64, %m: f64, %o: f64):
    %0 = arith.subf %a, %m : f64
    %1 = math.exp %0 : f64
    %2 = arith.addf %o, %1 : f64
    linalg.yield %2 : f64
  } -> tensor<?xf64>
  %te = tensor.empty() : tensor<f64>
  %tz = linalg.fill ins(%zero : f64) outs(%te : tensor<f64>) -> tensor<f64>
  %picked = linalg.generic {indexing_maps = [#id, #row, #none],
                            iterator_types = ["reduction", "reduction"]}
      ins(%logits, %targets : tensor<?x7xf64>, tensor<?xi32>)
      outs(%tz : tensor<f64>) {
  ^bb0(%a: f64, %t: i32, %o: f64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %j, %t : i32
    %z = arith.constant 0.0 : f64
    %0 = arith.select %is, %a, %z : f64
    %1 = arith.addf %o, %0 : f64
    linalg.yield %1 : f64
  } -> tensor<f64>
  %logs = linalg.generic {indexing_maps = [affine_map<(m) -> (m)>,
                            affine_map<(m) -> (m)>, affine_map<(m) -> ()>],
                          iterator_types = ["reduction"]}
      ins(%sums, %most : tensor<?xf64>, tensor<?xf64>)
      outs(%tz : tensor<f64>) {
  ^bb0(%s: f64, %m: f64, %o: f64):
    %0 = math.log %s : f64
    %1 = arith.addf %0, %m : f64
    %2 = arith.addf %o, %1 : f64
    linalg.yield %2 : f64
  } -> tensor<f64>
  %loss = arith.subf %logs, %picked : tensor<f64>
  return %loss : tensor<f64>
}
)";
  Argument targets = {"targets", "i32", {4}, {0, 6, 2, 2}};
  check(text, {a("x", {4, 6}), targets, a("g", {6}), a("w", {7, 6})});
}

TEST(Linalg, MapsThatAreNoPermutationsAreNamed) {
  EXPECT_EQ(getDifferentiationError(program("%x: tensor<6xf64>", R"(
  %e = tensor.empty() : tensor<4x2xf64>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i + j)>,
                                        affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<6xf64>) outs(%e : tensor<4x2xf64>) {
  ^bb0(%0: f64, %o: f64):
    linalg.yield %0 : f64
  } -> tensor<4x2xf64>
)",
                                            "tensor<4x2xf64>")),
            "'linalg.generic' op expected projected permutations as maps to "
            "differentiate, operand #0 has affine_map<(d0, d1) -> (d0 + d1)>");
}
