// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compute time of a step as a calibration has it, for a virtual clock that
// does not ask the processor (docs/ranks.md, "Time").

#ifndef MOIRA_RUNTIME_SESSION_COMPUTECHARGES_H
#define MOIRA_RUNTIME_SESSION_COMPUTECHARGES_H

#include "collective/VirtualClock.h"
#include "statistics/Statistics.h"

#include <vector>

namespace moira::runtime {

/// Charges the parts of each layer once, when generated code says that they
/// begin or that their results leave: what LayerSimulator takes for compute,
/// at the same places of the timeline. What is not of a layer is free. Works
/// on the thread of the step; without a clock that has a calibration it does
/// nothing. Nothing is allocated once as many layers have been seen.
class ComputeCharges {
public:
  explicit ComputeCharges(StepRecorder &recorder) : recorder(recorder) {}

  /// Null, or a clock without a calibration: nothing is charged.
  void setClock(VirtualClock *clock);
  bool active() const { return clock != nullptr; }

  /// A step begins. `forwardStep` is that of a way back, which takes over the
  /// rows of that step; -1: it is none.
  void begin(int64_t step, int64_t forwardStep);
  /// The rows that this rank has for each expert after drops: the gate.
  void routed(int64_t layer, int64_t experts, const int32_t *rows);
  /// A part begins.
  void enter(int64_t layer, int64_t part);
  /// Results of a chunk leave: its product, over `groups[slots]` rows.
  void product(int64_t layer, int32_t copies, const int32_t *groups,
               int64_t slots);
  /// Gradients of weights leave: with no exchange, the product over own rows.
  void reduce(int64_t layer);

private:
  struct Layer {
    int64_t layer = 0;
    std::vector<int32_t> rows; ///< by expert
    int64_t own = 0;           ///< sum of these
    int32_t copies = 0;        ///< 0 until an exchange has said another number
    bool gate = false, dispatch = false, product = false, combine = false;
    bool exchanges = false; ///< its products end with an exchange: of ways back
  };
  /// What a forward step has routed: ways back may come much later.
  struct Step {
    int64_t step = -1;
    std::vector<Layer> layers;
  };
  static constexpr size_t stepsKept = 64;

  Layer &find(int64_t layer);
  /// Adds time to a part of a layer.
  void charge(int64_t layer, int64_t part, double seconds);
  void ownProduct(Layer &layer);

  StepRecorder &recorder;
  VirtualClock *clock = nullptr;
  const Calibration *costs = nullptr;
  std::vector<Step> steps; ///< [stepsKept], by step number
  Step back;               ///< the way back that runs
  Step *current = nullptr;
  bool backward = false;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_COMPUTECHARGES_H
