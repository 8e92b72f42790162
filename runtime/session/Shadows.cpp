// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Shadows.h"

#include "base/Hash.h"
#include "session/StepContext.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

Shadows::Shadows(const LayerPlans &plans, ParameterTable &parameters)
    : plans(plans), parameters(parameters) {
  for (int64_t layer : plans.layers()) {
    Group group;
    group.layers = {layer};
    group.parameters = plans.parametersOf(layer);
    auto shares = [&](const Group &other) {
      return std::find_first_of(
                 other.parameters.begin(), other.parameters.end(),
                 group.parameters.begin(),
                 group.parameters.end()) != other.parameters.end();
    };
    for (size_t i = groups.size(); i-- > 0;) {
      if (!shares(groups[i]))
        continue;
      group.layers.insert(group.layers.end(), groups[i].layers.begin(),
                          groups[i].layers.end());
      group.parameters.insert(group.parameters.end(),
                              groups[i].parameters.begin(),
                              groups[i].parameters.end());
      groups.erase(groups.begin() + i);
    }
    std::vector<int64_t> &list = group.parameters;
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    group.versions.resize(list.size());
    groups.push_back(std::move(group));
  }
}

Shadows::Group *Shadows::groupOf(int64_t layer) {
  for (Group &group : groups)
    if (std::find(group.layers.begin(), group.layers.end(), layer) !=
        group.layers.end())
      return &group;
  return nullptr;
}

const int32_t *Shadows::lastingTable(int64_t layer) const {
  const Group *group = any ? groupOf(layer) : nullptr;
  return group && group->plan ? plans.lastingTable(layer).data() : nullptr;
}

void Shadows::end() {
  any = false;
  chooses = nullptr;
  given = nullptr;
  abiPlans = nullptr;
  for (Group &group : groups) {
    group.plan = nullptr;
    group.run = nullptr;
    group.pending.clear();
  }
}

void Shadows::forget() {
  for (Group &group : groups)
    std::fill(group.held.begin(), group.held.end(), -1);
}

bool Shadows::isStale(const Group &group) const {
  for (size_t i = 0; i < group.parameters.size(); ++i)
    if (group.versions[i] !=
        parameters.version(static_cast<int>(group.parameters[i])))
      return true;
  return false;
}

/// Finds the groups that have shadows in the step.
Status Shadows::take(const EntrySpec &entry, const StepPlan &given,
                     const std::vector<moira_plan> &abi) {
  for (size_t i = 0; i < entry.layers.size(); ++i) {
    const LayerRun &run = given.layers[i];
    Group *group = groupOf(entry.layers[i].index);
    if (group->run && group->run->table != run.table)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("layer ", entry.layers[i].index,
                           ": expected the shadows of layer ",
                           group->layers.front(),
                           ", with which it shares parameters, got others"));
    group->run = &run;
    if (run.shadows.empty())
      continue;
    if (!group->plan)
      group->plan = &abi[i];
    any = true;
  }
  return Status();
}

/// Compares plans, and finds the groups that are stale on any rank.
Status Shadows::agree(const EntrySpec &entry,
                      const std::vector<moira_plan> &abi, uint64_t &stale) {
  Word mine{0, 0};
  for (const moira_plan &plan : abi) {
    uint64_t hash = hashPlanOf(&entry, plan, communicator->ranks());
    mine.plan = hashBytes(&hash, sizeof(hash), mine.plan);
  }
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i].plan && isStale(groups[i]))
      mine.stale |= uint64_t(1) << std::min<size_t>(i, 63);
  words.resize(communicator->ranks());
  MOIRA_RETURN_IF_ERROR(
      communicator->allGather(&mine, sizeof(mine), words.data()));
  stale = 0;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].plan != words[0].plan)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected the same plan on all ranks, got another "
                           "on rank ",
                           rank, " than on rank 0"));
    stale |= words[rank].stale;
  }
  return Status();
}

/// Lists the units that some rank lacks.
Status Shadows::list(Group &group) {
  int64_t layer = group.layers.front();
  const Placement &lasting = *plans.placement(layer);
  MOIRA_RETURN_IF_ERROR(step.set(lasting.constants(), group.run->table.data(),
                                 communicator->ranks()));
  group.held.resize(group.run->table.size(), -1);
  for (int32_t expert : group.run->shadows)
    for (int h = 0; h < step.shards(); ++h) {
      int unit = expert * step.shards() + h;
      bool lacks = false;
      for (int rank = 0; rank < step.ranks(); ++rank) {
        if (lasting.holderFor(unit, rank).rank == rank)
          continue;
        Place place = step.holderFor(unit, rank);
        int32_t &held = group.held[size_t(rank) * step.slots() + place.slot];
        lacks |= held != unit;
        held = unit;
      }
      if (lacks)
        group.pending.push_back(unit);
    }
  return group.pending.empty() ? Status() : hold(group);
}

/// Generated code reads addresses early: bytes that the program holds become
/// the session's before.
Status Shadows::hold(const Group &group) {
  for (int64_t row : group.parameters)
    if (!slots)
      MOIRA_RETURN_IF_ERROR(parameters.write(static_cast<int>(row)).status());
  return Status();
}

/// Slots must be filled anew, with what parameters are now.
void Shadows::refresh(Group &group) {
  std::fill(group.held.begin(), group.held.end(), -1);
  for (size_t p = 0; p < group.parameters.size(); ++p)
    group.versions[p] =
        parameters.version(static_cast<int>(group.parameters[p]));
}

bool Shadows::isStale(int64_t layer) const {
  const Group *group = groupOf(layer);
  return group && isStale(*group);
}

Status Shadows::begin(const EntrySpec &entry, StepPlan &plan,
                      std::vector<moira_plan> &abi,
                      Communicator *newCommunicator, bool late) {
  communicator = newCommunicator;
  end(); // of a step that an exception has left
  MOIRA_RETURN_IF_ERROR(take(entry, plan, abi));
  if (late && communicator && communicator->ranks() > 1) {
    chooses = &entry;
    given = &plan;
    abiPlans = &abi;
    for (const LayerSpec &layer : entry.layers)
      MOIRA_RETURN_IF_ERROR(hold(*groupOf(layer.index)));
  }
  if (!any || !communicator || communicator->ranks() == 1)
    return Status();
  uint64_t stale = 0;
  MOIRA_RETURN_IF_ERROR(agree(entry, abi, stale));
  for (size_t i = 0; i < groups.size(); ++i) {
    Group &group = groups[i];
    if (!group.plan)
      continue;
    if (stale >> std::min<size_t>(i, 63) & 1)
      refresh(group);
    MOIRA_RETURN_IF_ERROR(list(group));
  }
  return Status();
}

Status Shadows::choose(size_t place, const std::vector<int32_t> &experts,
                       bool stale) {
  if (!chooses)
    return experts.empty()
               ? Status()
               : Status(MOIRA_INVALID_ARGUMENT,
                        concat("shadow: expected none, since the step began "
                               "for none, got ",
                               experts.size()));
  int64_t layer = chooses->layers[place].index;
  LayerRun &run = given->layers[place];
  run.shadows = experts;
  MOIRA_RETURN_IF_ERROR(plans.writeTable(layer, run));
  moira_plan &plan = (*abiPlans)[place];
  plan.slot_table = run.table.empty() ? nullptr : run.table.data();
  Group &group = *groupOf(layer);
  if (stale)
    refresh(group);
  if (experts.empty())
    return Status();
  group.plan = &plan;
  group.run = &run;
  any = true;
  MOIRA_RETURN_IF_ERROR(list(group));
  return start(layer);
}

Status Shadows::start(int64_t layer) {
  Group *group = any ? groupOf(layer) : nullptr;
  if (!group || group->pending.empty())
    return Status();
  ShadowMove move;
  move.layer = layer;
  move.placement = plans.placement(layer)->constants();
  move.lasting = plans.lastingTable(layer).data();
  for (int32_t unit : group->pending)
    for (int64_t row : group->parameters) {
      // Generated code reads them alone.
      Result<void *> held =
          slots ? Result<void *>(const_cast<void *>(slots[row].data))
                : parameters.write(static_cast<int>(row));
      if (!held.ok())
        return held.status();
      move.parameter = static_cast<int32_t>(row);
      move.unit = unit;
      move.slots = *held;
      move.bytes = parameters.slotBytes(static_cast<int>(row));
      Result<int64_t> ticket = communicator->moveShadow(*group->plan, move);
      if (!ticket.ok())
        return ticket.status();
    }
  group->pending.clear();
  return Status();
}
