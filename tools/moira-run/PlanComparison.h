// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// What every plan would have taken: steps of a run on the virtual clock,
// message by message without data (LayerSimulator).

#ifndef MOIRA_TOOLS_MOIRA_RUN_PLANCOMPARISON_H
#define MOIRA_TOOLS_MOIRA_RUN_PLANCOMPARISON_H

#include "placement/Shadowing.h"
#include "selection/Candidate.h"
#include "session/Manifest.h"
#include "statistics/Statistics.h"
#include "support/Grid.h"

#include "cost/LayerSimulator.h"

namespace moira::tools {

/// Times plans under loads that were. Shadows are the experts that these very
/// loads ask for, and are sent in each step: nobody who runs can know better.
class PlanComparison {
public:
  /// For an entry whose layers have a placement and costs, on a grid with the
  /// calibrated virtual clock.
  /// `known`, where there is one, is what the model is told of the machine.
  static llvm::Expected<std::unique_ptr<PlanComparison>>
  create(const runtime::EntrySpec &entry, const Grid &grid, bool training,
         const std::optional<runtime::Calibration> &known);

  /// All plans, as SelectionSpace lists them.
  const std::vector<runtime::Candidate> &plans() const { return candidates; }
  /// Seconds of each plan, of all layers together; `row` has the matrices of
  /// all ranks' counts.
  llvm::Expected<std::vector<double>> times(const runtime::StepRow &row);
  /// What the cost model predicts for the same; empty without a calibration.
  std::vector<double> predictions(const runtime::StepRow &row);

private:
  /// A layer's place in the manifest with what times it.
  struct Layer {
    runtime::LayerShape shape;
    std::unique_ptr<runtime::LayerSimulator> simulator;
    runtime::Placement placement; ///< the lasting one, r = 1
    runtime::ShadowOrder order;
    std::vector<int64_t> loads;
    std::unique_ptr<runtime::LayerModel> model; ///< or null
    /// Experts in the order in which these loads ask for shadows.
    const std::vector<int32_t> &shadows(const std::vector<int32_t> &counts,
                                        int most);
  };

  PlanComparison(const runtime::Topology &topology,
                 const runtime::Calibration &calibration)
      : topology(topology), calibration(calibration),
        compute(this->calibration) {}
  llvm::Error add(Layer &layer, const std::vector<int32_t> &counts,
                  std::vector<double> &seconds);

  const runtime::Topology topology;
  const runtime::Calibration calibration;
  const runtime::CalibratedTimes compute;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<runtime::Candidate> candidates;
  int maxShadows = 0;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_PLANCOMPARISON_H
