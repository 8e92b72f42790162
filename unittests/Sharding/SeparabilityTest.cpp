// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is found of bodies: where operands have the hidden dimension, and what
// is in the way.

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"
#include "moira/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::moe;

namespace {

/// Prints what is known of the only expert of a program whose expert has the
/// operands `weights` (types without the experts' dim) and the body `body`.
std::string analyze(const std::vector<std::string> &weights,
                    const std::string &body) {
  std::string parameters, names, types, arguments;
  for (size_t i = 0; i < weights.size(); ++i) {
    std::string name = "%w" + std::to_string(i);
    parameters += ", " + name + ": tensor<4x" + weights[i] + ">";
    names += (i ? ", " : "") + name;
    types += (i ? ", " : "") + ("tensor<4x" + weights[i] + ">");
    arguments += ", %a" + std::to_string(i) + ": tensor<" + weights[i] + ">";
  }
  std::string text = R"(
#id = affine_map<(m, n) -> (m, n)>
#col = affine_map<(m, n) -> (n)>
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @main(%rows: tensor<?x8xf32>, %sizes: tensor<4xi32>)" +
                     parameters + R"() -> tensor<?x6xf32> {
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert()" + names +
                     " : " + types + R"() -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>)" +
                     arguments + R"():
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e16 = tensor.empty(%n) : tensor<?x16xf32>
    %z16 = linalg.fill ins(%zero : f32)
        outs(%e16 : tensor<?x16xf32>) -> tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32)
        outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
)" + body + R"(
    moe.yield %out : tensor<?x6xf32>
  }
  return %y : tensor<?x6xf32>
})";
  DialectRegistry registry;
  moira::registerDialects(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return "no program";
  std::string printed;
  llvm::raw_string_ostream os(printed);
  module->walk([&](ExpertOp expert) { Separability(expert).print(os); });
  return printed;
}

/// rows * transpose(weight) + init.
std::string product(const std::string &name, const std::string &rows,
                    const std::string &weight, const std::string &init, int k,
                    int n) {
  std::string K = std::to_string(k), N = std::to_string(n);
  return "    " + name +
         " = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(" + rows + ", " +
         weight + " : tensor<?x" + K + "xf32>, tensor<" + N + "x" + K +
         "xf32>) outs(" + init + " : tensor<?x" + N + "xf32>) -> tensor<?x" +
         N + "xf32>\n";
}

const std::string kTanh = "    %h = math.tanh %a : tensor<?x16xf32>\n";

TEST(Separability, FollowsAnActivation) {
  EXPECT_EQ(analyze({"16x8xf32", "6x16xf32"},
                    product("%a", "%r", "%a0", "%z16", 8, 16) + kTanh +
                        product("%out", "%h", "%a1", "%z6", 16, 6)),
            "hidden 16\n"
            "operand #0: dim 0\n"
            "operand #1: dim 1\n");
}

TEST(Separability, CutsTheFirstBiasAndKeepsTheLastWhole) {
  std::string body = R"(
    %b0 = linalg.broadcast ins(%a1 : tensor<16xf32>)
        outs(%e16 : tensor<?x16xf32>) dimensions = [0]
    %b1 = linalg.broadcast ins(%a3 : tensor<6xf32>)
        outs(%e6 : tensor<?x6xf32>) dimensions = [0]
)";
  EXPECT_EQ(analyze({"16x8xf32", "16xf32", "6x16xf32", "6xf32"},
                    body + product("%a", "%r", "%a0", "%b0", 8, 16) + kTanh +
                        product("%out", "%h", "%a2", "%b1", 16, 6)),
            "hidden 16\n"
            "operand #0: dim 0\n"
            "operand #1: dim 0\n"
            "operand #2: dim 1\n"
            "operand #3: whole\n");
}

std::string joint(const std::string &gate, const std::string &up) {
  return R"(
    %e32 = tensor.empty(%n) : tensor<?x32xf32>
    %z32 = linalg.fill ins(%zero : f32)
        outs(%e32 : tensor<?x32xf32>) -> tensor<?x32xf32>
)" + product("%gu", "%r", "%a0", "%z32", 8, 32) +
         "    %g = tensor.extract_slice %gu" + gate +
         " : tensor<?x32xf32> to tensor<?x16xf32>\n"
         "    %u = tensor.extract_slice %gu" +
         up +
         " : tensor<?x32xf32> to tensor<?x16xf32>\n"
         "    %h = arith.mulf %g, %u : tensor<?x16xf32>\n" +
         product("%out", "%h", "%a1", "%z6", 16, 6);
}

TEST(Separability, FindsPartsOneAfterTheOther) {
  EXPECT_EQ(analyze({"32x8xf32", "6x16xf32"},
                    joint("[0, 0] [%n, 16] [1, 1]", "[0, 16] [%n, 16] [1, 1]")),
            "hidden 16\n"
            "operand #0: dim 0, 2 parts\n"
            "operand #1: dim 1\n");
}

TEST(Separability, FindsInterleavedParts) {
  EXPECT_EQ(analyze({"32x8xf32", "6x16xf32"},
                    joint("[0, 0] [%n, 16] [1, 2]", "[0, 1] [%n, 16] [1, 2]")),
            "hidden 16\n"
            "operand #0: dim 0, 2 parts, interleaved\n"
            "operand #1: dim 1\n");
}

TEST(Separability, FindsPartsOfAReshape) {
  std::string body = R"(
    %e32 = tensor.empty(%n) : tensor<?x32xf32>
    %z32 = linalg.fill ins(%zero : f32)
        outs(%e32 : tensor<?x32xf32>) -> tensor<?x32xf32>
)" + product("%gu", "%r", "%a0", "%z32", 8, 32) +
                     R"(
    %x = tensor.expand_shape %gu [[0], [1, 2]] output_shape [%n, 16, 2]
        : tensor<?x32xf32> into tensor<?x16x2xf32>
    %s = tensor.extract_slice %x[0, 0, 1] [%n, 16, 1] [1, 1, 1]
        : tensor<?x16x2xf32> to tensor<?x16x1xf32>
    %h = tensor.collapse_shape %s [[0], [1, 2]]
        : tensor<?x16x1xf32> into tensor<?x16xf32>
)" + product("%out", "%h", "%a1", "%z6", 16, 6);
  EXPECT_EQ(analyze({"32x8xf32", "6x16xf32"}, body),
            "hidden 16\n"
            "operand #0: dim 0, 2 parts, interleaved\n"
            "operand #1: dim 1\n");
}

TEST(Separability, CutsTheLastOfThreeProducts) {
  std::string body = product("%a", "%r", "%a0", "%z16", 8, 16) + kTanh + R"(
    %e4 = tensor.empty(%n) : tensor<?x4xf32>
    %z4 = linalg.fill ins(%zero : f32)
        outs(%e4 : tensor<?x4xf32>) -> tensor<?x4xf32>
)" + product("%i", "%h", "%a1", "%z4", 16, 4) +
                     product("%out", "%i", "%a2", "%z6", 4, 6);
  EXPECT_EQ(analyze({"16x8xf32", "4x16xf32", "6x4xf32"}, body),
            "hidden 4\n"
            "operand #0: whole\n"
            "operand #1: dim 0\n"
            "operand #2: dim 1\n");
}

TEST(Separability, LetsProductsOfOneShapeStartFromOneTensor) {
  EXPECT_EQ(analyze({"6x8xf32", "6x6xf32"},
                    product("%a", "%r", "%a0", "%z6", 8, 6) +
                        product("%out", "%a", "%a1", "%z6", 6, 6)),
            "hidden 6\n"
            "operand #0: dim 0\n"
            "operand #1: dim 1\n");
}

TEST(Separability, NamesAReductionOverHidden) {
  std::string body = product("%a", "%r", "%a0", "%z16", 8, 16) + R"(
    %e1 = tensor.empty(%n) : tensor<?xf32>
    %z1 = linalg.fill ins(%zero : f32)
        outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
    %sum = linalg.reduce {arith.addf} ins(%a : tensor<?x16xf32>)
        outs(%z1 : tensor<?xf32>) dimensions = [1]
    %b = linalg.broadcast ins(%sum : tensor<?xf32>)
        outs(%e16 : tensor<?x16xf32>) dimensions = [1]
    %h = arith.divf %a, %b : tensor<?x16xf32>
)" + product("%out", "%h", "%a1", "%z6", 16, 6);
  EXPECT_EQ(analyze({"16x8xf32", "6x16xf32"}, body),
            "not separable: 'linalg.reduce': it reduces over the hidden "
            "dimension\n");
}

TEST(Separability, NamesASingleProduct) {
  EXPECT_EQ(
      analyze({"6x8xf32"}, product("%out", "%r", "%a0", "%z6", 8, 6)),
      "not separable: 'linalg.matmul': the dimension that it sums over is "
      "that of the rows\n");
}

TEST(Separability, NamesAParameterAfterTheLastProduct) {
  std::string body = product("%a", "%r", "%a0", "%z16", 8, 16) + kTanh +
                     product("%y", "%h", "%a1", "%z6", 16, 6) + R"(
    %b = linalg.broadcast ins(%a2 : tensor<6xf32>)
        outs(%e6 : tensor<?x6xf32>) dimensions = [0]
    %out = arith.addf %y, %b : tensor<?x6xf32>
)";
  EXPECT_EQ(analyze({"16x8xf32", "6x16xf32", "6xf32"}, body),
            "hidden 16\n"
            "operand #0: dim 0\n"
            "operand #1: dim 1\n"
            "operand #2: whole\n"
            "copies cannot be added: 'linalg.broadcast': it reads an expert's "
            "parameter after the last product\n");
}

TEST(Separability, SubtreesOfSumsInPairs) {
  for (int64_t group : {1, 2, 4, 8})
    EXPECT_TRUE(isSubtree(8, group)) << group;
  EXPECT_TRUE(isSubtree(6, 1));
  EXPECT_TRUE(isSubtree(6, 2));
  EXPECT_FALSE(isSubtree(6, 3));
  EXPECT_TRUE(isSubtree(6, 6));
  EXPECT_TRUE(isSubtree(12, 4));
  EXPECT_FALSE(isSubtree(12, 6));
}

} // namespace
