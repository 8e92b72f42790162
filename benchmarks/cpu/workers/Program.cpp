// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Program.h"

using namespace moira::bench;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

// In all texts: @T the element type, @E experts, @H hidden, @F width, @K
// choices.

static constexpr const char *maps = R"(
#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#unary = {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
#binary = {indexing_maps = [#id, #id, #id],
    iterator_types = ["parallel", "parallel"]}
)";

static constexpr const char *forwardHead = R"(
func.func @main(%rows: tensor<?x@Hx@T> {moe.name = "x"},
                %sizes: tensor<@Exi32> {moe.name = "sizes"},
                @PARAMETERS) -> tensor<?x@Hx@T> {
)";

static constexpr const char *gatedParameters =
    R"(%gate: tensor<@Ex@Fx@Hx@T> {moe.param = #moe.param<"gate">},
    %up: tensor<@Ex@Fx@Hx@T> {moe.param = #moe.param<"up">},
    %down: tensor<@Ex@Hx@Fx@T> {moe.param = #moe.param<"down">})";

static constexpr const char *plainParameters =
    R"(%gate: tensor<@Ex@Fx@Hx@T> {moe.param = #moe.param<"gate">},
    %down: tensor<@Ex@Hx@Fx@T> {moe.param = #moe.param<"down">})";

static constexpr const char *gatedExpert = R"(
  %results = moe.expert rows(%rows : tensor<?x@Hx@T>)
      groups(%sizes : tensor<@Exi32>)
      per_expert(%gate, %up, %down
        : tensor<@Ex@Fx@Hx@T>, tensor<@Ex@Fx@Hx@T>, tensor<@Ex@Hx@Fx@T>)
      -> tensor<?x@Hx@T> {
  ^bb0(%r: tensor<?x@Hx@T>, %g: tensor<@Fx@Hx@T>, %u: tensor<@Fx@Hx@T>,
      %d: tensor<@Hx@Fx@T>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x@Hx@T>
    %f_empty = tensor.empty(%n) : tensor<?x@Fxf32>
    %zero = linalg.fill ins(%f0 : f32) outs(%f_empty : tensor<?x@Fxf32>)
        -> tensor<?x@Fxf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : tensor<?x@Hx@T>, tensor<@Fx@Hx@T>)
        outs(%zero : tensor<?x@Fxf32>) -> tensor<?x@Fxf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : tensor<?x@Hx@T>, tensor<@Fx@Hx@T>)
        outs(%zero : tensor<?x@Fxf32>) -> tensor<?x@Fxf32>
    %h_empty = tensor.empty(%n) : tensor<?x@Fx@T>
    %h = linalg.generic #binary ins(%a, %b : tensor<?x@Fxf32>, tensor<?x@Fxf32>)
        outs(%h_empty : tensor<?x@Fx@T>) {
    ^bb0(%a0: f32, %b0: f32, %out: @T):
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %a0 : f32
      %exp = math.exp %minus : f32
      %denominator = arith.addf %one, %exp : f32
      %act = arith.divf %a0, %denominator : f32
      %value = arith.mulf %act, %b0 : f32
      @YIELD(%value)
    } -> tensor<?x@Fx@T>
@DOWN  }
)";

static constexpr const char *plainExpert = R"(
  %results = moe.expert rows(%rows : tensor<?x@Hx@T>)
      groups(%sizes : tensor<@Exi32>)
      per_expert(%gate, %down : tensor<@Ex@Fx@Hx@T>, tensor<@Ex@Hx@Fx@T>)
      -> tensor<?x@Hx@T> {
  ^bb0(%r: tensor<?x@Hx@T>, %g: tensor<@Fx@Hx@T>, %d: tensor<@Hx@Fx@T>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x@Hx@T>
    %f_empty = tensor.empty(%n) : tensor<?x@Fxf32>
    %zero = linalg.fill ins(%f0 : f32) outs(%f_empty : tensor<?x@Fxf32>)
        -> tensor<?x@Fxf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : tensor<?x@Hx@T>, tensor<@Fx@Hx@T>)
        outs(%zero : tensor<?x@Fxf32>) -> tensor<?x@Fxf32>
    %h_empty = tensor.empty(%n) : tensor<?x@Fx@T>
    %h = linalg.generic #unary ins(%a : tensor<?x@Fxf32>)
        outs(%h_empty : tensor<?x@Fx@T>) {
    ^bb0(%a0: f32, %out: @T):
      %least = arith.constant 0.0 : f32
      %value = arith.maximumf %a0, %least : f32
      @YIELD(%value)
    } -> tensor<?x@Fx@T>
@DOWN  }
)";

static constexpr const char *downF32 =
    R"(    %h_zero_empty = tensor.empty(%n) : tensor<?x@Hxf32>
    %h_zero = linalg.fill ins(%f0 : f32) outs(%h_zero_empty : tensor<?x@Hxf32>)
        -> tensor<?x@Hxf32>
    %o = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x@Fx@T>, tensor<@Hx@Fx@T>)
        outs(%h_zero : tensor<?x@Hxf32>) -> tensor<?x@Hxf32>
    moe.yield %o : tensor<?x@Hxf32>
)";

static constexpr const char *downBf16 =
    R"(    %h_zero_empty = tensor.empty(%n) : tensor<?x@Hxf32>
    %h_zero = linalg.fill ins(%f0 : f32) outs(%h_zero_empty : tensor<?x@Hxf32>)
        -> tensor<?x@Hxf32>
    %wide = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x@Fx@T>, tensor<@Hx@Fx@T>)
        outs(%h_zero : tensor<?x@Hxf32>) -> tensor<?x@Hxf32>
    %o_empty = tensor.empty(%n) : tensor<?x@Hx@T>
    %o = linalg.generic #unary ins(%wide : tensor<?x@Hxf32>)
        outs(%o_empty : tensor<?x@Hx@T>) {
    ^bb0(%w: f32, %out: @T):
      @YIELD(%w)
    } -> tensor<?x@Hx@T>
    moe.yield %o : tensor<?x@Hx@T>
)";

static constexpr const char *dx = R"(
func.func @main(%dy: tensor<?x@Fx@T> {moe.name = "dy"},
    %sizes: tensor<@Exi32> {moe.name = "sizes"},
    %gate: tensor<@Ex@Fx@Hx@T> {moe.param = #moe.param<"gate">})
        -> tensor<?x@Hx@T> {
  %dx = moe.grouped_matmul rows(%dy : tensor<?x@Fx@T>)
      groups(%sizes : tensor<@Exi32>)
      weights(%gate : tensor<@Ex@Fx@Hx@T>) kn -> tensor<?x@Hx@T> {
  ^bb0(%a: f32):
    @MOEYIELD(%a)
  }
  return %dx : tensor<?x@Hx@T>
}
)";

static constexpr const char *dw = R"(
func.func @main(%dy: tensor<?x@Fx@T> {moe.name = "dy"},
    %x: tensor<?x@Hx@T> {moe.name = "x"},
    %sizes: tensor<@Exi32> {moe.name = "sizes"}) -> tensor<@Ex@Fx@Hxf32> {
  %dw = moe.grouped_matmul rows(%dy, %x : tensor<?x@Fx@T>, tensor<?x@Hx@T>)
      groups(%sizes : tensor<@Exi32>) nk contraction -> tensor<@Ex@Fx@Hxf32> {
  }
  return %dw : tensor<@Ex@Fx@Hxf32>
}
)";

static constexpr const char *layerHead = R"(
func.func @main(%x: tensor<?x@Hx@T> {moe.name = "x"},
    %router: tensor<@Ex@Hx@T> {moe.param = #moe.param<"router">},
    @PARAMETERS) -> tensor<?x@Hx@T> {
  %c0 = arith.constant 0 : index
  %f0_ = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x@Hx@T>
  %logits_empty = tensor.empty(%tokens) : tensor<?x@Exf32>
  %logits_zero = linalg.fill ins(%f0_ : f32)
      outs(%logits_empty : tensor<?x@Exf32>) -> tensor<?x@Exf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x@Hx@T>, tensor<@Ex@Hx@T>)
      outs(%logits_zero : tensor<?x@Exf32>) -> tensor<?x@Exf32>
  %ids, %shares = moe.gate %logits router<>
      : tensor<?x@Exf32> -> tensor<?x@Kxi32>, tensor<?x@Kxf32>
)";

static constexpr const char *movementHead = R"(
func.func @main(%x: tensor<?x@Hx@T> {moe.name = "x"},
    %logits: tensor<?x@Exf32> {moe.name = "logits"}) -> tensor<?x@Hx@T> {
  %ids, %shares = moe.gate %logits router<>
      : tensor<?x@Exf32> -> tensor<?x@Kxi32>, tensor<?x@Kxf32>
)";

static constexpr const char *dispatch = R"(
  %counts = moe.count %ids : tensor<?x@Kxi32> -> tensor<@Exi32>
  %slots, %sizes,
      %bound = moe.assign %ids choice_major counts(%counts : tensor<@Exi32>)
      : tensor<?x@Kxi32> -> tensor<?x@Kxi32>, tensor<@Exi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x@Hx@T>, tensor<?x@Kxi32>, tensor<@Exi32> -> tensor<?x@Hx@T>
)";

static constexpr const char *combine = R"(
  %y = moe.combine %RESULTS, %slots weights(%shares : tensor<?x@Kxf32>)
      : tensor<?x@Hx@T>, tensor<?x@Kxi32> -> tensor<?x@Hx@T>
  return %y : tensor<?x@Hx@T>
}
)";

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

static void replace(std::string &text, const std::string &from,
                    const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Writes "@YIELD(%value)" as the op, after a rounding where there is one.
static void writeYields(std::string &text, const Case &what,
                        const std::string &mark, const std::string &op) {
  for (size_t at = text.find(mark); at != std::string::npos;
       at = text.find(mark)) {
    size_t open = text.find('(', at), close = text.find(')', at);
    std::string value = text.substr(open + 1, close - open - 1);
    std::string line = op + " " + value + " : f32";
    if (what.isBf16())
      line = value + "_rounded = arith.truncf " + value + " : f32 to bf16\n" +
             op + " " + value + "_rounded : bf16";
    text.replace(at, close + 1 - at, line);
  }
}

std::string moira::bench::programText(const Case &what) {
  std::string text = maps;
  std::string expert = what.gated ? gatedExpert : plainExpert;
  replace(expert, "@DOWN", what.isBf16() ? downBf16 : downF32);
  if (what.part == "forward")
    text += forwardHead + expert + "  return %results : tensor<?x@Hx@T>\n}\n";
  else if (what.part == "layer")
    text += layerHead + std::string(dispatch) + expert + combine;
  else if (what.part == "movement")
    text += movementHead + std::string(dispatch) + combine;
  else
    text += what.part == "dx" ? dx : dw;
  replace(text, "@PARAMETERS", what.gated ? gatedParameters : plainParameters);
  replace(text, "%RESULTS", what.part == "movement" ? "%rows" : "%results");
  writeYields(text, what, "@YIELD", "linalg.yield");
  writeYields(text, what, "@MOEYIELD", "moe.yield");
  replace(text, "@T", what.dtype);
  replace(text, "@E", std::to_string(what.experts()));
  replace(text, "@H", std::to_string(what.hidden));
  replace(text, "@F", std::to_string(what.width));
  replace(text, "@K", std::to_string(what.topK));
  return text;
}

void moira::bench::fillInput(const Case &what, const std::string &name,
                             char *data, int64_t bytes) {
  bool isBf16 = what.isBf16() && name != "logits";
  uint32_t state = 1;
  for (int64_t i = 0; i < bytes / (isBf16 ? 2 : 4); ++i) {
    state = state * 1664525u + 1013904223u;
    float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    if (isBf16)
      reinterpret_cast<uint16_t *>(data)[i] = toBf16(value);
    else
      reinterpret_cast<float *>(data)[i] = value;
  }
}
