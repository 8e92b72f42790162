// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ProgramWriter.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace moira;
using namespace moira::import;
using llvm::formatv;

namespace {
/// Names that code at one level of nesting uses.
struct Scope {
  const char *indent;
  const char *count; ///< how many rows there are
  const char *zero;  ///< 0 as f32
};

constexpr Scope layerScope = {"  ", "%tokens", "%zero"};
constexpr Scope bodyScope = {"    ", "%n", "%f0"};

class ProgramWriter {
public:
  ProgramWriter(const ModelConfig &config, int64_t layer,
                const LayerWeights &weights, bool returnsLogits)
      : config(config), layer(layer), weights(weights),
        returnsLogits(returnsLogits), os(text),
        type(runtime::name(*config.dtype)),
        isNarrow(*config.dtype != io::DataType::F32) {}

  std::string write() {
    writeHead();
    writeRouter();
    writeExperts();
    writeCombine();
    return text;
  }

private:
  void writeHead();
  void writeRouter();
  void writeExperts();
  void writeCombine();
  void writeHidden();

  /// One argument with the tensor that it stands for.
  void writeParameter(const char *name, std::string argument,
                      const std::string &tensor, const char *part,
                      const char *end) {
    os << formatv("    %{0}: {1}\n"
                  "        {{moe.param = #moe.param<\"{2}\"{3}>}{4}\n",
                  name, argument, tensor, part, end);
  }

  /// `%result` = a * transposed(b) with f32 sums.
  void writeProduct(const Scope &scope, const char *result, const char *a,
                    std::string aType, const char *b, std::string bType,
                    int64_t columns) {
    std::string sums = rows(columns, "f32");
    os << formatv("{0}%{1}_empty = tensor.empty({2}) : {3}\n", scope.indent,
                  result, scope.count, sums);
    os << formatv("{0}%{1}_zero = linalg.fill ins({2} : f32)\n"
                  "{0}    outs(%{1}_empty : {3}) -> {3}\n",
                  scope.indent, result, scope.zero, sums);
    os << formatv("{0}%{1} = linalg.matmul "
                  "indexing_maps = [#rows, #weights, #sums]\n"
                  "{0}    ins({2}, {3} : {4}, {5})\n"
                  "{0}    outs(%{1}_zero : {6}) -> {6}\n",
                  scope.indent, result, a, b, aType, bType, sums);
  }

  /// `%result` = `%source` rounded from f32 to the rows' type; `backToF32`
  /// widens it again.
  void writeRounding(const Scope &scope, const char *result, const char *source,
                     int64_t columns, bool backToF32) {
    std::string from = rows(columns, "f32");
    std::string element = backToF32 ? "f32" : type;
    std::string to = rows(columns, element);
    os << formatv("{0}%{1}_empty = tensor.empty({2}) : {3}\n", scope.indent,
                  result, scope.count, to);
    os << formatv("{0}%{1} = linalg.generic #unary\n"
                  "{0}    ins({2} : {3}) outs(%{1}_empty : {4}) {{\n"
                  "{0}^bb0(%wide: f32, %out: {5}):\n"
                  "{0}  %narrow = arith.truncf %wide : f32 to {6}\n",
                  scope.indent, result, source, from, to, element, type);
    if (backToF32)
      os << formatv("{0}  %value = arith.extf %narrow : {1} to f32\n",
                    scope.indent, type);
    os << formatv("{0}  linalg.yield %{1} : {2}\n"
                  "{0}} -> {3}\n",
                  scope.indent, backToF32 ? "value" : "narrow", element, to);
  }

  std::string rows(int64_t columns, std::string element) {
    return formatv("tensor<?x{0}x{1}>", columns, element);
  }
  std::string matrix(int64_t n, int64_t k) {
    return formatv("tensor<{0}x{1}x{2}>", n, k, type);
  }
  std::string stack(int64_t n, int64_t k) {
    return formatv("tensor<{0}x{1}x{2}x{3}>", config.experts, n, k, type);
  }
  int64_t choices() { return std::min(config.topK, config.experts); }

  const ModelConfig &config;
  int64_t layer;
  const LayerWeights &weights;
  bool returnsLogits;
  std::string text;
  llvm::raw_string_ostream os;
  std::string type;
  /// Rows are narrower than sums, so that values are rounded on the way.
  bool isNarrow;
};
} // namespace

void ProgramWriter::writeHead() {
  os << formatv(
      "// Layer {0} of {1}: {2} experts of width {3}, {4} per token,\n"
      "// rows of {5}. Written by moira-import.\n\n",
      layer, config.architecture, config.experts, config.width, choices(),
      config.hidden);
  os << "#rows = affine_map<(m, n, k) -> (m, k)>\n"
        "#weights = affine_map<(m, n, k) -> (n, k)>\n"
        "#sums = affine_map<(m, n, k) -> (m, n)>\n"
        "#id = affine_map<(m, n) -> (m, n)>\n";
  if (isNarrow)
    os << "#unary = {indexing_maps = [#id, #id],\n"
          "          iterator_types = [\"parallel\", \"parallel\"]}\n";
  os << "#binary = {indexing_maps = [#id, #id, #id],\n"
        "           iterator_types = [\"parallel\", \"parallel\"]}\n\n";
  bool stacked = weights.stacked;
  os << formatv("func.func @main(\n    %x: {0},\n", rows(config.hidden, type));
  writeParameter("router", matrix(config.experts, config.hidden),
                 weights.router, "", ",");
  writeParameter("gate", stack(config.width, config.hidden), weights.gate,
                 stacked ? ", part = 0 of 2" : "", ",");
  writeParameter("up", stack(config.width, config.hidden), weights.up,
                 stacked ? ", part = 1 of 2" : "", ",");
  writeParameter("down", stack(config.hidden, config.width), weights.down, "",
                 ")");
  std::string results = rows(config.hidden, type);
  if (returnsLogits)
    results = formatv("({0}, {1})", results, rows(config.experts, type));
  os << formatv("    -> {0} {{\n", results);
}

void ProgramWriter::writeRouter() {
  std::string in = rows(config.hidden, type);
  os << formatv("  %c0 = arith.constant 0 : index\n"
                "  %zero = arith.constant 0.0 : f32\n"
                "  %tokens = tensor.dim %x, %c0 : {0}\n\n",
                in);
  if (isNarrow)
    os << formatv("  // Logits are rounded to {0}; scores are f32.\n", type);
  else
    os << "  // Logits and scores are f32.\n";
  writeProduct(layerScope, isNarrow ? "wide_logits" : "logits", "%x", in,
               "%router", matrix(config.experts, config.hidden),
               config.experts);
  if (isNarrow)
    writeRounding(layerScope, "logits", "%wide_logits", config.experts,
                  /*backToF32=*/false);

  bool rounds = isNarrow && config.roundsWeights();
  std::string ids = rows(choices(), "i32");
  os << formatv("  %experts, %{0} = moe.gate %logits router<{1}>\n"
                "      : {2} -> {3}, {4}\n",
                rounds ? "wide_weights" : "weights",
                config.normalize ? "normalize = sum_plus_eps" : "",
                rows(config.experts, type), ids, rows(choices(), "f32"));
  if (rounds) {
    os << formatv("  // The model keeps the weights in {0}.\n", type);
    writeRounding(layerScope, "weights", "%wide_weights", choices(),
                  /*backToF32=*/true);
  }
}

/// The hidden values: activation(gate) * up, rounded where the model rounds.
void ProgramWriter::writeHidden() {
  std::string sums = rows(config.width, "f32");
  std::string out = rows(config.width, type);
  os << formatv("    %h_empty = tensor.empty(%n) : {0}\n"
                "    %h = linalg.generic #binary\n"
                "        ins(%a, %b : {1}, {1}) outs(%h_empty : {0}) {{\n"
                "    ^bb0(%a0: f32, %b0: f32, %out: {2}):\n",
                out, sums, type);
  // Rounds %from through the rows' type into the f32 value %to.
  auto round = [&](const char *from, const char *to) {
    os << formatv("      %{1}_narrow = arith.truncf %{0} : f32 to {2}\n"
                  "      %{1} = arith.extf %{1}_narrow : {2} to f32\n",
                  from, to, type);
  };
  const char *a = "a0", *b = "b0", *act = "act";
  if (isNarrow) {
    round("a0", "a1");
    round("b0", "b1");
    a = "a1";
    b = "b1";
  }
  switch (config.activation) {
  case Activation::Silu:
    os << formatv("      %one = arith.constant 1.0 : f32\n"
                  "      %minus = arith.negf %{0} : f32\n"
                  "      %exp = math.exp %minus : f32\n"
                  "      %denominator = arith.addf %one, %exp : f32\n"
                  "      %act = arith.divf %{0}, %denominator : f32\n",
                  a);
    break;
  case Activation::Gelu:
    os << formatv("      %half = arith.constant 0.5 : f32\n"
                  "      %one = arith.constant 1.0 : f32\n"
                  "      %root = arith.constant 0.707106781 : f32\n"
                  "      %scaled = arith.mulf %{0}, %root : f32\n"
                  "      %erf = math.erf %scaled : f32\n"
                  "      %cdf2 = arith.addf %one, %erf : f32\n"
                  "      %cdf = arith.mulf %half, %cdf2 : f32\n"
                  "      %act = arith.mulf %{0}, %cdf : f32\n",
                  a);
    break;
  case Activation::Relu:
    os << formatv("      %least = arith.constant 0.0 : f32\n"
                  "      %act = arith.maximumf %{0}, %least : f32\n",
                  a);
    break;
  }
  if (isNarrow) {
    round("act", "act1");
    act = "act1";
  }
  os << formatv("      %product = arith.mulf %{0}, %{1} : f32\n", act, b);
  if (isNarrow)
    os << formatv("      %rounded = arith.truncf %product : f32 to {0}\n"
                  "      linalg.yield %rounded : {0}\n",
                  type);
  else
    os << "      linalg.yield %product : f32\n";
  os << formatv("    } -> {0}\n", out);
}

void ProgramWriter::writeExperts() {
  std::string in = rows(config.hidden, type);
  std::string hidden = rows(config.width, type);
  std::string up = matrix(config.width, config.hidden);
  std::string down = matrix(config.hidden, config.width);
  std::string ids = rows(choices(), "i32");
  std::string counts = formatv("tensor<{0}xi32>", config.experts);
  os << formatv("\n  // Dropless: every token gets all its experts.\n"
                "  %counts = moe.count %experts : {0} -> {1}\n"
                "  %slots, %sizes, %bound = moe.assign %experts choice_major\n"
                "      counts(%counts : {1})\n"
                "      : {0} -> {0}, {1}, index\n"
                "  %rows = moe.dispatch %x, %slots, %sizes, %bound\n"
                "      : {2}, {0}, {1} -> {2}\n\n",
                ids, counts, in);
  os << formatv("  %results = moe.expert rows(%rows : {0})\n"
                "      groups(%sizes : {1})\n"
                "      per_expert(%gate, %up, %down\n"
                "        : {2}, {2}, {3})\n"
                "      -> {0} {{\n",
                in, counts, stack(config.width, config.hidden),
                stack(config.hidden, config.width));
  os << formatv("  ^bb0(%r: {0}, %g: {1}, %u: {1},\n"
                "       %d: {2}):\n"
                "    %i0 = arith.constant 0 : index\n"
                "    %f0 = arith.constant 0.0 : f32\n"
                "    %n = tensor.dim %r, %i0 : {0}\n",
                in, up, down);
  writeProduct(bodyScope, "a", "%r", in, "%g", up, config.width);
  writeProduct(bodyScope, "b", "%r", in, "%u", up, config.width);
  writeHidden();
  writeProduct(bodyScope, isNarrow ? "wide_o" : "o", "%h", hidden, "%d", down,
               config.hidden);
  if (isNarrow)
    writeRounding(bodyScope, "o", "%wide_o", config.hidden,
                  /*backToF32=*/false);
  os << formatv("    moe.yield %o : {0}\n  }\n\n", in);
}

void ProgramWriter::writeCombine() {
  std::string in = rows(config.hidden, type);
  os << formatv("  %y = moe.combine %results, %slots weights(%weights : {0})\n"
                "      : {1}, {2} -> {1}\n",
                rows(choices(), "f32"), in, rows(choices(), "i32"));
  if (returnsLogits)
    os << formatv("  return %y, %logits : {0}, {1}\n}\n", in,
                  rows(config.experts, type));
  else
    os << formatv("  return %y : {0}\n}\n", in);
}

std::string import::writeProgram(const ModelConfig &config, int64_t layer,
                                 const LayerWeights &weights,
                                 bool returnsLogits) {
  return ProgramWriter(config, layer, weights, returnsLogits).write();
}
