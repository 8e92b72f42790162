// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which variant the layers of an entry run: one for all of them.

#ifndef MOIRA_RUNTIME_SELECTION_ENTRYCHOICE_H
#define MOIRA_RUNTIME_SELECTION_ENTRYCHOICE_H

#include "selection/Decider.h"

namespace moira::runtime {

/// Chooses between the halves of the layers' decisions: the variant whose best
/// plans take the least time, all layers together. It tries others as a decider
/// tries candidates, by number, rate and expected loss. A function of what the
/// deciders say, so the same on all ranks.
class EntryChoice {
public:
  explicit EntryChoice(const SelectionOptions &options)
      : wanted(options), allowance(options.initialLoss) {}

  struct Choice {
    int variant = -1; ///< -1: each layer's own decision
    DecisionReason reason = DecisionReason::Model;
    bool trial() const {
      return reason == DecisionReason::Trial ||
             reason == DecisionReason::ExtremeTrial;
    }
  };
  /// Of layers that are prepared, and have the same variants, for the step
  /// after `step`. Bit i of `allowed`: variant i may be chosen.
  Choice choose(int64_t step,
                const std::vector<std::unique_ptr<Decider>> &layers,
                uint64_t allowed = ~uint64_t(0));

private:
  bool sum(const std::vector<std::unique_ptr<Decider>> &layers);
  int pickTrial(int64_t step, const Decider &layer, int best,
                DecisionReason &reason);

  const SelectionOptions wanted;
  double allowance; ///< steps that trials may still cost
  int64_t lastTrial = -(int64_t(1) << 40);
  bool extremeTried[2] = {false, false};
  int64_t decisions = 0;
  std::vector<Decider::VariantTime> sums; ///< by variant, over layers
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SELECTION_ENTRYCHOICE_H
