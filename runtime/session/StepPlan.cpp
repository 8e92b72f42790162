// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/StepPlan.h"

#include "cost/LayerShape.h"
#include "placement/Shadowing.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Units dealt out evenly, so that each rank's last slots are free. Empty where
/// no slot is spare: then that is the identity.
static std::vector<int32_t> evenTable(const LayerPlacement &shape, int ranks) {
  if (ranks == 1 || shape.units() == int64_t(ranks) * shape.slots)
    return {};
  LayerShape layer;
  layer.ranks = ranks;
  layer.experts = shape.experts;
  layer.shards = shape.shards;
  layer.slots = shape.slots;
  return layer.evenTable();
}

LayerPlans::LayerPlans(const Manifest &manifest, int ranks)
    : manifest(&manifest), ranks(ranks) {
  for (const EntrySpec &entry : manifest.entries)
    for (const LayerSpec &spec : entry.layers) {
      auto place = std::lower_bound(
          list.begin(), list.end(), spec.index,
          [](const Lasting &l, int64_t index) { return l.layer < index; });
      if (place == list.end() || place->layer != spec.index) {
        place = list.emplace(place);
        place->layer = spec.index;
      }
      if (spec.placement && entry.ranks == ranks)
        place->shape = spec.placement;
      if (!spec.cost)
        continue;
      place->parameters.emplace();
      for (const LayerWeightSpec &weight : spec.cost->weights)
        place->parameters->push_back(weight.parameter);
    }
  for (Lasting &lasting : list)
    (void)set(lasting, PlanOptions()); // the default fits all layers
}

const LayerPlans::Lasting *LayerPlans::find(int64_t layer) const {
  auto place = std::lower_bound(
      list.begin(), list.end(), layer,
      [](const Lasting &l, int64_t index) { return l.layer < index; });
  return place == list.end() || place->layer != layer ? nullptr : &*place;
}

const Placement *LayerPlans::placement(int64_t layer) const {
  const Lasting *lasting = find(layer);
  return lasting && lasting->shape ? &lasting->placement : nullptr;
}

const std::vector<int32_t> &LayerPlans::lastingTable(int64_t layer) const {
  return find(layer)->table;
}

std::vector<int64_t> LayerPlans::layers() const {
  std::vector<int64_t> indices;
  for (const Lasting &lasting : list)
    indices.push_back(lasting.layer);
  return indices;
}

std::vector<int64_t> LayerPlans::parametersOf(int64_t layer) const {
  std::vector<int64_t> rows;
  const Lasting *lasting = find(layer);
  for (size_t i = 0; lasting && i < manifest->parameters.size(); ++i)
    if (manifest->parameters[i].placement && reads(*lasting, int64_t(i)))
      rows.push_back(int64_t(i));
  return rows;
}

Status LayerPlans::set(Lasting &lasting, const PlanOptions &plan) const {
  lasting.table = plan.slotTable;
  if (lasting.shape) {
    const LayerPlacement &shape = *lasting.shape;
    if (lasting.table.empty())
      lasting.table = evenTable(shape, ranks);
    int64_t places = int64_t(ranks) * shape.slots;
    if (!lasting.table.empty() && int64_t(lasting.table.size()) != places)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a slot table of ", ranks, " ranks with ",
                           shape.slots, " slots each, got ",
                           lasting.table.size(), " places"));
    MOIRA_RETURN_IF_ERROR(lasting.placement.set(
        {shape.experts, shape.shards, 1, shape.slots},
        lasting.table.empty() ? nullptr : lasting.table.data(), ranks));
  }
  lasting.run.degree = plan.degree;
  lasting.run.exchange = plan.exchange;
  lasting.run.shadows = plan.shadows;
  return writeTable(lasting, lasting.run);
}

Result<LayerPlans> LayerPlans::with(std::optional<int64_t> layer,
                                    const PlanOptions &plan) const {
  if (plan.degree < 1)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a degree of at least 1, got ", plan.degree));
  if (plan.exchange < 0 || plan.exchange > 1)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected exchange 0 (linear) or 1 (hierarchical), "
                         "got ",
                         plan.exchange));
  if (plan.slotTable.size() % ranks != 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a slot table of equal parts for ", ranks,
                         " ranks, got ", plan.slotTable.size(), " entries"));
  if (layer && !find(*layer))
    return Status(MOIRA_NOT_FOUND,
                  concat("expected a layer of the program (it has ",
                         list.size(), "), got ", *layer));
  LayerPlans next = *this;
  for (Lasting &lasting : next.list)
    if (!layer || lasting.layer == *layer)
      MOIRA_RETURN_IF_ERROR(
          next.set(lasting, plan).within(concat("layer ", lasting.layer)));
  if (!layer) {
    next.others.degree = plan.degree;
    next.others.exchange = plan.exchange;
    next.others.table = plan.slotTable;
  }
  return next;
}

Result<LayerPlans>
LayerPlans::withTable(int64_t layer, const std::vector<int32_t> &table) const {
  const Lasting *given = find(layer);
  if (!given || !given->shape)
    return Status(MOIRA_NOT_FOUND,
                  concat("expected a layer of the program with experts on ",
                         ranks, " ranks, got ", layer));
  std::vector<int64_t> rows = parametersOf(layer);
  LayerPlans next = *this;
  for (Lasting &lasting : next.list) {
    std::vector<int64_t> others = parametersOf(lasting.layer);
    if (lasting.layer != layer &&
        std::find_first_of(rows.begin(), rows.end(), others.begin(),
                           others.end()) == rows.end())
      continue;
    PlanOptions plan{lasting.run.degree, lasting.run.exchange, table, {}};
    MOIRA_RETURN_IF_ERROR(next.set(lasting, plan));
  }
  return next;
}

/// Whether the experts of a layer have this parameter. Programs that do not say
/// so have one table for all layers of a shape.
bool LayerPlans::reads(const Lasting &lasting, int64_t parameter) const {
  if (!lasting.shape)
    return false;
  if (const auto &list = lasting.parameters)
    return std::find(list->begin(), list->end(), parameter) != list->end();
  const ParameterSpec &spec = manifest->parameters[parameter];
  return spec.placement->experts == lasting.shape->experts &&
         spec.placement->shards == lasting.shape->shards &&
         spec.slices == lasting.shape->slots;
}

Result<std::vector<std::vector<int32_t>>> LayerPlans::tables() const {
  std::vector<std::vector<int32_t>> tables(manifest->parameters.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    const ParameterSpec &spec = manifest->parameters[i];
    if (!spec.placement)
      continue;
    const Lasting *first = nullptr;
    for (const Lasting &lasting : list) {
      if (!reads(lasting, int64_t(i)))
        continue;
      if (first && first->table != lasting.table)
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("parameter '", spec.name,
                             "': expected one slot table for layers ",
                             first->layer, " and ", lasting.layer,
                             ", which share it, got two"));
      first = &lasting;
    }
    // Of a program without layers, the table of all.
    tables[i] = first ? first->table : others.table;
  }
  return tables;
}

bool LayerPlans::hasTablesOf(const LayerPlans &other) const {
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].table != other.list[i].table)
      return false;
  return true;
}

void LayerPlans::fill(const EntrySpec &entry, int variant,
                      std::vector<LayerRun> &layers) const {
  layers.resize(std::max<size_t>(1, entry.layers.size()));
  if (entry.layers.empty())
    layers.front() = others;
  bool gathersAll = entry.variants[variant].copies == 0;
  for (size_t i = 0; i < entry.layers.size(); ++i) {
    const Lasting &lasting = *find(entry.layers[i].index);
    layers[i] = lasting.run;
    if (gathersAll && !layers[i].shadows.empty()) {
      layers[i].shadows.clear();
      layers[i].table = lasting.table;
    }
  }
}

Status LayerPlans::writeTable(int64_t layer, LayerRun &run) const {
  const Lasting *lasting = find(layer);
  if (!lasting)
    return Status(MOIRA_NOT_FOUND,
                  concat("expected a layer of the program, got ", layer));
  return writeTable(*lasting, run);
}

Status LayerPlans::writeTable(const Lasting &lasting, LayerRun &run) const {
  if (run.shadows.empty()) {
    run.table = lasting.table;
    return Status();
  }
  if (!lasting.shape)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "shadow: expected a layer for several ranks, got another");
  for (size_t i = 0; i < run.shadows.size(); ++i)
    if (std::find(run.shadows.begin(), run.shadows.begin() + i,
                  run.shadows[i]) != run.shadows.begin() + i)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("shadow: expected each expert once, got ",
                           run.shadows[i], " again"));
  return writeShadowTable(lasting.placement, run.shadows.data(),
                          static_cast<int>(run.shadows.size()), run.table);
}

void runtime::toAbiPlans(int variant, int ranks,
                         const std::vector<LayerRun> &layers,
                         std::vector<moira_plan> &plans) {
  plans.clear();
  for (const LayerRun &run : layers)
    plans.push_back({static_cast<uint32_t>(variant), run.degree, run.exchange,
                     static_cast<int32_t>(run.table.size() / ranks),
                     run.table.empty() ? nullptr : run.table.data()});
}
