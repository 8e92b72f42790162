// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that brings weights to where another table has them.

#include "session/SessionImpl.h"

#include "base/Hash.h"
#include "session/SlotMoves.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Fails where another rank moves to other tables, or keeps other states.
Status
Session::Impl::agreeOnMove(const std::vector<std::vector<int32_t>> &tables) {
  uint64_t mine = 0;
  for (size_t row = 0; row < tables.size(); ++row) {
    mine = hashBytes(tables[row].data(), tables[row].size() * sizeof(int32_t),
                     mine);
    const uint64_t kept[] = {keptOf(static_cast<int>(row)).size(), row};
    mine = hashBytes(kept, sizeof(kept), mine);
  }
  std::vector<uint64_t> all(step.context()->ranks);
  MOIRA_RETURN_IF_ERROR(step.link().allGather(&mine, sizeof(mine), all.data()));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected the same tables and states on all ranks, "
                           "got others on rank ",
                           rank, " than on rank 0"));
  return Status();
}

/// All that belongs to a parameter's slots besides its bytes: the optimizer's
/// states and master copy, gradients that are kept. With the bytes of a slot.
std::vector<std::pair<void *, int64_t>> Session::Impl::keptOf(int row) {
  const ParameterSpec &spec = manifest.parameters[row];
  std::vector<std::pair<void *, int64_t>> kept;
  int64_t elements = spec.packedSliceBytes / byteSize(spec.sourceType);
  if (optimizer)
    for (void *data : optimizer->kept(row))
      kept.push_back({data, elements * byteSize(optimizer->stateType(row))});
  if (gradientTable && gradientTable->sum(row))
    kept.push_back({const_cast<void *>(gradientTable->sum(row)),
                    elements * byteSize(gradientTable->sumType(row))});
  return kept;
}

/// Moves one row's slots, and what belongs to them, to another table.
Status Session::Impl::moveRow(int row, const std::vector<int32_t> &after) {
  const ParameterSpec &spec = manifest.parameters[row];
  int ranks = step.context()->ranks;
  const std::vector<int32_t> &table = parameters.table(row);
  Placement before;
  MOIRA_RETURN_IF_ERROR(
      before.set({spec.placement->experts, spec.placement->shards, 1,
                  static_cast<int32_t>(spec.slices)},
                 table.empty() ? nullptr : table.data(), ranks));
  std::vector<int32_t> units = after;
  for (int64_t place = 0; after.empty() && place < ranks * spec.slices; ++place)
    units.push_back(place < spec.placement->units() ? int32_t(place) : -1);
  SlotMover mover(listMoves(before, units), step.context()->rank);
  Result<void *> bytes = parameters.change(row);
  if (!bytes.ok())
    return bytes.status();
  std::vector<std::pair<void *, int64_t>> all = keptOf(row);
  all.push_back({*bytes, spec.packedSliceBytes});
  for (auto [data, slotBytes] : all) {
    Result<int64_t> ticket =
        step.link().moveSlots(mover.begin(data, slotBytes), row);
    MOIRA_RETURN_IF_ERROR(ticket.status());
    MOIRA_RETURN_IF_ERROR(step.link().wait(*ticket));
    mover.finish();
  }
  return Status();
}

std::vector<int32_t> Session::slotTable(int64_t layer) const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->lastingTable(layer);
}

Status Session::countLoads(const std::string &entry,
                           const RebalanceOptions &options) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  RankGroups groups;
  if (impl->communicator)
    groups = impl->communicator->groups();
  auto made =
      Rebalancing::create(impl->manifest.entries[*found], groups, options);
  if (!made.ok())
    return made.status().within(concat("entry '", entry, "'"));
  impl->rebalancings[*found] = std::move(*made);
  return Status();
}

Result<int64_t> Session::rebalance(const std::string &entry) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  Result<int> found = impl->findEntry(entry);
  if (!found.ok())
    return found.status();
  Rebalancing *rebalancing = impl->rebalancings[*found].get();
  if (!rebalancing)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("entry '", entry,
                         "': expected one whose loads are counted "
                         "(countLoads), got one whose are not"));
  int64_t moved = 0;
  const Adaptation *adaptation = impl->adaptations[*found].get();
  const int shadows = adaptation ? adaptation->maxShadows() : 0;
  const std::vector<LayerSpec> &layers = impl->manifest.entries[*found].layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::unique_ptr<LayerModel> model;
    if (shadows > 0) {
      Result<std::unique_ptr<LayerModel>> made = adaptation->makeModel(i);
      if (!made.ok())
        return made.status();
      model = std::move(*made);
    }
    std::optional<std::vector<int32_t>> table =
        rebalancing->propose(i, *impl->layerPlans.placement(layers[i].index),
                             model.get(), shadows);
    if (!table)
      continue;
    MOIRA_RETURN_IF_ERROR(
        impl->moveWeights(layers[i].index, *table)
            .within(concat("rebalance: layer ", layers[i].index)));
    ++moved;
  }
  return moved;
}

Status Session::moveWeights(int64_t layer,
                            const std::vector<int32_t> &slotTable) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->moveWeights(layer, slotTable)
      .within(concat("move of layer ", layer));
}

Status Session::Impl::moveWeights(int64_t layer,
                                  const std::vector<int32_t> &slotTable) {
  std::optional<LayerPlans> next;
  std::vector<std::vector<int32_t>> tables;
  // A step of its own, so that all ranks know whether anything will move.
  MOIRA_RETURN_IF_ERROR(together([&]() -> Status {
    MOIRA_RETURN_IF_ERROR(checkBound());
    Result<LayerPlans> made = layerPlans.withTable(layer, slotTable);
    if (!made.ok())
      return made.status();
    MOIRA_RETURN_IF_ERROR(checkAdaptations(*made));
    Result<std::vector<std::vector<int32_t>>> all = made->tables();
    if (!all.ok())
      return all.status();
    next = std::move(*made);
    tables = std::move(*all);
    return agreeOnMove(tables);
  }));
  Status status = together([&]() -> Status {
    for (size_t row = 0; row < tables.size(); ++row)
      if (tables[row] != parameters.table(static_cast<int>(row)))
        MOIRA_RETURN_IF_ERROR(moveRow(static_cast<int>(row), tables[row]));
    return Status();
  });
  if (!status.ok()) {
    // Some slots have new content, others old, on this rank or another.
    parameters.forget();
    optimizer.reset();
    if (gradientTable)
      gradientTable->zero();
    return status;
  }
  parameters.follow(std::move(tables));
  layerPlans = std::move(*next);
  shadows.forget();
  return moveAdaptations();
}
