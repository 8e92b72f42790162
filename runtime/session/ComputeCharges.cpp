// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ComputeCharges.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

void ComputeCharges::setClock(VirtualClock *given) {
  costs = given ? given->costs() : nullptr;
  clock = costs ? given : nullptr;
  if (clock)
    steps.resize(stepsKept);
}

void ComputeCharges::begin(int64_t step, int64_t forwardStep) {
  if (!clock)
    return;
  backward = forwardStep >= 0;
  if (backward) {
    const Step &forward = steps[size_t(forwardStep) % stepsKept];
    // One that is long past has the loads of a later one.
    back = forward;
    current = &back;
  } else {
    current = &steps[size_t(step) % stepsKept];
  }
  current->step = step;
  for (Layer &layer : current->layers) {
    layer.exchanges = backward && layer.copies > 0;
    layer.copies = 0;
    layer.gate = layer.dispatch = layer.product = layer.combine = false;
    if (!backward)
      layer.own = 0;
  }
}

ComputeCharges::Layer &ComputeCharges::find(int64_t layer) {
  for (Layer &candidate : current->layers)
    if (candidate.layer == layer)
      return candidate;
  current->layers.emplace_back();
  current->layers.back().layer = layer;
  return current->layers.back();
}

void ComputeCharges::charge(int64_t layer, int64_t part, double seconds) {
  double *before = recorder.enterPart(layer, part);
  clock->add(seconds);
  recorder.leavePart(before);
}

void ComputeCharges::routed(int64_t layer, int64_t experts,
                            const int32_t *rows) {
  if (!clock)
    return;
  Layer &found = find(layer);
  if (found.gate)
    return;
  found.gate = true;
  found.rows.assign(rows, rows + experts);
  found.own = 0;
  for (int32_t n : found.rows)
    found.own += n;
  // A way back that computes the gate again has it in its product.
  if (!backward)
    charge(layer, MOIRA_PART_GATE, costs->gate.at(double(found.own)));
}

void ComputeCharges::ownProduct(Layer &layer) {
  if (layer.product)
    return;
  layer.product = true;
  const KernelCurve &curve = backward ? costs->backward : costs->forward;
  double seconds = curve.call;
  for (int32_t n : layer.rows)
    seconds += curve.group(n);
  charge(layer.layer, MOIRA_PART_EXPERT, seconds);
}

void ComputeCharges::product(int64_t layer, int32_t copies,
                             const int32_t *groups, int64_t slots) {
  if (!clock)
    return;
  Layer &found = find(layer);
  found.product = true;
  found.copies = copies;
  const KernelCurve &curve = backward ? costs->backward : costs->forward;
  double seconds = curve.call;
  for (int64_t slot = 0; slot < slots; ++slot)
    seconds += curve.group(groups[slot]) / copies;
  charge(layer, MOIRA_PART_EXPERT, seconds);
}

void ComputeCharges::reduce(int64_t layer) {
  if (clock)
    ownProduct(find(layer));
}

void ComputeCharges::enter(int64_t layer, int64_t part) {
  if (!clock || layer < 0)
    return;
  if (part == MOIRA_PART_DISPATCH) {
    Layer &found = find(layer);
    if (!found.dispatch)
      charge(layer, part, costs->dispatch.at(double(found.own)));
    found.dispatch = true;
  } else if (part == MOIRA_PART_COMBINE) {
    Layer &found = find(layer);
    // A way back reads what was combined before its products, whose end an
    // exchange tells.
    if (found.exchanges && !found.product)
      return;
    if (!found.combine) {
      ownProduct(found);
      charge(layer, part,
             costs->combine.at(
                 double(found.own * std::max<int64_t>(found.copies, 1))));
    }
    found.combine = true;
  }
}
