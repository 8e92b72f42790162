// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How an entry's manifest becomes layers, candidates and deciders.

#include "session/Adaptation.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace moira;
using namespace moira::runtime;

// One core of the machine of docs/benchmarks.md, and links as tools assume them
// where nobody describes any (docs/topology.md).
static constexpr double assumedFlops = 117e9, assumedRead = 30e9,
                        assumedCopy = 26e9, assumedLink = 50e9,
                        assumedLatency = 5e-6;

static Calibration assume(const LayerSpec &layer) {
  Calibration assumed;
  assumed.machine = "assumed";
  double weights = 0, rowBytes = 0;
  if (layer.cost) {
    for (const LayerWeightSpec &weight : layer.cost->weights)
      weights += double(weight.bytes);
    rowBytes = double(layer.cost->rowBytes + layer.cost->resultBytes);
  }
  if (layer.placement)
    weights *= layer.placement->shards;
  double read = std::max(weights, 64.0) / assumedRead;
  double perRow = std::max(double(layer.flopsPerRow), 1.0) / assumedFlops;
  // Up to here weights take longer than products.
  double knee = std::max(read / perRow, 1.0);
  double atKnee = std::max(read, perRow);
  assumed.forward.rows = {knee, 2 * knee};
  assumed.forward.seconds = {atKnee, atKnee + knee * perRow};
  assumed.backward = assumed.forward;
  for (double &seconds : assumed.backward.seconds)
    seconds *= 2;
  assumed.dispatch.perRow = assumed.combine.perRow = rowBytes / assumedCopy;
  assumed.intra = assumed.inter = {assumedLatency, 0, 1 / assumedLink};
  return assumed;
}

Calibration
runtime::chooseCalibration(const std::optional<Calibration> &measured,
                           const LayerSpec &layer) {
  return measured ? *measured : assume(layer);
}

VariantChoice runtime::choiceOf(const VariantSpec &variant) {
  return {variant.name, variant.copies, variant.scheduleOfPlans(),
          variant.numerics, !variant.schedule.empty()};
}

LayerShape moira::runtime::layerShape(const EntrySpec &entry,
                                      const LayerSpec &layer) {
  LayerShape shape;
  shape.ranks = entry.ranks;
  shape.experts = layer.placement->experts;
  shape.shards = layer.placement->shards;
  shape.slots = layer.placement->slots;
  const LayerCostSpec &cost = *layer.cost;
  shape.rowBytes = cost.rowBytes;
  shape.resultBytes = cost.resultBytes;
  shape.partialBytes = cost.partialBytes;
  shape.resultGradientBytes = cost.resultGradientBytes;
  shape.rowGradientBytes = cost.rowGradientBytes;
  shape.hiddenBytes = cost.hiddenBytes;
  for (const LayerWeightSpec &weight : cost.weights)
    shape.weights.push_back(
        {weight.bytes, weight.gradientBytes, weight.replicated});
  shape.training = shape.gathersAgain = shape.backInOneChunk =
      !entry.backward.empty();
  return shape;
}

/// The links between ranks in nodes of `perNode`, as a calibration has them.
static Result<Topology> describeNodes(Calibration calibration, int ranks,
                                      int perNode) {
  const LinkCost assumed{assumedLatency, 0, 1 / assumedLink};
  for (LinkCost *link : {&calibration.inter, &calibration.intra})
    if (!(link->secondsPerByte > 0))
      *link =
          calibration.intra.secondsPerByte > 0 ? calibration.intra : assumed;
  if (perNode == 1 || ranks % perNode != 0)
    return Topology::uniform(ranks, 1 / calibration.intra.secondsPerByte,
                             calibration.intra.latency);
  Result<std::string> text = calibration.describe(ranks / perNode, perNode);
  if (!text.ok())
    return text.status();
  return Topology::parse(*text);
}

Result<Topology>
runtime::chooseTopology(const std::optional<Topology> &described,
                        const Calibration &calibration,
                        const RankGroups &groups) {
  if (described)
    return *described;
  return describeNodes(calibration, groups.ranks, groups.groupSize);
}

Result<std::unique_ptr<LayerModel>> Adaptation::makeModel(size_t index) const {
  const LayerSpec &layer = entry.layers[index];
  Calibration calibration = chooseCalibration(wanted.calibration, layer);
  Result<Topology> topology =
      chooseTopology(wanted.topology, calibration, ranks);
  if (!topology.ok())
    return topology.status();
  LayerShape shape = layerShape(entry, layer);
  shape.lateShadows = wanted.selection.lag == 0;
  auto model = LayerModel::create(shape, *topology, calibration);
  if (!model.ok())
    return model;
  if ((*model)->groupSize() != ranks.groupSize)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("adapt: expected a topology with groups of ",
                         ranks.groupSize,
                         " ranks, as the communicator has them, got ",
                         (*model)->groupSize()));
  return model;
}

/// Shadows that fit a lasting table.
int64_t Adaptation::roomOf(size_t index,
                           const std::vector<int32_t> &table) const {
  const LayerPlacement &place = *entry.layers[index].placement;
  int64_t units = place.units(), least = place.slots;
  if (table.empty())
    least = place.slots - (units + ranks.ranks - 1) / ranks.ranks;
  for (size_t rank = 0; rank * place.slots < table.size(); ++rank) {
    auto begin = table.begin() + int64_t(rank) * place.slots;
    least = std::min<int64_t>(
        least, std::count_if(begin, begin + place.slots, [&](int32_t unit) {
          return unit < 0 || unit >= units;
        }));
  }
  return least / place.shards;
}

/// Whether layers have experts in common: then they have one table in a step,
/// which no layer can choose alone.
bool Adaptation::sharesParameters() const {
  std::set<int64_t> seen;
  for (const LayerSpec &layer : entry.layers)
    for (const LayerWeightSpec &weight : layer.cost->weights)
      if (!seen.insert(weight.parameter).second)
        return true;
  return false;
}

/// What must hold before anything is made.
static Status checkEntry(const EntrySpec &entry, const RankGroups &ranks) {
  auto invalid = [](auto... parts) {
    return Status(MOIRA_INVALID_ARGUMENT, concat(parts...));
  };
  if (entry.ranks == 1)
    return invalid("adapt: expected an entry for several ranks, got one for 1");
  if (entry.ranks != ranks.ranks)
    return invalid("adapt: expected ", entry.ranks,
                   " ranks, as the entry was compiled for, got ", ranks.ranks);
  if (entry.layers.empty())
    return invalid("adapt: expected an entry with layers, got one without");
  for (const LayerSpec &layer : entry.layers)
    if (!layer.placement || !layer.cost)
      return invalid("adapt: layer ", layer.index,
                     ": expected a placement and costs in the manifest, got "
                     "none: compile the program again");
  if (entry.variants.size() > 64)
    return invalid("adapt: expected at most 64 variants, got ",
                   entry.variants.size());
  return Status();
}

/// Whether a variant has passed what is wanted at least.
static Result<bool> isQualified(const VariantSpec &variant,
                                const std::string &wanted) {
  static const char *const levels[] = {"none", "twin", "target"};
  int need = -1, has = 0;
  for (int i = 0; i < 3; ++i) {
    need = wanted == levels[i] ? i : need;
    has = variant.qualified == levels[i] ? i : has;
  }
  if (need < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("adapt: expected variants qualified as 'none', 'twin' "
                         "or 'target', got '",
                         wanted, "'"));
  return has >= need;
}

/// Candidates are of groups of variants, which differ in their rows alone.
Status Adaptation::makeSpace() {
  for (size_t v = 0; v < entry.variants.size(); ++v) {
    const VariantSpec &variant = entry.variants[v];
    Result<bool> qualified = isQualified(variant, wanted.qualified);
    if (!qualified.ok())
      return qualified.status();
    groupOf.push_back(-1);
    if (!*qualified || variant.copies < 0)
      continue;
    variantMask |= uint64_t(1) << v;
    VariantChoice group = choiceOf(variant);
    for (size_t g = 0; g < space.variants.size() && groupOf[v] < 0; ++g)
      if (space.variants[g].copies == group.copies &&
          space.variants[g].schedule == group.schedule &&
          space.variants[g].numerics == group.numerics &&
          space.variants[g].cut == group.cut)
        groupOf[v] = int(g);
    if (groupOf[v] >= 0)
      continue;
    groupOf[v] = int(space.variants.size());
    space.variants.push_back(group);
  }
  if (space.variants.empty())
    return Status(MOIRA_UNAVAILABLE,
                  concat("adapt: expected a variant for several ranks that is "
                         "qualified as '",
                         wanted.qualified, "', got none"));
  space.degrees = wanted.degrees;
  space.maxShadows = wanted.maxShadows < 0 ? INT32_MAX : wanted.maxShadows;
  for (size_t i = 0; i < layers.size(); ++i) {
    int64_t room = std::min<int64_t>(roomOf(i, tables[i]),
                                     entry.layers[i].placement->experts);
    space.maxShadows = int(std::min<int64_t>(space.maxShadows, room));
    Result<std::unique_ptr<LayerModel>> model = makeModel(i);
    if (!model.ok())
      return model.status();
    space.hierarchical = (*model)->hasHierarchical();
    // Where r < s, weights are gathered from the step's begin on: shadows that
    // are chosen by its counts would come after.
    if (wanted.selection.lag == 0)
      space.shadowCopies = entry.layers[i].placement->shards;
  }
  if (sharesParameters())
    space.maxShadows = 0;
  return Status();
}

Status Adaptation::makeDeciders() {
  std::vector<std::unique_ptr<Decider>> made;
  for (size_t i = 0; i < layers.size(); ++i) {
    Result<std::unique_ptr<LayerModel>> model = makeModel(i);
    if (!model.ok())
      return model.status();
    auto decider = Decider::create(space, std::move(*model), wanted.selection);
    if (!decider.ok())
      return decider.status();
    // A log that is replayed says where weights stand.
    if (wanted.replay.empty() && !tables[i].empty())
      MOIRA_RETURN_IF_ERROR((*decider)->setPlacement(tables[i].data()));
    made.push_back(std::move(*decider));
  }
  deciders = std::move(made);
  choice = wanted.selection.joint
               ? std::make_unique<EntryChoice>(wanted.selection)
               : nullptr;
  for (size_t i = 0; i < layers.size(); ++i)
    MOIRA_RETURN_IF_ERROR(wanted.replay.empty() ? openLog(i) : openReplay(i));
  return Status();
}

Adaptation::Adaptation(const EntrySpec &entry, const RankGroups &groups,
                       const AdaptOptions &options)
    : wanted(options), entry(entry), ranks(groups) {}

Adaptation::~Adaptation() {
  for (Layer &layer : layers)
    endLog(layer);
}

Result<std::unique_ptr<Adaptation>>
Adaptation::create(const Manifest &manifest, int entry,
                   const RankGroups &groups,
                   const std::vector<std::vector<int32_t>> &tables,
                   const AdaptOptions &options) {
  const EntrySpec &spec = manifest.entries[entry];
  MOIRA_RETURN_IF_ERROR(checkEntry(spec, groups));
  std::unique_ptr<Adaptation> made(new Adaptation(spec, groups, options));
  made->tables = tables;
  made->layers.resize(spec.layers.size());
  made->lastSeconds.assign(spec.layers.size(),
                           std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Layer &layer = made->layers[i];
    layer.index = spec.layers[i].index;
    layer.experts = spec.layers[i].placement->experts;
    layer.counts.resize(size_t(groups.ranks) * layer.experts);
    layer.told.resize(groups.ranks);
    layer.variants.resize(groups.ranks);
    layer.programs.resize(groups.ranks);
  }
  made->wanted.selection.joint =
      spec.layers.size() > 1 || options.selection.lag == 0;
  MOIRA_RETURN_IF_ERROR(made->makeSpace());
  MOIRA_RETURN_IF_ERROR(made->makeDeciders());
  return made;
}
