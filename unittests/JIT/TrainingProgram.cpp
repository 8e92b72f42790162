// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "JIT/TrainingProgram.h"

#include "moira/JIT/ParseProgram.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

/// Sums are in f32 (f64 for f64), rounded to TYPE once.
static constexpr const char *linear = R"(
#tk = affine_map<(t, n, k) -> (t, k)>
#nk = affine_map<(t, n, k) -> (n, k)>
#tn = affine_map<(t, n, k) -> (t, n)>
#id = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i) -> (i)>
func.func @main(%x: tensor<?x8xTYPE> {moe.name = "x"},
    %w: tensor<6x8xTYPE> {moe.param = #moe.param<"w">},
    %b: tensor<6xTYPE> {moe.param = #moe.param<"b">})
    -> (tensor<?x6xTYPE>, tensor<?x8xTYPE>)
    attributes {moe.backward = @main_backward, moe.residuals = 1 : i64} {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xTYPE>
  %e = tensor.empty(%t) : tensor<?x6xSUM>
  %zero = arith.constant 0.0 : SUM
  %z = linalg.fill ins(%zero : SUM) outs(%e : tensor<?x6xSUM>)
      -> tensor<?x6xSUM>
  %s = linalg.generic {indexing_maps = [#tk, #nk, #tn],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xTYPE>, tensor<6x8xTYPE>)
      outs(%z : tensor<?x6xSUM>) {
    ^bb0(%p: TYPE, %q: TYPE, %a: SUM):
      EXTEND_P
      EXTEND_Q
      %m = arith.mulf %pw, %qw : SUM
      %r = arith.addf %a, %m : SUM
      linalg.yield %r : SUM
  } -> tensor<?x6xSUM>
  %ey = tensor.empty(%t) : tensor<?x6xTYPE>
  %y = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (j)>, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %b : tensor<?x6xSUM>, tensor<6xTYPE>)
      outs(%ey : tensor<?x6xTYPE>) {
    ^bb0(%pw: SUM, %q: TYPE, %o: TYPE):
      EXTEND_Q
      %r = arith.addf %pw, %qw : SUM
      ROUND_R
      linalg.yield %rn : TYPE
  } -> tensor<?x6xTYPE>
  return %y, %x : tensor<?x6xTYPE>, tensor<?x8xTYPE>
}
func.func @main_backward(%x: tensor<?x8xTYPE>,
    %w: tensor<6x8xTYPE> {moe.param = #moe.param<"w">},
    %b: tensor<6xTYPE> {moe.param = #moe.param<"b">},
    %dy: tensor<?x6xTYPE> {moe.name = "d_result0"})
    -> (tensor<?x8xTYPE> {moe.gradient_of = 0 : i64},
        tensor<6x8xTYPE> {moe.gradient = "w"},
        tensor<6xTYPE> {moe.gradient = "b"}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : SUM
  %t = tensor.dim %x, %c0 : tensor<?x8xTYPE>
  %ex = tensor.empty(%t) : tensor<?x8xSUM>
  %fx = linalg.fill ins(%zero : SUM) outs(%ex : tensor<?x8xSUM>)
      -> tensor<?x8xSUM>
  %dx = linalg.generic {
      indexing_maps = [affine_map<(t, k, n) -> (t, n)>,
                       affine_map<(t, k, n) -> (n, k)>,
                       affine_map<(t, k, n) -> (t, k)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%dy, %w : tensor<?x6xTYPE>, tensor<6x8xTYPE>)
      outs(%fx : tensor<?x8xSUM>) {
    ^bb0(%p: TYPE, %q: TYPE, %a: SUM):
      EXTEND_P
      EXTEND_Q
      %m = arith.mulf %pw, %qw : SUM
      %r = arith.addf %a, %m : SUM
      linalg.yield %r : SUM
  } -> tensor<?x8xSUM>
  %ew = tensor.empty() : tensor<6x8xSUM>
  %fw = linalg.fill ins(%zero : SUM) outs(%ew : tensor<6x8xSUM>)
      -> tensor<6x8xSUM>
  %dw = linalg.generic {
      indexing_maps = [affine_map<(n, k, t) -> (t, n)>,
                       affine_map<(n, k, t) -> (t, k)>,
                       affine_map<(n, k, t) -> (n, k)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%dy, %x : tensor<?x6xTYPE>, tensor<?x8xTYPE>)
      outs(%fw : tensor<6x8xSUM>) {
    ^bb0(%p: TYPE, %q: TYPE, %a: SUM):
      EXTEND_P
      EXTEND_Q
      %m = arith.mulf %pw, %qw : SUM
      %r = arith.addf %a, %m : SUM
      linalg.yield %r : SUM
  } -> tensor<6x8xSUM>
  %eb = tensor.empty() : tensor<6xSUM>
  %fb = linalg.fill ins(%zero : SUM) outs(%eb : tensor<6xSUM>) -> tensor<6xSUM>
  %db = linalg.generic {
      indexing_maps = [affine_map<(n, t) -> (t, n)>, affine_map<(n, t) -> (n)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%dy : tensor<?x6xTYPE>) outs(%fb : tensor<6xSUM>) {
    ^bb0(%p: TYPE, %a: SUM):
      EXTEND_P
      %r = arith.addf %a, %pw : SUM
      linalg.yield %r : SUM
  } -> tensor<6xSUM>
  ROUND_X
  ROUND_W
  ROUND_B
  return %nx, %nw, %nb : tensor<?x8xTYPE>, tensor<6x8xTYPE>, tensor<6xTYPE>
}
)";

static void replaceAll(std::string &text, const std::string &from,
                       const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
}

/// `%to` = `%from` in the other type; the same value where there is one type.
static std::string convertValue(const std::string &op, const std::string &from,
                                const std::string &to,
                                const std::string &fromType,
                                const std::string &toType) {
  if (fromType == toType)
    return concat("%", to, " = arith.bitcast %", from, " : ", fromType, " to ",
                  toType);
  return concat("%", to, " = arith.", op, " %", from, " : ", fromType, " to ",
                toType);
}

std::string test::linearProgram(const std::string &type) {
  std::string sum = type == "f64" ? "f64" : "f32";
  std::string text = linear;
  auto tensor = [&](const std::string &shape, const std::string &element) {
    return concat("tensor<", shape, "x", element, ">");
  };
  replaceAll(text, "EXTEND_P", convertValue("extf", "p", "pw", type, sum));
  replaceAll(text, "EXTEND_Q", convertValue("extf", "q", "qw", type, sum));
  replaceAll(text, "ROUND_R", convertValue("truncf", "r", "rn", sum, type));
  for (auto [name, value, shape] :
       {std::tuple("ROUND_X", "x", "?x8"), std::tuple("ROUND_W", "w", "6x8"),
        std::tuple("ROUND_B", "b", "6")})
    replaceAll(text, name,
               convertValue("truncf", concat("d", value), concat("n", value),
                            tensor(shape, sum), tensor(shape, type)));
  replaceAll(text, "TYPE", type);
  replaceAll(text, "SUM", sum);
  return text;
}

std::shared_ptr<const Program> test::compileProgram(const std::string &text,
                                                    const JitOptions &options) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      text, mlir::ParserConfig(&context));
  EXPECT_TRUE(bool(module)) << text;
  if (!module)
    return nullptr;
  auto program = compile(*module, options);
  EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
  return program ? *program : nullptr;
}

std::shared_ptr<const Program> test::compileFile(const std::string &path,
                                                 const JitOptions &options) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module =
      parseProgram(std::string(MOIRA_SOURCE_DIR) + "/" + path, context);
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  if (!module)
    return nullptr;
  auto program = compile(**module, options);
  EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
  return program ? *program : nullptr;
}

JitOptions test::withOptimizers() {
  JitOptions options;
  options.pipeline.updates = {"sgd", "adam", "adamw"};
  return options;
}

std::unique_ptr<Session>
test::makeSession(std::shared_ptr<const Program> program,
                  const SessionOptions &options) {
  auto session = Session::create(std::move(program), options);
  EXPECT_OK(session.status());
  return session.ok() ? std::move(*session) : nullptr;
}

std::vector<float> test::numbers(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float((i * 7 + seed * 5 + i * i % 3) % 11 - 5));
  return values;
}

TensorView test::view(const std::vector<float> &data, Shape shape) {
  return {DataType::F32, std::move(shape), data.data()};
}

std::vector<float> test::floats(const ResultTensor &result) {
  int64_t count = *compactBytes(result.dtype, result.shape) / 4;
  std::vector<float> values(count);
  if (count)
    std::memcpy(values.data(), result.data, count * 4);
  return values;
}

LinearGradients::LinearGradients(const std::vector<float> &input,
                                 const std::vector<float> &weight,
                                 const std::vector<float> &dy)
    : x(input.size()), w(48), b(6) {
  for (size_t t = 0; t < input.size() / 8; ++t)
    for (int n = 0; n < 6; ++n) {
      float d = dy[t * 6 + n];
      b[n] += d;
      for (int k = 0; k < 8; ++k) {
        w[n * 8 + k] += d * input[t * 8 + k];
        x[t * 8 + k] += d * weight[n * 8 + k];
      }
    }
}
