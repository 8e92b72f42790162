// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lasting tables that follow the loads of a session's steps: FlexMoE's
// scheduler over what ranks told each other (docs/placement.md).

#ifndef MOIRA_RUNTIME_SESSION_REBALANCING_H
#define MOIRA_RUNTIME_SESSION_REBALANCING_H

#include "collective/ExchangeLayout.h"
#include "collective/Placement.h"
#include "cost/LayerModel.h"
#include "placement/ReplicaPolicy.h"
#include "session/Manifest.h"
#include "statistics/Statistics.h"

#include <memory>
#include <optional>
#include <vector>

namespace moira::runtime {

/// The same on all ranks.
struct RebalanceOptions {
  /// The most rows of a rank over the mean that are left alone.
  double threshold = 1.1;
  int maxRounds = 16;  ///< of one slot for another, in a call
  int64_t steps = 100; ///< that a table is expected to last
  /// As in AdaptOptions.
  std::optional<Topology> topology;
  std::optional<Calibration> calibration;
};

/// For the layers of one entry. Every rank has one, all are told the same.
class Rebalancing {
public:
  /// Needs an entry for several ranks whose layers have costs and experts that
  /// one rank holds whole.
  static Result<std::unique_ptr<Rebalancing>>
  create(const EntrySpec &entry, const RankGroups &groups,
         const RebalanceOptions &options);

  /// Adds the loads of a step of the entry. Allocates nothing once sizes have
  /// been seen.
  void count(const StepRow &row);
  /// Where a layer's experts should stand by what was counted; nothing: where
  /// they do. What is proposed gives the fullest rank fewer rows as exchanges
  /// divide them. Counts of the layer begin again.
  ///
  /// With a model a step of the layer may shadow up to `shadows` experts: spare
  /// slots are theirs, and experts change owners (placement/OwnerSwaps.h) where
  /// it says that moves pay in `steps` steps. Its placement and loads change.
  std::optional<std::vector<int32_t>> propose(size_t layer,
                                              const Placement &now,
                                              LayerModel *model = nullptr,
                                              int shadows = 0);

private:
  struct Layer {
    int64_t index = 0;
    std::vector<int32_t> counts; ///< [ranks, experts]
    std::optional<ReplicaTable> table;
    std::unique_ptr<ReplicaPolicy> policy;
    int64_t stateBytes = 0; ///< of an expert
    int64_t steps = 0;      ///< that counts are of
  };
  std::optional<std::vector<int32_t>> swap(const Layer &layer,
                                           const Placement &now,
                                           LayerModel &model,
                                           int shadows) const;

  explicit Rebalancing(const RebalanceOptions &options) : options(options) {}

  const RebalanceOptions options;
  std::vector<Layer> layers;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_REBALANCING_H
