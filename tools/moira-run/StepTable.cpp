// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StepTable.h"

#include "support/CommandLine.h"

#include "selection/Candidate.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
namespace json = llvm::json;

/// Steps that stay on a terminal.
static constexpr size_t rowsInPlace = 12;

double tools::imbalanceOf(const StepRow &row) {
  double most = 1;
  for (const LayerRow &layer : row.layers)
    if (layer.routed > 0)
      most = std::max(
          most,
          double(*std::max_element(layer.counts.begin(), layer.counts.end())) *
              double(layer.counts.size()) / double(layer.routed));
  return most;
}

/// What ran in a layer, as candidates are called.
static std::string planOf(const EntrySpec &entry, const StepRow &row,
                          const LayerRow &layer) {
  const VariantSpec &variant = entry.variants[row.variant];
  Candidate candidate;
  for (const LayerSpec &spec : entry.layers)
    if (spec.index == layer.layer && spec.placement)
      candidate.plan.copies = spec.placement->copies;
  candidate.plan.schedule = variant.scheduleOfPlans();
  if (variant.copies >= 0)
    candidate.plan.copies = variant.copies;
  candidate.plan.degree = layer.plan.degree;
  candidate.plan.exchange = layer.plan.exchange;
  candidate.plan.shadows = static_cast<int>(layer.shadows.size());
  return candidate.describe();
}

StepRecord tools::describeStep(const EntrySpec &entry, const StepRow &row,
                               int64_t step, int64_t tokens, double seconds) {
  StepRecord record;
  record.step = step;
  record.tokens = tokens;
  record.imbalance = imbalanceOf(row);
  record.seconds = seconds;
  std::vector<std::string> plans;
  for (const LayerRow &layer : row.layers) {
    plans.push_back(planOf(entry, row, layer));
    record.counts.push_back(layer.counts);
    record.dropped += layer.dropped;
    // Layers one after the other.
    if (layer.predicted > 0)
      record.predicted = layer.predicted +
                         (std::isnan(record.predicted) ? 0 : record.predicted);
  }
  // Layers that all run the same are named once.
  if (!plans.empty() && llvm::all_equal(plans))
    plans.resize(1);
  record.plan = llvm::join(plans, ", ");
  return record;
}

StepTable::StepTable(llvm::raw_ostream &stream, bool quiet)
    : stream(stream), quiet(quiet),
      inPlace(!quiet && stream.is_displayed() && stream.has_colors()) {
  if (!quiet)
    stream << "  step  tokens  imbalance       time   predicted  plan\n";
}

std::string StepTable::line(const StepRecord &record) const {
  std::string text = llvm::formatv(
      "{0,6}  {1,6}  {2,9:f2}  {3,9}  {4,10}  {5}", record.step, record.tokens,
      record.imbalance, formatSeconds(record.seconds),
      std::isnan(record.predicted) ? "" : formatSeconds(record.predicted),
      record.plan);
  if (!std::isnan(record.least))
    text += llvm::formatv("  (least {0}: {1})", formatSeconds(record.least),
                          record.leastPlan);
  return text;
}

void StepTable::add(StepRecord record) {
  if (!record.fixed.empty()) {
    auto least = std::min_element(record.fixed.begin(), record.fixed.end());
    record.least = *least;
    record.leastPlan = plans[least - record.fixed.begin()];
  }
  steps.push_back(std::move(record));
  if (quiet)
    return;
  if (!inPlace) {
    stream << line(steps.back()) << '\n';
    stream.flush();
    return;
  }
  if (shown > 0)
    stream << "\033[" << shown << 'A';
  shown = std::min(steps.size(), rowsInPlace);
  for (size_t i = steps.size() - shown; i < steps.size(); ++i)
    stream << "\033[K" << line(steps[i]) << '\n';
  stream.flush();
}

json::Array StepTable::toJson() const {
  json::Array list;
  auto number = [](double value) {
    return std::isnan(value) ? json::Value(nullptr) : json::Value(value);
  };
  for (const StepRecord &record : steps) {
    json::Array counts;
    for (const std::vector<int32_t> &layer : record.counts)
      counts.push_back(json::Array(layer));
    json::Object object{{"step", record.step},
                        {"tokens", record.tokens},
                        {"imbalance", record.imbalance},
                        {"dropped", record.dropped},
                        {"plan", record.plan},
                        {"seconds", record.seconds},
                        {"predicted", number(record.predicted)},
                        {"counts", std::move(counts)}};
    if (!std::isnan(record.least)) {
      object["least"] = record.leastPlan;
      object["least_seconds"] = record.least;
      object["fixed_seconds"] = json::Array(record.fixed);
      if (!record.fixedPredicted.empty())
        object["fixed_predicted"] = json::Array(record.fixedPredicted);
    }
    list.push_back(std::move(object));
  }
  return list;
}
