// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Adaptation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Decisions
//===----------------------------------------------------------------------===//

static int64_t sumOf(const std::vector<int32_t> &counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

/// What the ranks told in a layer in step `step`; before the first step, none.
SharedStep Adaptation::recordOf(const Layer &layer, int64_t step) const {
  SharedStep record;
  record.step = step;
  record.candidate = forced;
  if (step < 0)
    return record;
  record.counts = layer.counts.data();
  // With lag 0 the rows are there when somebody decides.
  if (announced >= 0 && wanted.selection.lag == 1) {
    record.nextRows =
        announced *
        std::max<int64_t>(entry.layers[&layer - layers.data()].topK, 1);
    // Padding grows with them.
    int64_t rows = layer.hasTravelled ? layer.paddedRows : layer.rows;
    if (!layer.padded.empty() && rows > 0)
      record.nextRows = int64_t(double(record.nextRows) *
                                double(sumOf(layer.counts)) / double(rows));
  }
  record.variants = layer.variants.data();
  record.programs = layer.programs.data();
  if (step > 0) {
    record.seconds = layer.told.data();
    record.timedStep = step - 1;
  }
  return record;
}

/// Makes a decision what the layer runs with. A log that cannot be written is
/// no reason to decide otherwise than the other ranks, which have none.
void Adaptation::apply(Layer &layer, const SharedStep &record,
                       const Decision &decision, int64_t step) {
  layer.decision = decision;
  layer.decision.shadows = nullptr;
  layer.decidedFor = step;
  const LayerPlan &plan = candidates()[decision.candidate].plan;
  layer.plan.degree = plan.degree;
  layer.plan.exchange = plan.exchange;
  // Before the first loads there is nothing to say which experts.
  layer.plan.shadows.assign(decision.shadows,
                            decision.shadows +
                                (decision.shadows ? plan.shadows : 0));
  if (!layer.recorder)
    return;
  layer.recorder->add(record, decision);
  if (Status written = writeLog(layer); !written.ok() && logFailure.ok())
    logFailure = std::move(written);
}

/// The decision of an earlier run for a step.
Status Adaptation::follow(size_t index, int64_t step) {
  Layer &layer = layers[index];
  if (step >= int64_t(layer.followed.size()))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("replay: expected at most the ", layer.followed.size(),
                         " steps of the flight log, got another"));
  const Followed &followed = layer.followed[step];
  Decision decision = followed.decision;
  decision.shadows =
      followed.shadows.empty() ? nullptr : followed.shadows.data();
  apply(layer, SharedStep(), decision, step);
  return Status();
}

/// From the records of the last step, the plans of the next one.
Status Adaptation::decideLayers() {
  if (!wanted.replay.empty()) {
    for (size_t i = 0; i < layers.size(); ++i)
      MOIRA_RETURN_IF_ERROR(follow(i, done));
    return Status();
  }
  for (const Layer &layer : layers)
    if (layer.toldStep != done - 1)
      return Status(MOIRA_FAILED,
                    concat("adapt: layer ", layer.index,
                           ": expected the counts of all ranks in each step, "
                           "got none in the last one"));
  chosen = EntryChoice::Choice();
  for (Layer &layer : layers)
    pad(layer);
  for (size_t i = 0; i < layers.size(); ++i)
    MOIRA_RETURN_IF_ERROR(deciders[i]->prepare(recordOf(layers[i], done - 1)));
  if (choice && forced < 0)
    chosen = choice->choose(done - 1, deciders);
  for (size_t i = 0; i < layers.size(); ++i) {
    SharedStep record = recordOf(layers[i], done - 1);
    record.variant = chosen.variant;
    Result<Decision> decision = deciders[i]->conclude(record);
    if (!decision.ok())
      return decision.status();
    if (chosen.trial())
      decision->reason = chosen.reason;
    apply(layers[i], record, *decision, done);
  }
  return Status();
}

/// Variants that all ranks may run, as they said in the last step.
uint64_t Adaptation::sharedVariants() const {
  uint64_t shared = ~uint64_t(0);
  for (const Layer &layer : layers)
    for (uint64_t mine : layer.variants)
      shared &= done > 0 ? mine : ~uint64_t(0);
  return shared;
}

/// With lag 0, the variant of the step that comes. The layers' plans are those
/// of the last step until ranks have counted, without shadows.
Status Adaptation::chooseVariant() {
  const std::vector<Candidate> &list = candidates();
  if (!wanted.replay.empty()) {
    const std::vector<Followed> &log = layers.front().followed;
    if (done < int64_t(log.size()))
      chosen.variant = int(list[log[done].decision.candidate].variant);
  } else if (decided != done) {
    uint64_t shared = sharedVariants();
    EntryChoice::Choice next;
    if (done > 0 && forced < 0)
      next = choice->choose(done - 1, deciders, shared);
    if (next.variant < 0) {
      // Nobody has compared them.
      next = EntryChoice::Choice();
      size_t c = wanted.selection.fixed;
      for (size_t i = 0; !(shared >> list[c].variant & 1); c = i++)
        if (i == list.size())
          return Status(MOIRA_UNAVAILABLE,
                        "selection: expected a variant that all ranks may run, "
                        "got none");
      next.variant = int(list[c].variant);
    }
    chosen = next;
  }
  if (forced >= 0)
    chosen.variant = int(list[forced].variant);
  for (Layer &layer : layers) {
    layer.plan.shadows.clear();
    Decision &decision = layer.decision;
    if (int(list[decision.candidate].variant) == chosen.variant)
      continue;
    for (size_t c = list.size(); c-- > 0;)
      if (int(list[c].variant) == chosen.variant)
        decision.candidate = int(c); // the first one, which has no shadows
    const LayerPlan &plan = list[decision.candidate].plan;
    layer.plan.degree = plan.degree;
    layer.plan.exchange = plan.exchange;
  }
  return Status();
}

Status Adaptation::next() {
  if (wanted.selection.lag == 0) {
    MOIRA_RETURN_IF_ERROR(chooseVariant());
    decided = done;
    return std::exchange(logFailure, Status());
  }
  // After a step that failed, even before some ranks came here, all have
  // decided for the same step from the same records.
  if (decided != done)
    MOIRA_RETURN_IF_ERROR(decideLayers());
  decided = done;
  return std::exchange(logFailure, Status());
}

int Adaptation::variant(int64_t rows) const {
  int group = int(candidates()[decision(0).candidate].variant);
  // As EntrySpec::variantForRows, among those of the group.
  int best = -1, least = -1;
  for (size_t v = 0; v < groupOf.size(); ++v) {
    if (groupOf[v] != group)
      continue;
    const VariantSpec &spec = entry.variants[v];
    if (spec.minRows <= rows &&
        (best < 0 || spec.minRows > entry.variants[best].minRows))
      best = int(v);
    if (least < 0 || spec.minRows < entry.variants[least].minRows)
      least = int(v);
  }
  return best >= 0 ? best : least;
}

//===----------------------------------------------------------------------===//
// What a step tells
//===----------------------------------------------------------------------===//

/// A group may run where all of its variants may.
uint64_t Adaptation::groupsThatRun(uint64_t variants) const {
  uint64_t may = ~uint64_t(0);
  for (size_t v = 0; v < groupOf.size(); ++v)
    if (groupOf[v] >= 0 && !(variants >> v & 1))
      may &= ~(uint64_t(1) << groupOf[v]);
  return may;
}

Result<bool> Adaptation::gathered(size_t index,
                                  const std::vector<RankRecord> &records,
                                  const int32_t *matrix) {
  Layer &layer = layers[index];
  layer.toldStep = done;
  layer.hasTravelled = false;
  std::copy_n(matrix, layer.counts.size(), layer.counts.data());
  layer.rows = layer.padded.empty() ? -1 : sumOf(layer.counts);
  for (int rank = 0; rank < ranks.ranks; ++rank) {
    layer.told[rank] = records[rank].seconds;
    layer.programs[rank] = records[rank].program;
    layer.variants[rank] = groupsThatRun(records[rank].variants);
  }
  if (wanted.selection.lag == 1)
    return false;
  if (!wanted.replay.empty()) {
    MOIRA_RETURN_IF_ERROR(follow(index, done));
    return true;
  }
  pad(layer);
  SharedStep record = recordOf(layer, done);
  record.variant = chosen.variant;
  // It runs already, even where a rank says only now that it may not.
  for (uint64_t &mine : layer.variants)
    mine |= uint64_t(1) << chosen.variant;
  Result<Decision> decision = deciders[index]->decide(record);
  if (decision.ok()) {
    if (chosen.trial())
      decision->reason = chosen.reason;
    apply(layer, record, *decision, done); // logs the record as it is
  }
  for (int rank = 0; rank < ranks.ranks; ++rank)
    layer.variants[rank] = groupsThatRun(records[rank].variants);
  MOIRA_RETURN_IF_ERROR(decision.status());
  MOIRA_RETURN_IF_ERROR(std::exchange(logFailure, Status()));
  return true;
}

void Adaptation::travelled(size_t index, const int32_t *matrix) {
  Layer &layer = layers[index];
  if (layer.toldStep != done || layer.hasTravelled ||
      std::equal(layer.counts.begin(), layer.counts.end(), matrix))
    return;
  layer.hasTravelled = true;
  layer.paddedRows = layer.rows >= 0 ? layer.rows : sumOf(layer.counts);
  std::copy_n(matrix, layer.counts.size(), layer.counts.data());
  layer.padded.resize(ranks.ranks);
  for (int rank = 0; rank < ranks.ranks; ++rank)
    layer.padded[rank] = matrix[size_t(rank) * layer.experts];
}

/// In a step where nothing has been sent (yet), rows become what groups would
/// have with padding: as much for each row as in the last step that sent any.
void Adaptation::pad(Layer &layer) {
  if (layer.padded.empty() || layer.hasTravelled || layer.paddedRows == 0)
    return;
  double scale = double(layer.rows) / double(layer.paddedRows);
  for (size_t i = 0; i < layer.counts.size(); ++i) {
    double group = double(layer.padded[i / layer.experts]) * scale + 0.5;
    layer.counts[i] =
        std::max(layer.counts[i], int32_t(std::min(group, double(INT32_MAX))));
  }
}

void Adaptation::finish(bool succeeded, int64_t number,
                        const std::vector<double> &seconds, bool more) {
  if (!succeeded) {
    // Some ranks may have seen rows travel, others not.
    for (Layer &layer : layers) {
      layer.padded.clear();
      layer.paddedRows = 0;
      layer.rows = -1;
      layer.hasTravelled = false;
    }
    // With lag 0 some may have decided, others not: all begin again, with what
    // they were told to begin with.
    if (wanted.selection.lag == 0) {
      decided = done - 1;
      chosen = EntryChoice::Choice();
      for (Layer &layer : layers) {
        layer.decision = Decision();
        layer.decision.candidate = wanted.selection.fixed;
        const LayerPlan &plan = candidates()[wanted.selection.fixed].plan;
        layer.plan = {plan.degree, plan.exchange, {}};
        layer.variants.assign(ranks.ranks, ~uint64_t(0));
      }
      if (wanted.replay.empty())
        logFailure = makeDeciders();
      if (!loaded.empty() && logFailure.ok())
        logFailure = loadLearned(std::string(loaded));
    }
    return;
  }
  ++done;
  pending = more ? number : -1;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].forward = seconds[i];
    lastSeconds[i] = !more && !training()
                         ? seconds[i]
                         : std::numeric_limits<double>::infinity();
  }
}

void Adaptation::finishBack(int64_t number,
                            const std::vector<double> &seconds) {
  if (number != pending)
    return;
  pending = -1;
  for (size_t i = 0; i < layers.size(); ++i)
    lastSeconds[i] = layers[i].forward + seconds[i];
}

//===----------------------------------------------------------------------===//
// From outside
//===----------------------------------------------------------------------===//

Status Adaptation::force(const std::string &candidate) {
  if (candidate.empty()) {
    forced = -1;
    return Status();
  }
  const std::vector<Candidate> &list = candidates();
  for (size_t c = 0; c < list.size(); ++c)
    if (list[c].describe() == candidate) {
      forced = int(c);
      return Status();
    }
  return Status(MOIRA_NOT_FOUND,
                concat("expected a candidate such as '", list[0].describe(),
                       "', got '", candidate, "'"));
}

Status Adaptation::forbid(const std::string &variant, bool forbidden) {
  int index = entry.findVariant(variant);
  if (index < 0 || groupOf[index] < 0)
    return Status(
        MOIRA_NOT_FOUND,
        concat("expected a variant that may be chosen, got '", variant, "'"));
  uint64_t bit = uint64_t(1) << index;
  variantMask = forbidden ? variantMask & ~bit : variantMask | bit;
  return Status();
}

Status Adaptation::checkPlacement(size_t index,
                                  const std::vector<int32_t> &table) const {
  int64_t room = roomOf(index, table);
  if (table == tables[index] || room >= space.maxShadows)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("layer ", layers[index].index,
                       ": expected a slot table with room for the ",
                       space.maxShadows,
                       " shadows that may be chosen, got one for ", room));
}

Status Adaptation::setPlacement(size_t index,
                                const std::vector<int32_t> &table) {
  if (table == tables[index])
    return Status();
  MOIRA_RETURN_IF_ERROR(checkPlacement(index, table));
  const int32_t *data = table.empty() ? nullptr : table.data();
  MOIRA_RETURN_IF_ERROR(deciders[index]->setPlacement(data));
  tables[index] = table;
  if (!layers[index].recorder)
    return Status();
  layers[index].recorder->addPlacement(data);
  // The move has happened on all ranks: the next step fails, on all.
  if (Status written = writeLog(layers[index]);
      !written.ok() && logFailure.ok())
    logFailure = std::move(written);
  return Status();
}
