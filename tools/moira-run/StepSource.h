// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// What each step of a run has: tokens, numbers, and the experts that a trace
// of loads chooses.

#ifndef MOIRA_TOOLS_MOIRA_RUN_STEPSOURCE_H
#define MOIRA_TOOLS_MOIRA_RUN_STEPSOURCE_H

#include "Inputs.h"
#include "StepOptions.h"

#include "cost/LoadTrace.h"
#include "session/Manifest.h"

namespace moira::tools {

/// Makes steps one after the other. The same options give the same steps,
/// whatever the plans.
class StepSource {
public:
  /// The last `gates` inputs of `entry` are the ids of its gates, where a trace
  /// chooses. `inputs` stay where they are.
  static llvm::Expected<StepSource> create(const StepOptions &options,
                                           const runtime::EntrySpec &entry,
                                           size_t gates, Inputs &inputs);
  /// Gives the inputs the tokens, numbers and ids of the next step.
  llvm::Error next();

private:
  /// A gate: its loads and its input.
  struct Gate {
    size_t input = 0;
    int experts = 0, choices = 0;
    int64_t layer = 0; ///< of the trace
    std::optional<runtime::LoadTrace> trace;
    std::vector<double> shares;
    std::vector<int32_t> ids; ///< [tokens of all ranks, choices]
  };

  StepSource(const StepOptions &options, Inputs &inputs)
      : options(&options), inputs(&inputs) {}
  llvm::Error openTrace(const runtime::EntrySpec &entry, size_t gates);
  llvm::Error findShares(Gate &gate);
  void choose(Gate &gate);

  const StepOptions *options;
  Inputs *inputs;
  std::vector<Gate> gates;
  std::optional<runtime::RecordedLoads> recorded;
  std::vector<size_t> variedInputs;
  std::vector<double> later;    ///< shares of the file's next step
  std::vector<int32_t> matrix;  ///< [ranks, experts] rows of a step
  std::vector<int32_t> pending; ///< experts of a rank's pairs, in order
  int64_t step = 0;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_STEPSOURCE_H
