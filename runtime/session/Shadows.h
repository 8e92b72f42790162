// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights of shadowed experts on their way into free slots, once per change
// (docs/placement.md, "Shadows, for one step").

#ifndef MOIRA_RUNTIME_SESSION_SHADOWS_H
#define MOIRA_RUNTIME_SESSION_SHADOWS_H

#include "collective/Communicator.h"
#include "session/ParameterTable.h"
#include "session/StepPlan.h"

#include <vector>

namespace moira::runtime {

/// Knows what all ranks' free slots hold. Its decisions depend on the steps
/// before and on what ranks tell each other, so all ranks make the same ones. A
/// slot keeps what it holds until another shadow comes, and is sent again when
/// a parameter of the layer has changed on any rank. The thread of the step
/// only; references must outlive it. Allocates nothing once plans have been
/// seen.
class Shadows {
public:
  Shadows(const LayerPlans &plans, ParameterTable &parameters);

  /// Before a step whose layers run with `given`, as `abi` says it to generated
  /// code; both stay as they are to the end of the step, but for `choose`.
  /// Collective where a layer has shadows: ranks compare their plans. With
  /// `late` layers may get shadows by `choose`, of an entry whose layers share
  /// no parameters.
  Status begin(const EntrySpec &entry, StepPlan &given,
               std::vector<moira_plan> &abi, Communicator *communicator,
               bool late);
  /// In a step that has begun without shadows of a layer: it runs with these,
  /// which all ranks have chosen alike. `place` is the layer's in the entry,
  /// `stale` whether any rank said that its weights are (`isStale`). Changes
  /// the plan that `begin` was given, and queues what the layer needs.
  Status choose(size_t place, const std::vector<int32_t> &experts, bool stale);
  /// Whether the weights of a layer have changed on this rank since they were
  /// shared.
  bool isStale(int64_t layer) const;
  /// Queues what a layer needs, the first time that it is asked in a step. To
  /// be called before any transfer of that layer.
  Status start(int64_t layer);
  /// The table without shadows of a layer that has some in this step; else
  /// null.
  const int32_t *lastingTable(int64_t layer) const;

  /// Where slots stand, by parameter, in memory of a device that the host
  /// reaches; null: in the table. Lasts to the end of the step.
  void setSlots(const moira_param *newSlots) { slots = newSlots; }

  /// Ends the step: its plans may go.
  void end();
  /// Free slots hold nothing from now on: a step has failed, or tables have
  /// changed.
  void forget();

private:
  /// Layers that share parameters.
  struct Group {
    std::vector<int64_t> layers, parameters;
    std::vector<int32_t> held;      ///< [ranks, slots]: unit, or -1
    std::vector<uint64_t> versions; ///< of parameters, when they were sent
    // Of the step:
    const moira_plan *plan = nullptr; ///< null: no shadows
    const LayerRun *run = nullptr;
    std::vector<int32_t> pending; ///< units
  };
  /// What ranks tell each other.
  struct Word {
    uint64_t plan;  ///< hash of all layers' plans
    uint64_t stale; ///< bit per group; the last one for all the rest
  };

  Group *groupOf(int64_t layer);
  const Group *groupOf(int64_t layer) const {
    return const_cast<Shadows *>(this)->groupOf(layer);
  }
  Status take(const EntrySpec &entry, const StepPlan &given,
              const std::vector<moira_plan> &abi);
  Status agree(const EntrySpec &entry, const std::vector<moira_plan> &abi,
               uint64_t &stale);
  Status list(Group &group);
  bool isStale(const Group &group) const;

  void refresh(Group &group);
  Status hold(const Group &group);

  const LayerPlans &plans;
  ParameterTable &parameters;
  const moira_param *slots = nullptr;
  Communicator *communicator = nullptr;
  std::vector<Group> groups;
  bool any = false; ///< whether the step has shadows
  // Of a step whose layers may choose some; else null:
  const EntrySpec *chooses = nullptr;
  StepPlan *given = nullptr;
  std::vector<moira_plan> *abiPlans = nullptr;
  Placement step; ///< of the group that is listed
  std::vector<Word> words;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_SHADOWS_H
