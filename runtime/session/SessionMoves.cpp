// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a session that brings weights to where another table has them.

#include "session/SessionImpl.h"

#include "base/Hash.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Fails where a rank has another number than rank 0.
Status Session::Impl::agree(uint64_t mine, const char *expected) {
  std::vector<uint64_t> all(step.context()->ranks);
  MOIRA_RETURN_IF_ERROR(step.link().allGather(&mine, sizeof(mine), all.data()));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected ", expected, ", got others on rank ", rank,
                           " than on rank 0"));
  return Status();
}

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
  return agree(mine, "the same tables and states on all ranks");
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

/// What moves so that a row's slots hold what another table says.
Result<std::vector<SlotMove>>
Session::Impl::movesOf(int row, const std::vector<int32_t> &after) {
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
  return listMoves(before, units);
}

/// Fails where what arrives at a time, beside all that the session holds, would
/// pass the memory limit. docs/placement.md has the formula.
Status
Session::Impl::checkStaging(const std::vector<std::vector<int32_t>> &tables) {
  int64_t most = 0, copies = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    int row = static_cast<int>(i);
    if (tables[i] == parameters.table(row))
      continue;
    Result<std::vector<SlotMove>> moves = movesOf(row, tables[i]);
    if (!moves.ok())
      return moves.status();
    int64_t slotBytes = manifest.parameters[row].packedSliceBytes;
    copies += parameters.bytesToCopy(row);
    for (auto [data, bytes] : keptOf(row))
      slotBytes = std::max(slotBytes, bytes);
    most =
        std::max(most, countArriving(*moves, step.context()->rank) * slotBytes);
  }
  int64_t peak = account->figures().total() + copies + most;
  if (account->limit() == 0 || peak <= account->limit())
    return Status();
  return Status(MOIRA_OUT_OF_MEMORY,
                concat("expected a peak within the memory limit of ",
                       account->limit(), " bytes, got a predicted peak of ",
                       peak, " bytes (slots that arrive ", most, ", copies ",
                       copies, ")"));
}

/// Moves one row's slots, and what belongs to them, to another table.
Status Session::Impl::moveRow(int row, const std::vector<int32_t> &after) {
  Result<std::vector<SlotMove>> moves = movesOf(row, after);
  if (!moves.ok())
    return moves.status();
  SlotMover mover(std::move(*moves), step.context()->rank, account);
  Result<void *> bytes = parameters.change(row);
  if (!bytes.ok())
    return bytes.status();
  std::vector<std::pair<void *, int64_t>> all = keptOf(row);
  all.push_back({*bytes, manifest.parameters[row].packedSliceBytes});
  for (auto [data, slotBytes] : all) {
    Result<const Pieces *> pieces = mover.begin(data, slotBytes);
    if (!pieces.ok())
      return pieces.status();
    Result<int64_t> ticket = step.link().moveSlots(**pieces, row);
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

/// Fails where another rank would move other weights, or none.
Status Session::Impl::agreeOnProposal(
    int entry, int64_t layer,
    const std::optional<std::vector<int32_t>> &table) {
  const int64_t head[] = {entry, layer, table.has_value()};
  uint64_t mine = hashBytes(head, sizeof(head), 0);
  if (table)
    mine = hashBytes(table->data(), table->size() * sizeof(int32_t), mine);
  return agree(mine, "the same entry and counted loads on all ranks");
}

Result<int64_t> Session::rebalance(const std::string &entry) {
  std::lock_guard<std::mutex> lock(impl->mutex);
  int index = -1;
  // What is wrong on one rank all know at once, by steps of their own.
  MOIRA_RETURN_IF_ERROR(impl->together([&]() -> Status {
    Result<int> found = impl->findEntry(entry);
    if (!found.ok())
      return found.status();
    if (!impl->rebalancings[*found])
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("entry '", entry,
                           "': expected one whose loads are counted "
                           "(countLoads), got one whose are not"));
    index = *found;
    return impl->agreeOnProposal(index, -1, std::nullopt);
  }));
  int64_t moved = 0;
  const Adaptation *adaptation = impl->adaptations[index].get();
  const int shadows = adaptation ? adaptation->maxShadows() : 0;
  const std::vector<LayerSpec> &layers = impl->manifest.entries[index].layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::optional<std::vector<int32_t>> table;
    MOIRA_RETURN_IF_ERROR(impl->together([&]() -> Status {
      std::unique_ptr<LayerModel> model;
      if (shadows > 0) {
        Result<std::unique_ptr<LayerModel>> made = adaptation->makeModel(i);
        if (!made.ok())
          return made.status();
        model = std::move(*made);
      }
      table = impl->rebalancings[index]->propose(
          i, *impl->layerPlans.placement(layers[i].index), model.get(),
          shadows);
      return impl->agreeOnProposal(index, layers[i].index, table);
    }));
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
    MOIRA_RETURN_IF_ERROR(checkStaging(tables));
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
