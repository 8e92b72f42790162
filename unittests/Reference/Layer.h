// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A whole MoE layer as data: it can be evaluated by the interpreter, or printed
// as IR for the compiler, from the same description.

#ifndef MOIRA_UNITTESTS_REFERENCE_LAYER_H
#define MOIRA_UNITTESTS_REFERENCE_LAYER_H

#include "Interpreter.h"

#include <string>

namespace moira::reference {

enum class Activation { Identity, Relu, Square, Silu };

/// The shape and the rules of a layer. Experts compute
/// `act(x W1^T + b1) W2^T + b2`, or `(act(x Wg^T) * (x W1^T + b1)) W2^T + b2`
/// when gated.
struct Layer {
  int64_t experts = 1, features = 1, hidden = 1, outFeatures = 1;
  Router router;
  DType rowType = DType::F32;
  Order order = Order::ChoiceMajor;
  bool padded = false;
  /// None keeps every pair (a padded layer then gets Tutel's factor 0).
  std::optional<Capacity> capacity;
  std::vector<int32_t> blocks;
  bool weightsOnInput = false;
  Activation activation = Activation::Relu;
  bool gated = false;

  /// Static number of choices per token.
  int64_t choices() const;
};

/// The tensors of a layer. Values are exact in their element types.
struct LayerInputs {
  Reals x; ///< [T, features]
  GateInputs gate;
  /// [T] for batch_prioritized; empty means the token's best score.
  std::vector<double> tokenPriority;
  std::vector<Reals> w1, w2, wg;           ///< per expert: [out, in]
  std::vector<std::vector<double>> b1, b2; ///< per expert, or empty
};

struct LayerResult {
  GateResult gate;
  Counts counts;
  std::optional<int64_t> capacity;
  Assignment assignment;
  Reals y; ///< [T, outFeatures]
};

/// Runs gate, count, capacity, assign, dispatch, experts and combine.
LayerResult evaluate(const Layer &layer, const LayerInputs &inputs);

/// One argument or result of the printed function. Integers and booleans are
/// held in doubles as well.
struct Argument {
  std::string name, elementType;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

/// The arguments of the printed `@main`, in order.
std::vector<Argument> arguments(const Layer &layer, const LayerInputs &inputs);

/// What `@main` returns, in order: ids, weights, counts, slots, sizes, y.
std::vector<Argument> results(const LayerResult &result, const Layer &layer);

/// `func.func @main` in the moe dialect. The number of tokens is dynamic;
/// run-time scalars (k, threshold, factor) are constants in the function.
std::string printModule(const Layer &layer, const LayerInputs &inputs);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_LAYER_H
