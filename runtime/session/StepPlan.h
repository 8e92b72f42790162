// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step runs with, layer by layer, and what lasts from step to step.

#ifndef MOIRA_RUNTIME_SESSION_STEPPLAN_H
#define MOIRA_RUNTIME_SESSION_STEPPLAN_H

#include "collective/Placement.h"
#include "session/Session.h"

#include <optional>
#include <string>
#include <vector>

namespace moira::runtime {

class ResidualPool;

/// What one layer runs with in one step.
struct LayerRun {
  int32_t degree = 1;             ///< pipeline chunks
  int32_t exchange = 0;           ///< 0 linear, 1 hierarchical
  std::vector<int32_t> shadows{}; ///< experts that all ranks hold, distinct
  /// [ranks, slots], shadows among them; empty: identity. Whoever changes
  /// `shadows` calls LayerPlans::writeTable.
  std::vector<int32_t> table{};
};

/// What one step of an entry runs with.
struct StepPlan {
  int variant = 0;
  int64_t rows = 0;
  /// In the manifest's order; one where the entry has no layer.
  std::vector<LayerRun> layers;
  /// Where results from `pooledFrom` on come from; null: allocated.
  ResidualPool *pool = nullptr;
  int64_t pooledFrom = 0;
  /// Of a way back: which forward step it belongs to; -1: it is none.
  int64_t forwardStep = -1;
};

/// The plans that last, by layer. A value: a changed one is made, checked, and
/// takes the place of the other.
class LayerPlans {
public:
  /// References the manifest.
  LayerPlans(const Manifest &manifest, int ranks);

  /// These plans with another one for a layer, for all layers without one.
  /// Fails with MOIRA_INVALID_ARGUMENT where the plan does not fit a layer,
  /// with MOIRA_NOT_FOUND where there is no such layer.
  Result<LayerPlans> with(std::optional<int64_t> layer,
                          const PlanOptions &plan) const;

  /// With another lasting table of a layer and of all that share parameters
  /// with it, without shadows there.
  Result<LayerPlans> withTable(int64_t layer,
                               const std::vector<int32_t> &table) const;

  /// Where each parameter of experts stands, [ranks, slots], by row of the
  /// table; empty: identity. Fails where layers share a parameter and do not
  /// agree.
  Result<std::vector<std::vector<int32_t>>> tables() const;

  /// Whether every layer's lasting table is that of the other plans.
  bool hasTablesOf(const LayerPlans &other) const;

  /// What the layers of an entry run with. A variant with r = 0, where every
  /// rank gathers all experts anyway, has no shadows. Allocates nothing where
  /// `layers` has had these sizes.
  void fill(const EntrySpec &entry, int variant,
            std::vector<LayerRun> &layers) const;

  /// Writes run.table for run.shadows over the lasting table of a layer. Fails
  /// with MOIRA_INVALID_ARGUMENT where an expert is out of range or a rank has
  /// too few free slots. Allocates nothing where the table has its size.
  Status writeTable(int64_t layer, LayerRun &run) const;
  /// Indices of all layers, ascending.
  std::vector<int64_t> layers() const;
  /// The lasting placement of a layer; null where it has none on these ranks.
  const Placement *placement(int64_t layer) const;
  /// Its table, [ranks, slots]; empty: identity.
  const std::vector<int32_t> &lastingTable(int64_t layer) const;
  /// Rows of the parameter table that the layer's experts have.
  std::vector<int64_t> parametersOf(int64_t layer) const;

private:
  struct Lasting {
    int64_t layer = 0;
    std::optional<LayerPlacement> shape; ///< of a layer for these ranks
    /// Rows of its experts, where the manifest says so.
    std::optional<std::vector<int64_t>> parameters;
    std::vector<int32_t> table; ///< without shadows
    Placement placement;
    LayerRun run;
  };
  const Lasting *find(int64_t layer) const;
  Status set(Lasting &lasting, const PlanOptions &plan) const;
  Status writeTable(const Lasting &lasting, LayerRun &run) const;
  bool reads(const Lasting &lasting, int64_t parameter) const;

  const Manifest *manifest;
  int ranks;
  std::vector<Lasting> list; ///< by layer, ascending
  LayerRun others;           ///< of an entry without layers
};

/// Plans as generated code reads them, of an entry's layers. They point into
/// `layers`, which stay as they are.
void toAbiPlans(int variant, int ranks, const std::vector<LayerRun> &layers,
                std::vector<moira_plan> &plans);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_STEPPLAN_H
