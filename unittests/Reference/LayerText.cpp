// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints a layer as IR in the moe dialect.

#include "Layer.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace moira::reference {

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

static Argument makeArgument(std::string name, std::string type,
                             std::vector<int64_t> shape,
                             std::vector<double> values) {
  return {std::move(name), std::move(type), std::move(shape),
          std::move(values)};
}

template <typename T>
static std::vector<double> asDoubles(const std::vector<T> &values) {
  return std::vector<double>(values.begin(), values.end());
}

/// Stacks per-expert matrices, or vectors, over a leading dimension.
static std::vector<double> stack(const std::vector<Reals> &parts) {
  std::vector<double> values;
  for (const Reals &part : parts)
    values.insert(values.end(), part.data.begin(), part.data.end());
  return values;
}
static std::vector<double>
stack(const std::vector<std::vector<double>> &parts) {
  std::vector<double> values;
  for (const std::vector<double> &part : parts)
    values.insert(values.end(), part.begin(), part.end());
  return values;
}

static const char *scoreTypeOf(const Layer &layer) {
  return layer.router.wide ? "f64" : "f32";
}

std::vector<Argument> arguments(const Layer &layer, const LayerInputs &in) {
  int64_t T = in.x.rows, E = layer.experts, D = layer.features;
  int64_t H = layer.hidden, N = layer.outFeatures;
  std::string row = nameOf(layer.rowType), score = scoreTypeOf(layer);
  std::vector<Argument> args;
  args.push_back(makeArgument("x", row, {T, D}, in.x.data));
  args.push_back(makeArgument("logits", score, {T, E}, in.gate.logits.data));
  if (!in.gate.bias.empty())
    args.push_back(makeArgument("bias", score, {E}, in.gate.bias));
  if (!in.gate.mask.empty())
    args.push_back(makeArgument("mask", "i1", {T}, asDoubles(in.gate.mask)));
  if (in.gate.replay)
    args.push_back(makeArgument("replay", "i32", {T, layer.choices()},
                                asDoubles(in.gate.replay->data)));
  if (!in.gate.secondUniform.empty())
    args.push_back(makeArgument("sample", "f32", {T}, in.gate.secondUniform));
  if (!in.tokenPriority.empty())
    args.push_back(makeArgument("priority", "f32", {T}, in.tokenPriority));
  args.push_back(makeArgument("w1", row, {E, H, D}, stack(in.w1)));
  args.push_back(makeArgument("w2", row, {E, N, H}, stack(in.w2)));
  if (layer.gated)
    args.push_back(makeArgument("wg", row, {E, H, D}, stack(in.wg)));
  if (!in.b1.empty())
    args.push_back(makeArgument("b1", row, {E, H}, stack(in.b1)));
  if (!in.b2.empty())
    args.push_back(makeArgument("b2", row, {E, N}, stack(in.b2)));
  return args;
}

std::vector<Argument> results(const LayerResult &result, const Layer &layer) {
  int64_t T = result.y.rows, K = layer.choices(), E = layer.experts;
  return {makeArgument("ids", "i32", {T, K}, asDoubles(result.gate.ids.data)),
          makeArgument("weights", scoreTypeOf(layer), {T, K},
                       result.gate.weights.data),
          makeArgument("counts", "i32", {E}, asDoubles(result.counts)),
          makeArgument("slots", "i32", {T, K},
                       asDoubles(result.assignment.slots.data)),
          makeArgument("sizes", "i32", {E}, asDoubles(result.assignment.sizes)),
          makeArgument("y", nameOf(layer.rowType), {T, layer.outFeatures},
                       result.y.data)};
}

//===----------------------------------------------------------------------===//
// IR
//===----------------------------------------------------------------------===//

namespace {
/// Writes one function; holds what several of its parts need.
class Printer {
public:
  Printer(const Layer &layer, const LayerInputs &inputs)
      : layer(layer), in(inputs), row(nameOf(layer.rowType)),
        score(scoreTypeOf(layer)),
        wide(layer.rowType == DType::F64 ? "f64" : "f32"),
        experts(std::to_string(layer.experts)),
        choices(std::to_string(layer.choices())) {}

  std::string print();

private:
  void printGate();
  void printBlockGates();
  void printCapacity();
  void printAssign();
  void printExpert();
  void printBody();
  /// `%name = <x W^T + bias>` in the accumulator type.
  void printContraction(const std::string &name, const std::string &x,
                        const std::string &weight, const std::string &bias,
                        int64_t out, int64_t contracted);
  void printActivation();

  /// tensor<?xNxTYPE>
  std::string matrix(const std::string &cols, const std::string &type) const {
    return "tensor<?x" + cols + "x" + type + ">";
  }
  std::string matrix(int64_t cols, const std::string &type) const {
    return matrix(std::to_string(cols), type);
  }
  std::string perToken(const std::string &type) const {
    return "tensor<?x" + type + ">";
  }
  std::string perExpert(const std::string &type) const {
    return "tensor<" + experts + "x" + type + ">";
  }
  std::string rowsType(int64_t cols) const {
    return layer.padded ? "tensor<" + experts + "x?x" + std::to_string(cols) +
                              "x" + row + ">"
                        : matrix(cols, row);
  }
  std::string router() const;
  /// True when a capacity has to be computed.
  bool limited() const { return layer.padded || layer.capacity; }
  /// The run-time k after clipping.
  int64_t clippedK() const {
    return std::clamp<int64_t>(in.gate.k.value_or(layer.choices()), 0,
                               layer.choices());
  }

  const Layer &layer;
  const LayerInputs &in;
  std::string row, score, wide, experts, choices;
  std::ostringstream os;
};
} // namespace

/// A literal that reads back as the same double.
static std::string literal(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17e", value);
  return text;
}

std::string Printer::router() const {
  static const char *const scores[] = {"softmax", "sigmoid", "sqrtsoftplus",
                                       "identity"};
  static const char *const norms[] = {"none", "sum_plus_eps", "max_sum_eps"};
  const Router &r = layer.router;
  std::string text = std::string("score = ") + scores[int(r.score)];
  if (r.afterTopK)
    text += ", after_top_k";
  if (r.groups > 1) {
    text += ", groups = " + std::to_string(r.groups);
    text += ", keep = " + std::to_string(r.keep);
    if (r.groupScore == GroupScore::SumTop2)
      text += ", group_score = sum_top2";
  }
  text += std::string(", normalize = ") + norms[int(r.normalize)];
  if (r.eps != 0)
    text += ", eps = " + literal(r.eps);
  if (r.scale != 1)
    text += ", scale = " + literal(r.scale);
  if (r.expertChoice)
    text += ", expert_choice";
  return "router<" + text + ">";
}

void Printer::printGate() {
  const GateInputs &g = in.gate;
  if (g.k)
    os << "  %k = arith.constant " << *g.k << " : index\n";
  if (g.threshold)
    os << "  %threshold = arith.constant " << literal(*g.threshold) << " : "
       << score << "\n";
  if (layer.router.expertChoice)
    os << "  %take = arith.constant " << g.expertRows << " : index\n";
  if (layer.router.expertChoice && !layer.blocks.empty())
    return printBlockGates();
  os << "  %ids, %weights = moe.gate %logits " << router() << "\n     ";
  if (!g.bias.empty())
    os << " bias(%bias : " << perExpert(score) << ")";
  if (!g.mask.empty())
    os << " mask(%mask : " << perToken("i1") << ")";
  if (g.k)
    os << " top_k(%k)";
  if (g.threshold)
    os << " threshold(%threshold : " << score << ")";
  if (layer.router.expertChoice)
    os << " capacity(%take)";
  if (g.replay)
    os << " replay(%replay : " << matrix(choices, "i32") << ")";
  if (!g.secondUniform.empty())
    os << " sample(%sample : " << perToken("f32") << ")";
  os << " : " << matrix(experts, score) << "\n      -> "
     << matrix(choices, "i32") << ", " << matrix(choices, score) << "\n"
     << "  %counts = moe.count %ids : " << matrix(choices, "i32") << " -> "
     << perExpert("i32") << "\n";
}

/// A gate for each block's tokens, whose results are put one after the other.
void Printer::printBlockGates() {
  const GateInputs &g = in.gate;
  const std::string idsType = matrix(choices, "i32"),
                    weightsType = matrix(choices, score);
  os << "  %all = tensor.dim %logits, %c0 : " << matrix(experts, score) << "\n"
     << "  %ids0 = tensor.empty(%all) : " << idsType << "\n"
     << "  %weights0 = tensor.empty(%all) : " << weightsType << "\n";
  int64_t begin = 0;
  size_t count = layer.blocks.size();
  for (size_t b = 0; b < count; begin += layer.blocks[b++]) {
    auto sized = [&](const std::string &type) {
      std::string fixed = type;
      return fixed.replace(fixed.find('?'), 1, std::to_string(layer.blocks[b]));
    };
    std::string rows = "[" + std::to_string(begin) + ", 0] [" +
                       std::to_string(layer.blocks[b]) + ", " + experts +
                       "] [1, 1]";
    std::string last = b + 1 == count ? "" : std::to_string(b + 1);
    os << "  %logits_" << b << " = tensor.extract_slice %logits" << rows
       << " : " << matrix(experts, score) << " to "
       << sized(matrix(experts, score)) << "\n";
    if (!g.mask.empty())
      os << "  %mask_" << b << " = tensor.extract_slice %mask[" << begin
         << "] [" << layer.blocks[b] << "] [1] : " << perToken("i1") << " to "
         << sized(perToken("i1")) << "\n";
    os << "  %ids_" << b << ", %weights_" << b << " = moe.gate %logits_" << b
       << " " << router();
    if (!g.bias.empty())
      os << " bias(%bias : " << perExpert(score) << ")";
    if (!g.mask.empty())
      os << " mask(%mask_" << b << " : " << sized(perToken("i1")) << ")";
    os << " capacity(%take)\n      : " << sized(matrix(experts, score))
       << " -> " << sized(idsType) << ", " << sized(weightsType) << "\n"
       << "  %ids" << last << " = tensor.insert_slice %ids_" << b
       << " into %ids" << b << rows << " : " << sized(idsType) << " into "
       << idsType << "\n"
       << "  %weights" << last << " = tensor.insert_slice %weights_" << b
       << " into %weights" << b << rows << " : " << sized(weightsType)
       << " into " << weightsType << "\n";
  }
  os << "  %counts = moe.count %ids : " << idsType << " -> " << perExpert("i32")
     << "\n";
}

void Printer::printCapacity() {
  static const char *const rules[] = {"tutel", "gshard", "switch", "fixed"};
  Capacity c = layer.capacity.value_or(Capacity{CapacityRule::Tutel, 0});
  if (layer.blocks.empty())
    os << "  %tokens = tensor.dim %logits, %c0 : " << matrix(experts, score)
       << "\n";
  else
    os << "  %tokens = arith.constant "
       << *std::max_element(layer.blocks.begin(), layer.blocks.end())
       << " : index\n";
  os << "  %factor = arith.constant " << literal(c.factor) << " : f64\n"
     << "  %used = arith.constant " << clippedK() << " : index\n"
     << "  %capacity = moe.capacity " << rules[int(c.rule)]
     << " tokens(%tokens) factor(%factor) top_k(%used)\n"
     << "      counts(%counts : " << perExpert("i32")
     << ") {experts = " << experts << " : i64, minimum = " << c.minimum
     << " : i64, alignment = " << c.alignment << " : i64}\n";
}

void Printer::printAssign() {
  static const char *const orders[] = {
      "choice_major", "token_major", "batch_prioritized", "expert_probability"};
  bool byToken = layer.order == Order::BatchPrioritized;
  if (byToken && in.tokenPriority.empty()) {
    // The best score of a token is the weight of a plain top-1 gate.
    Layer best = layer;
    best.router = Router();
    best.router.score = layer.router.score;
    os << "  %first, %best = moe.gate %logits " << Printer(best, in).router()
       << " : " << matrix(experts, score) << "\n      -> " << matrix(1, "i32")
       << ", " << matrix(1, score) << "\n"
       << "  %priority = tensor.collapse_shape %best [[0, 1]] : "
       << matrix(1, score) << " into " << perToken(score) << "\n";
  }
  std::string blocksType;
  if (!layer.blocks.empty()) {
    blocksType = "tensor<" + std::to_string(layer.blocks.size()) + "xi32>";
    os << "  %blocks = arith.constant dense<[";
    for (size_t b = 0; b < layer.blocks.size(); ++b)
      os << (b ? ", " : "") << layer.blocks[b];
    os << "]> : " << blocksType << "\n";
  }
  os << "  %slots, %sizes, %bound = moe.assign %ids "
     << orders[int(layer.order)] << (layer.padded ? " padded" : "")
     << "\n      counts(%counts : " << perExpert("i32") << ")";
  if (limited())
    os << " capacity(%capacity)";
  if (byToken)
    os << " priority(%priority : "
       << perToken(in.tokenPriority.empty() ? score : "f32") << ")";
  if (layer.order == Order::ExpertProbability)
    os << " priority(%weights : " << matrix(choices, score) << ")";
  if (!blocksType.empty())
    os << " blocks(%blocks : " << blocksType << ")";
  os << "\n      : " << matrix(choices, "i32") << " -> "
     << matrix(choices, "i32") << ", " << perExpert("i32") << ", index\n";
}

void Printer::printContraction(const std::string &name, const std::string &x,
                               const std::string &weight,
                               const std::string &bias, int64_t out,
                               int64_t contracted) {
  std::string acc = matrix(out, wide);
  os << "    %" << name << "_e = tensor.empty(%n) : " << acc << "\n";
  if (bias.empty()) {
    os << "    %" << name << "_i = linalg.fill ins(%zero : " << wide
       << ") outs(%" << name << "_e : " << acc << ") -> " << acc << "\n";
  } else {
    std::string type = "tensor<" + std::to_string(out) + "x" + row + ">";
    os << "    %" << name << "_i = linalg.generic {indexing_maps = [#col, "
       << "#mn], iterator_types = [\"parallel\", \"parallel\"]}\n"
       << "        ins(%" << bias << " : " << type << ") outs(%" << name
       << "_e : " << acc << ") {\n      ^bb1(%b: " << row << ", %o: " << wide
       << "):\n";
    if (row != wide)
      os << "        %v = arith.extf %b : " << row << " to " << wide << "\n";
    os << "        linalg.yield " << (row == wide ? "%b" : "%v") << " : "
       << wide << "\n      } -> " << acc << "\n";
  }
  os << "    %" << name << " = linalg.matmul indexing_maps = [#mk, #nk, #mn2]\n"
     << "        ins(%" << x << ", %" << weight << " : "
     << matrix(contracted, row) << ", tensor<" << out << "x" << contracted
     << "x" << row << ">)\n        outs(%" << name << "_i : " << acc << ") -> "
     << acc << "\n";
}

void Printer::printActivation() {
  std::string acc = matrix(layer.hidden, wide), out = matrix(layer.hidden, row);
  const char *input = layer.gated ? "%g" : "%u";
  os << "    %h_e = tensor.empty(%n) : " << out << "\n"
     << "    %h = linalg.generic {indexing_maps = [#mn, "
     << (layer.gated ? "#mn, " : "")
     << "#mn], iterator_types = [\"parallel\", \"parallel\"]}\n"
     << "        ins(%up" << (layer.gated ? ", %gate" : "") << " : " << acc
     << (layer.gated ? ", " + acc : "") << ") outs(%h_e : " << out << ") {\n"
     << "      ^bb1(%u: " << wide << (layer.gated ? ", %g: " + wide : "")
     << ", %o: " << row << "):\n";
  std::string value = input;
  auto emit = [&](const char *name, const std::string &op) {
    os << "        %" << name << " = " << op << " : " << wide << "\n";
    value = std::string("%") + name;
  };
  switch (layer.activation) {
  case Activation::Identity:
    break;
  case Activation::Relu:
    emit("zz", "arith.constant 0.0");
    emit("a", std::string("arith.maximumf ") + input + ", %zz");
    break;
  case Activation::Square:
    emit("a", std::string("arith.mulf ") + input + ", " + input);
    break;
  case Activation::Silu:
    emit("one", "arith.constant 1.0");
    emit("neg", std::string("arith.negf ") + input);
    emit("exp", "math.exp %neg");
    emit("den", "arith.addf %one, %exp");
    emit("a", std::string("arith.divf ") + input + ", %den");
    break;
  }
  if (layer.gated)
    emit("p", "arith.mulf " + value + ", %u");
  if (row != wide) {
    os << "        %t = arith.truncf " << value << " : " << wide << " to "
       << row << "\n";
    value = "%t";
  }
  os << "        linalg.yield " << value << " : " << row << "\n      } -> "
     << out << "\n";
}

void Printer::printBody() {
  os << "    %d0 = arith.constant 0 : index\n"
     << "    %n = tensor.dim %r, %d0 : " << matrix(layer.features, row) << "\n"
     << "    %zero = arith.constant 0.0 : " << wide << "\n";
  printContraction("up", "r", "w1e", in.b1.empty() ? "" : "b1e", layer.hidden,
                   layer.features);
  if (layer.gated)
    printContraction("gate", "r", "wge", "", layer.hidden, layer.features);
  printActivation();
  printContraction("y", "h", "w2e", in.b2.empty() ? "" : "b2e",
                   layer.outFeatures, layer.hidden);
  std::string acc = matrix(layer.outFeatures, wide);
  std::string out = matrix(layer.outFeatures, row);
  if (row == wide) {
    os << "    moe.yield %y : " << out << "\n";
    return;
  }
  os << "    %t_e = tensor.empty(%n) : " << out << "\n"
     << "    %t = linalg.generic {indexing_maps = [#mn, #mn], "
     << "iterator_types = [\"parallel\", \"parallel\"]}\n        ins(%y : "
     << acc << ") outs(%t_e : " << out << ") {\n      ^bb1(%v: " << wide
     << ", %o: " << row << "):\n        %s = arith.truncf %v : " << wide
     << " to " << row << "\n        linalg.yield %s : " << row
     << "\n      } -> " << out << "\n    moe.yield %t : " << out << "\n";
}

void Printer::printExpert() {
  struct Weight {
    std::string name, slice;
  };
  auto dims = [](int64_t a, int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b) + "x";
  };
  std::vector<Weight> weights = {
      {"w1", dims(layer.hidden, layer.features) + row},
      {"w2", dims(layer.outFeatures, layer.hidden) + row}};
  if (layer.gated)
    weights.push_back({"wg", dims(layer.hidden, layer.features) + row});
  if (!in.b1.empty())
    weights.push_back({"b1", std::to_string(layer.hidden) + "x" + row});
  if (!in.b2.empty())
    weights.push_back({"b2", std::to_string(layer.outFeatures) + "x" + row});

  std::string names, types, blockArgs;
  for (size_t i = 0; i < weights.size(); ++i) {
    const char *comma = i ? ", " : "";
    names += comma + ("%" + weights[i].name);
    types += comma + perExpert(weights[i].slice);
    blockArgs +=
        ", %" + weights[i].name + "e: tensor<" + weights[i].slice + ">";
  }
  os << "  %out = moe.expert rows(%rows : " << rowsType(layer.features)
     << ") groups(%sizes : " << perExpert("i32") << ")\n      per_expert("
     << names << " : " << types << ") -> " << rowsType(layer.outFeatures)
     << " {\n  ^bb0(%r: " << matrix(layer.features, row) << blockArgs << "):\n";
  printBody();
  os << "  }\n";
}

std::string Printer::print() {
  os << "#mk = affine_map<(m, n, k) -> (m, k)>\n"
     << "#nk = affine_map<(m, n, k) -> (n, k)>\n"
     << "#mn2 = affine_map<(m, n, k) -> (m, n)>\n"
     << "#mn = affine_map<(m, n) -> (m, n)>\n"
     << "#col = affine_map<(m, n) -> (n)>\n\nfunc.func @main(";
  bool first = true;
  for (const Argument &arg : arguments(layer, in)) {
    // The tokens are the leading dimension of all but weights and bias.
    bool tokens = arg.name[0] != 'w' && arg.name[0] != 'b';
    os << (first ? "" : ",\n    ") << "%" << arg.name << ": tensor<";
    for (size_t d = 0; d < arg.shape.size(); ++d)
      if (d == 0 && tokens)
        os << "?x";
      else
        os << arg.shape[d] << "x";
    os << arg.elementType << ">";
    first = false;
  }
  std::string ids = matrix(choices, "i32"), w = matrix(choices, score);
  std::string sizes = perExpert("i32"), y = matrix(layer.outFeatures, row);
  std::string types =
      ids + ", " + w + ", " + sizes + ", " + ids + ", " + sizes + ", " + y;
  os << ")\n    -> (" << types << ") {\n"
     << "  %c0 = arith.constant 0 : index\n";
  printGate();
  if (limited())
    printCapacity();
  printAssign();
  std::string weightsText = " weights(%weights : " + w + ")";
  os << "  %rows = moe.dispatch %x, %slots, %sizes, %bound"
     << (layer.weightsOnInput ? weightsText : "")
     << "\n      : " << matrix(layer.features, row) << ", " << ids << ", "
     << sizes << " -> " << rowsType(layer.features) << "\n";
  printExpert();
  os << "  %y = moe.combine %out, %slots"
     << (layer.weightsOnInput ? "" : weightsText)
     << "\n      : " << rowsType(layer.outFeatures) << ", " << ids << " -> "
     << y << "\n"
     << "  return %ids, %weights, %counts, %slots, %sizes, %y\n      : "
     << types << "\n}\n";
  return os.str();
}

std::string printModule(const Layer &layer, const LayerInputs &inputs) {
  return Printer(layer, inputs).print();
}

} // namespace moira::reference
