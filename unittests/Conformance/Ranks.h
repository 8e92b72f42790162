// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers on many ranks, as threads of the test.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_RANKS_H
#define MOIRA_UNITTESTS_CONFORMANCE_RANKS_H

#include "Conformance/Harness.h"

namespace moira::conformance {

/// The results that rows of the batch have on any number of ranks: ids,
/// weights and y of a printed layer. Counts, slots and sizes are of one rank.
inline const std::vector<unsigned> tokenResults = {0, 1, 5};

/// A program on all of its ranks, each with memory of its own.
class RankRunners {
public:
  RankRunners(std::shared_ptr<const runtime::Program> program, int ranks,
              int ranksPerNode = 0, int threads = 1);

  void bindWeights(const reference::Layer &layer,
                   const reference::LayerInputs &inputs,
                   const WeightFormat &format);
  void setPlan(const runtime::PlanOptions &plan);
  void setVariant(const std::string &variant);
  std::vector<std::string> variants() const { return runners[0]->variants(); }
  /// One step: each rank gets its tokens of `inputs`, in the order of ranks.
  /// The results of all, one after the other, in that order.
  Outputs run(const reference::Layer &layer,
              const reference::LayerInputs &inputs,
              const std::vector<int32_t> &tokens);

  runtime::Session &session(int rank) { return *runners[rank]->get(); }

private:
  template <typename Action> void onAll(const Action &action);

  std::vector<std::unique_ptr<Runner>> runners;
};

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_RANKS_H
