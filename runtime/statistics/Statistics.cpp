// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "statistics/Statistics.h"

#include <chrono>

using namespace moira;
using namespace moira::runtime;

void RingSink::record(const StepRow &row) {
  if (capacity <= 0)
    return;
  std::lock_guard<std::mutex> lock(mutex);
  if (static_cast<int64_t>(rows.size()) < capacity) {
    rows.push_back(row);
    return;
  }
  rows[next] = row; // keeps the memory of the vectors inside
  next = (next + 1) % capacity;
}

std::vector<StepRow> RingSink::snapshot() const {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<StepRow> copy;
  copy.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    copy.push_back(rows[(next + i) % rows.size()]);
  return copy;
}

double moira::runtime::realSeconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

void StepRecorder::begin(int64_t step, int32_t entry, int32_t variant,
                         int64_t rows, const std::vector<int64_t> &layers,
                         const moira_plan *plans) {
  row.step = step;
  row.entry = entry;
  row.variant = variant;
  row.rows = rows;
  row.error = MOIRA_OK;
  row.launches = row.waits = 0;
  row.deviceSeconds = 0;
  row.deviceAllocations = 0;
  row.seconds.fill(0);
  row.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerRow &layer = row.layers[i];
    layer.layer = layers[i];
    layer.plan = plans[i];
    layer.plan.slot_table = nullptr; // the row outlives the table
    layer.counts.clear();
    layer.sizes.clear();
    layer.routed = layer.dropped = 0;
    layer.seconds.fill(0);
    layer.matrix.clear();
    layer.bytesSent = layer.bytesReceived = 0;
    layer.shadows.clear();
    layer.predicted = 0;
    layer.reason = "";
  }
  inside = nullptr;
  current = &row.seconds[MOIRA_PART_OTHER];
  started = since = now();
}

double LayerRow::total() const {
  double sum = 0;
  for (double part : seconds)
    sum += part;
  return sum;
}

LayerRow *StepRecorder::find(int64_t layer) {
  for (LayerRow &candidate : row.layers)
    if (candidate.layer == layer)
      return &candidate;
  return nullptr;
}

const char *runtime::partName(int part) {
  static const char *const names[MOIRA_PART_COUNT] = {
      "other", "gate", "dispatch", "expert", "combine", "exchange"};
  return names[part];
}

/// Of what is charged now, for a trace, where layers stand beside dense parts.
std::string StepRecorder::currentName() const {
  auto name = [](int part) {
    return part == MOIRA_PART_OTHER ? "dense" : partName(part);
  };
  for (const LayerRow &layer : row.layers)
    for (int part = 0; part < MOIRA_PART_COUNT; ++part)
      if (current == &layer.seconds[part])
        return "layer " + std::to_string(layer.layer) + " " + name(part);
  for (int part = 0; part < MOIRA_PART_COUNT; ++part)
    if (current == &row.seconds[part])
      return name(part);
  return "";
}

void StepRecorder::charge() {
  double time = now();
  *current += time - since;
  if (trace && time > since)
    trace->add(TraceEvent{currentName(), TraceQueue::Compute, since, time});
  since = time;
}

bool StepRecorder::enter(int64_t layer, int64_t part) {
  LayerRow *found = layer == -1 ? nullptr : find(layer);
  if ((layer != -1 && !found) || part < 0 || part >= MOIRA_PART_COUNT)
    return false;
  charge();
  current = found ? &found->seconds[part] : &row.seconds[part];
  inside = found;
  return true;
}

double *StepRecorder::enterPart(int64_t layer, int64_t part) {
  LayerRow *found = layer == -1 ? nullptr : find(layer);
  if (!found)
    found = inside;
  double *before = current;
  if (!before)
    return before; // outside of a step
  charge();
  current = found ? &found->seconds[part] : &row.seconds[part];
  return before;
}

void StepRecorder::leavePart(double *before) {
  if (!before)
    return;
  charge();
  current = before;
}

void StepRecorder::matrix(int64_t layer, int64_t experts, int64_t ranks,
                          const int32_t *rows) {
  LayerRow *found = find(layer);
  if (!found)
    return;
  if (static_cast<int64_t>(found->matrix.size()) != ranks * experts)
    found->matrix.assign(ranks * experts, 0);
  for (int64_t i = 0; i < ranks * experts; ++i)
    found->matrix[i] += rows[i];
}

void StepRecorder::planned(size_t place, const std::vector<int32_t> &shadows,
                           double predicted, const char *reason) {
  LayerRow &layer = row.layers[place];
  layer.shadows = shadows;
  layer.predicted = predicted;
  layer.reason = reason;
}

void StepRecorder::replanned(size_t place, const moira_plan &plan) {
  row.layers[place].plan = plan;
  row.layers[place].plan.slot_table = nullptr;
}

void StepRecorder::moved(int64_t layer, int64_t bytesSent,
                         int64_t bytesReceived) {
  LayerRow *found = find(layer);
  if (!found)
    return;
  found->bytesSent += bytesSent;
  found->bytesReceived += bytesReceived;
}

bool StepRecorder::loads(int64_t layer, int64_t experts, const int32_t *counts,
                         const int32_t *sizes) {
  LayerRow *found = find(layer);
  if (!found || experts < 0)
    return false;
  if (found->counts.empty()) {
    found->counts.assign(experts, 0);
    found->sizes.assign(experts, 0);
  }
  if (static_cast<int64_t>(found->counts.size()) != experts)
    return false;
  for (int64_t e = 0; e < experts; ++e) {
    found->counts[e] += counts[e];
    found->sizes[e] += sizes[e];
    found->routed += counts[e];
    found->dropped += int64_t(counts[e]) - sizes[e];
  }
  return true;
}

const StepRow &StepRecorder::end(int32_t error) {
  charge();
  row.total = since - started;
  row.error = error;
  return row;
}
