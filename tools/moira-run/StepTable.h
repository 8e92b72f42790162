// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// One line for each step of a run whose steps differ.

#ifndef MOIRA_TOOLS_MOIRA_RUN_STEPTABLE_H
#define MOIRA_TOOLS_MOIRA_RUN_STEPTABLE_H

#include "session/Manifest.h"
#include "statistics/Statistics.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <string>
#include <vector>

namespace moira::tools {

/// What a step had and took.
struct StepRecord {
  int64_t step = 0;
  int64_t tokens = 0;   ///< of all ranks
  double imbalance = 1; ///< see imbalanceOf
  std::string plan;     ///< as Candidate::describe; of layers that differ, all
  int64_t dropped = 0;  ///< rows, of all layers
  double seconds = 0;
  double predicted = NAN; ///< by who chose the plan; NaN: nobody did
  /// The plan that would have been fastest; NaN and empty: not asked for.
  double least = NAN;
  std::string leastPlan;
  std::vector<double> fixed;          ///< seconds of every fixed plan; or empty
  std::vector<double> fixedPredicted; ///< by the model; or empty
  std::vector<std::vector<int32_t>> counts; ///< rows by layer and expert
};

/// Of the layer where it is largest: rows of the fullest expert over the mean.
double imbalanceOf(const runtime::StepRow &row);

/// The record of a step that `row` sums up over ranks.
StepRecord describeStep(const runtime::EntrySpec &entry,
                        const runtime::StepRow &row, int64_t step,
                        int64_t tokens, double seconds);

/// Shows steps as they end: on a terminal the last ones in place, else a line
/// for each.
class StepTable {
public:
  /// `quiet` shows nothing.
  StepTable(llvm::raw_ostream &stream, bool quiet);

  /// Of --compare-plans: before the first step.
  void addPlan(std::string name) { plans.push_back(std::move(name)); }
  void add(StepRecord record);
  const std::vector<StepRecord> &records() const { return steps; }
  const std::vector<std::string> &planNames() const { return plans; }
  llvm::json::Array toJson() const;

private:
  std::string line(const StepRecord &record) const;

  llvm::raw_ostream &stream;
  const bool quiet, inPlace;
  std::vector<StepRecord> steps;
  std::vector<std::string> plans;
  size_t shown = 0; ///< lines that are redrawn
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_STEPTABLE_H
