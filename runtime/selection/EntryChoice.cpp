// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "selection/EntryChoice.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Adds up what the layers say of each variant. False where one of them has
/// not asked its model.
bool EntryChoice::sum(const std::vector<std::unique_ptr<Decider>> &layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::vector<Decider::VariantTime> &times = layers[i]->variantTimes();
    if (times.empty())
      return false;
    if (i == 0) {
      sums = times;
      for (Decider::VariantTime &sum : sums)
        sum.doubt *= sum.seconds;
      continue;
    }
    for (size_t v = 0; v < sums.size(); ++v) {
      bool known = sums[v].seconds > 0 && times[v].seconds > 0;
      sums[v].seconds = known ? sums[v].seconds + times[v].seconds : 0;
      sums[v].doubt += times[v].doubt * times[v].seconds; // in seconds
      sums[v].trials = std::min(sums[v].trials, times[v].trials);
    }
  }
  return !sums.empty();
}

int EntryChoice::pickTrial(int64_t step, const Decider &layer, int best,
                           DecisionReason &reason) {
  if (step - lastTrial < wanted.trialSpacing * (step < 100 ? 1 : 4))
    return -1;
  auto loss = [&](int v) {
    return std::max(sums[v].seconds / sums[best].seconds - 1, 0.0);
  };
  // As Decider::pickTrial: extremes once, unless they are said to be hopeless.
  int extreme = -1;
  for (int v = 0; v < int(sums.size()); ++v)
    if (int kind = layer.extremeOfVariant(v);
        sums[v].seconds > 0 && kind >= 0 && !extremeTried[kind] &&
        kind != layer.extremeOfVariant(best) &&
        (extreme < 0 || sums[v].seconds < sums[extreme].seconds))
      extreme = v;
  if (extreme >= 0 && loss(extreme) < Decider::extremeFactor - 1 &&
      decisions > 2) {
    reason = DecisionReason::ExtremeTrial;
    return extreme;
  }
  int pick = -1;
  double least = sums[best].seconds;
  for (int v = 0; v < int(sums.size()); ++v) {
    if (v == best || sums[v].seconds == 0 ||
        sums[v].trials >= wanted.trialsPerBucket)
      continue;
    double hoped = sums[v].seconds - sums[v].doubt;
    if (hoped < least && loss(v) <= allowance) {
      least = hoped;
      pick = v;
    }
  }
  if (pick >= 0) {
    allowance -= loss(pick);
    reason = DecisionReason::Trial;
  }
  return pick;
}

EntryChoice::Choice
EntryChoice::choose(int64_t step,
                    const std::vector<std::unique_ptr<Decider>> &layers,
                    uint64_t allowed) {
  Choice choice;
  allowance = std::min(allowance + wanted.trialLoss, wanted.initialLoss + 1);
  if (!sum(layers))
    return choice;
  for (size_t v = 0; v < sums.size(); ++v)
    if (!(allowed >> v & 1))
      sums[v].seconds = 0;
  for (int v = 0; v < int(sums.size()); ++v)
    if (sums[v].seconds > 0 &&
        (choice.variant < 0 || sums[v].seconds < sums[choice.variant].seconds))
      choice.variant = v;
  if (choice.variant < 0)
    return choice;
  if (wanted.mode == SelectionMode::Measured) {
    choice.reason = DecisionReason::Measured;
    int best = choice.variant;
    if (int trial = pickTrial(step, *layers[0], best, choice.reason);
        trial >= 0) {
      choice.variant = trial;
      lastTrial = step;
    }
  }
  if (int kind = layers[0]->extremeOfVariant(choice.variant); kind >= 0)
    extremeTried[kind] = true;
  ++decisions;
  return choice;
}
