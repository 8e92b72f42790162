// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Layer.h"

#include <algorithm>

namespace moira::reference {

int64_t Layer::choices() const {
  return router.expertChoice ? experts : std::min(router.topK, experts);
}

/// Arithmetic of the elementwise part: f32, or f64 for f64 rows.
template <typename Real> static Real activate(Activation activation, Real x) {
  switch (activation) {
  case Activation::Identity:
    return x;
  case Activation::Relu:
    return std::max(x, Real(0));
  case Activation::Square:
    return x * x;
  case Activation::Silu:
    return x / (1 + expOf(-x));
  }
  return x;
}

static double hiddenValue(const Layer &layer, double up, double gate) {
  if (layer.rowType == DType::F64)
    return layer.gated ? activate(layer.activation, gate) * up
                       : activate(layer.activation, up);
  float u = up, g = gate;
  return layer.gated ? activate(layer.activation, g) * u
                     : activate(layer.activation, u);
}

static Reals runExpert(const Layer &layer, const LayerInputs &in, int64_t e,
                       const Reals &rows) {
  bool wide = layer.rowType == DType::F64;
  std::vector<double> none;
  Reals h = matmul(rows, in.w1[e], in.b1.empty() ? none : in.b1[e], wide);
  Reals g = layer.gated ? matmul(rows, in.wg[e], none, wide) : h;
  for (size_t i = 0; i < h.data.size(); ++i)
    h.data[i] =
        roundTo(layer.rowType, hiddenValue(layer, h.data[i], g.data[i]));
  Reals y = matmul(h, in.w2[e], in.b2.empty() ? none : in.b2[e], wide);
  for (double &value : y.data)
    value = roundTo(layer.rowType, value);
  return y;
}

static void copyRows(const Reals &from, int64_t begin, Reals &to) {
  std::copy(from.data.begin(), from.data.end(),
            to.data.begin() + begin * to.cols);
}

/// Experts that choose their tokens do so in each block.
static GateResult chooseByBlock(const Layer &layer, const GateInputs &in) {
  int64_t T = in.logits.rows, E = in.logits.cols, begin = 0;
  GateResult out{Ids(T, E, -1), Reals(T, E), Reals(T, E)};
  for (int32_t size : layer.blocks) {
    GateInputs block = in;
    block.logits = Reals(size, E);
    auto first = in.logits.data.begin() + begin * E;
    std::copy(first, first + size * E, block.logits.data.begin());
    if (!in.mask.empty())
      block.mask.assign(in.mask.begin() + begin,
                        in.mask.begin() + begin + size);
    GateResult part = gate(layer.router, block);
    std::copy(part.ids.data.begin(), part.ids.data.end(),
              out.ids.data.begin() + begin * E);
    copyRows(part.weights, begin, out.weights);
    copyRows(part.scores, begin, out.scores);
    begin += size;
  }
  return out;
}

LayerResult evaluate(const Layer &layer, const LayerInputs &in) {
  LayerResult out;
  int64_t T = in.x.rows;
  out.gate = layer.router.expertChoice && !layer.blocks.empty()
                 ? chooseByBlock(layer, in.gate)
                 : gate(layer.router, in.gate);
  out.counts = count(out.gate.ids, layer.experts);

  std::optional<Capacity> rule = layer.capacity;
  if (layer.padded && !rule)
    rule = Capacity{CapacityRule::Tutel, 0};
  int64_t blocks = layer.blocks.empty() ? 1 : layer.blocks.size();
  if (rule) {
    int64_t tokens =
        layer.blocks.empty()
            ? T
            : *std::max_element(layer.blocks.begin(), layer.blocks.end());
    int64_t k = std::clamp<int64_t>(in.gate.k.value_or(layer.choices()), 0,
                                    layer.choices());
    int64_t most = *std::max_element(out.counts.begin(), out.counts.end());
    out.capacity = capacity(*rule, tokens, layer.experts, k, most);
  }

  AssignInputs assignInputs;
  assignInputs.order = layer.order;
  assignInputs.experts = layer.experts;
  assignInputs.capacity = out.capacity;
  assignInputs.blocks = layer.blocks;
  assignInputs.tokenPriority = in.tokenPriority;
  if (in.tokenPriority.empty()) {
    Router best;
    best.score = layer.router.score;
    best.wide = layer.router.wide;
    GateInputs logits;
    logits.logits = in.gate.logits;
    assignInputs.tokenPriority = gate(best, logits).weights.data;
  }
  assignInputs.pairPriority = out.gate.weights;
  if (layer.padded)
    assignInputs.paddedRows = *out.capacity * blocks;
  out.assignment = assign(out.gate.ids, assignInputs);

  const Reals *weights = &out.gate.weights;
  Reals rows = dispatch(in.x, out.assignment, layer.rowType,
                        layer.weightsOnInput ? weights : nullptr);
  Reals results = mapExperts(
      rows, out.assignment, layer.outFeatures,
      [&](int64_t e, const Reals &r) { return runExpert(layer, in, e, r); });
  out.y = combine(results, out.assignment, layer.rowType,
                  layer.weightsOnInput ? nullptr : weights);
  return out;
}

} // namespace moira::reference
