// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "selection/Decider.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

// Of the quick model, the fastest so many within this factor are looked at
// carefully: more than what it is off by.
static constexpr int maxFollowed = 4;
static constexpr double followFactor = 1.35;
static constexpr int64_t never = -(int64_t(1) << 40);

Decider::Decider(const SelectionSpace &space, std::unique_ptr<LayerModel> costs,
                 const SelectionOptions &options)
    : choices(space), model(std::move(costs)), wanted(options),
      list(space.candidates()), allowed(list.size()),
      history(int(list.size()), options.joint ? int(space.variants.size()) : 0),
      lastTrial(never), allowance(options.initialLoss) {
  const LayerShape &shape = model->shape();
  sums.resize(shape.experts);
  loads.resize(shape.experts);
  rankLoads.resize(shape.ranks);
  scaledCounts.resize(size_t(shape.ranks) * shape.experts);
  for (std::vector<double> *times : {&quick, &careful, &expected})
    times->resize(list.size());
  ordered.reserve(list.size());
  owners.resize(shape.units());
  variants.reserve(space.variants.size());
  for (int64_t step = 0; step < History::pastSteps; ++step)
    history.past(step).shadows.reserve(shape.experts);
}

Result<std::unique_ptr<Decider>>
Decider::create(const SelectionSpace &space, std::unique_ptr<LayerModel> model,
                const SelectionOptions &options) {
  MOIRA_RETURN_IF_ERROR(space.check(*model));
  auto invalid = [](const char *what, double got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("selection: expected ", what, ", got ", got));
  };
  if (!(options.trialLoss >= 0))
    return invalid("a loss by trials of at least 0", options.trialLoss);
  if (!(options.initialLoss >= 0))
    return invalid("a first loss by trials of at least 0", options.initialLoss);
  if (options.trialSpacing < 1)
    return invalid("at least 1 step from trial to trial", options.trialSpacing);
  if (options.lag != 0 && options.lag != 1)
    return invalid("a lag of 0 or 1", options.lag);
  if (options.trialsPerBucket < 0)
    return invalid("0 or more trials", options.trialsPerBucket);
  std::unique_ptr<Decider> decider(
      new Decider(space, std::move(model), options));
  if (options.fixed < 0 || size_t(options.fixed) >= decider->list.size())
    return invalid("a fixed candidate among those there are", options.fixed);
  MOIRA_RETURN_IF_ERROR(decider->setPlacement(nullptr));
  return decider;
}

Status Decider::setPlacement(const int32_t *slotTable) {
  MOIRA_RETURN_IF_ERROR(model->setPlacement(slotTable));
  loaded = nullptr;
  forgetLast();
  const Placement &placement = model->placement();
  for (int unit = 0; unit < placement.units(); ++unit)
    owners[unit] = placement.holder(unit, 0).rank;
  history.unsettle();
  return Status();
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

/// All candidates quickly, the best carefully.
void Decider::predictAll(const Bucket &bucket) {
  asked = true;
  bool measured = wanted.mode == SelectionMode::Measured;
  auto correction = [&](int c) {
    return measured ? history.expect(bucket, c) : 1;
  };
  std::fill(careful.begin(), careful.end(), 0);
  ordered.clear();
  for (size_t c = 0; c < list.size(); ++c) {
    quick[c] = expected[c] = 0;
    if (!allowed[c])
      continue;
    quick[c] = model->predict(list[c].plan, Detail::Quick).seconds;
    expected[c] = quick[c] * correction(int(c));
    ordered.push_back(int32_t(c));
  }
  std::sort(ordered.begin(), ordered.end(), [&](int32_t a, int32_t b) {
    return expected[a] != expected[b] ? expected[a] < expected[b] : a < b;
  });
  double limit = expected[ordered[0]] * followFactor;
  size_t count = 0;
  while (count < ordered.size() && count < maxFollowed &&
         expected[ordered[count]] <= limit)
    ++count;
  if (wanted.joint) {
    // And the fastest of each variant that has none among them.
    uint64_t seen = 0;
    auto takes = [&](size_t i) {
      uint64_t bit = uint64_t(1) << list[ordered[i]].variant;
      bool isNew = !(seen & bit);
      seen |= bit;
      return isNew;
    };
    for (size_t i = 0; i < count; ++i)
      takes(i);
    for (size_t i = count; i < ordered.size(); ++i)
      if (takes(i))
        std::swap(ordered[count++], ordered[i]);
  }
  ordered.resize(count);
  // In the order that suits the model.
  std::sort(ordered.begin(), ordered.end());
  bool same = model->shape().ranks > BatchCost::exactRanks;
  for (int32_t c : ordered) {
    careful[c] = same ? quick[c] : model->predict(list[c].plan).seconds;
    expected[c] = careful[c] * correction(c);
  }
}

/// The candidate of a variant (-1: of any) that is expected to be the fastest,
/// among those that were followed; -1: none.
int Decider::bestOf(int variant) const {
  int best = -1;
  for (int32_t c : ordered)
    if ((variant < 0 || int(list[c].variant) == variant) &&
        (best < 0 || expected[c] < expected[best]))
      best = c;
  return best;
}

/// What each variant can give: as it was decided here, or as it was asked now.
void Decider::compareVariants(const Bucket &bucket) {
  variants.resize(choices.variants.size());
  for (size_t v = 0; v < variants.size(); ++v) {
    const VariantBest &before = bucket.bests[v];
    int c = stands ? before.choice : bestOf(int(v));
    variants[v] = VariantTime();
    if (c < 0 || !allowed[c])
      continue;
    variants[v].seconds = !stands ? expected[c]
                          : wanted.mode == SelectionMode::Measured
                              ? before.predicted * history.expect(bucket, c)
                              : before.predicted;
    variants[v].doubt = history.doubt(bucket, c);
    variants[v].trials = bucket.ratios[c].count;
  }
}

/// A candidate that may be better than it looks, where one is due; else -1.
int Decider::pickTrial(const SharedStep &record, const Bucket &bucket, int best,
                       DecisionReason &reason) {
  int64_t spacing = wanted.trialSpacing * (record.step < 100 ? 1 : 4);
  if (record.step - lastTrial < spacing)
    return -1;
  auto loss = [&](int c) {
    return std::max(expected[c] / expected[best] - 1, 0.0);
  };
  // Extremes first: once, whatever the model says of them, within reason. That
  // is not taken from the allowance: it happens once.
  int extreme = -1;
  for (size_t c = 0; c < list.size() && !wanted.joint; ++c)
    if (int kind = extremeOf(int(c));
        allowed[c] && kind >= 0 && !extremeTried[kind] &&
        kind != extremeOf(best) &&
        (extreme < 0 || expected[c] < expected[extreme]))
      extreme = int(c);
  if (extreme >= 0 && loss(extreme) < extremeFactor - 1 &&
      history.all.count >= 2) {
    extremeTried[extremeOf(extreme)] = true;
    reason = DecisionReason::ExtremeTrial;
    return extreme;
  }
  // Then what could be as fast as the best within what is not known of it.
  int pick = -1;
  double least = expected[best];
  for (int32_t c : ordered) {
    if (c == best || bucket.ratios[c].count >= wanted.trialsPerBucket ||
        (wanted.joint && list[c].variant != list[best].variant))
      continue;
    double hoped = expected[c] * (1 - history.doubt(bucket, c));
    if (hoped < least && loss(c) <= allowance) {
      least = hoped;
      pick = c;
    }
  }
  if (pick >= 0) {
    allowance -= loss(pick);
    reason = DecisionReason::Trial;
  }
  return pick;
}

Decision Decider::chooseFully(const SharedStep &record, Bucket &bucket) {
  int best = bestOf(record.variant);
  // The choice before, if it was looked at: else it lost a lot. Where somebody
  // else chooses the variant, the choice within that.
  int before =
      record.variant < 0 ? bucket.choice : bucket.bests[record.variant].choice;
  double lost = 1;
  if (before >= 0 && careful[before] > 0)
    lost = expected[before] / expected[best] - 1;
  bucket.decisions = std::min(bucket.decisions + 1, 2 * agreements);
  bucket.loss = bucket.decisions == 1
                    ? 0
                    : bucket.loss + (lost - bucket.loss) /
                                        std::min(bucket.decisions - 1, 4);
  bucket.choice = best;
  bucket.decided = bucket.visits;
  bucket.predicted = careful[best];
  for (size_t v = 0; v < bucket.bests.size(); ++v) {
    int c = bestOf(int(v));
    bucket.bests[v] = {c, c < 0 ? 0 : careful[c]};
  }
  Decision decision;
  decision.candidate = best;
  decision.reason = allowedCount == 1 ? DecisionReason::Only
                    : wanted.mode == SelectionMode::Model
                        ? DecisionReason::Model
                        : DecisionReason::Measured;
  if (wanted.mode == SelectionMode::Measured && allowedCount > 1)
    if (int trial = pickTrial(record, bucket, best, decision.reason);
        trial >= 0) {
      decision.candidate = trial;
      lastTrial = record.step;
    }
  decision.seconds = expected[decision.candidate];
  return decision;
}

/// Whether the choice is one between predicted times.
bool Decider::asksModel(const SharedStep &record) const {
  return record.counts && record.candidate < 0 &&
         wanted.mode != SelectionMode::Fixed &&
         !(wanted.mode == SelectionMode::Oracle && oracle);
}

static Status noVariant(int got) {
  return Status(MOIRA_UNAVAILABLE,
                concat("selection: expected a variant that all ranks may run, "
                       "got number ",
                       got));
}

Result<Decision> Decider::choose(const SharedStep &record) {
  Decision decision;
  if (record.candidate >= 0) {
    if (size_t(record.candidate) >= list.size() || !allowed[record.candidate])
      return Status(MOIRA_UNAVAILABLE,
                    "selection: expected a candidate that all ranks may run, "
                    "got " +
                        (size_t(record.candidate) < list.size()
                             ? "'" + list[record.candidate].describe() + "'"
                             : concat("number ", record.candidate)));
    decision.candidate = record.candidate;
    decision.reason = DecisionReason::Fixed;
    return decision;
  }
  auto fits = [&](int c) {
    return allowed[c] &&
           (record.variant < 0 || int(list[c].variant) == record.variant);
  };
  int first = wanted.fixed;
  for (int c = 0; !fits(first); ++c) {
    if (size_t(c) == list.size())
      return noVariant(record.variant);
    first = c;
  }
  decision.candidate = first;
  if (wanted.mode == SelectionMode::Fixed) {
    decision.reason = DecisionReason::Fixed;
    return decision;
  }
  if (wanted.mode == SelectionMode::Oracle && oracle) {
    decision.reason = DecisionReason::Oracle;
    for (int c = 0; c < int(list.size()); ++c)
      if (fits(c)) {
        double seconds = oracle(list[c]);
        if (decision.seconds == 0 || seconds < decision.seconds) {
          decision.candidate = c;
          decision.seconds = seconds;
        }
      }
    return decision;
  }
  if (!bucket)
    return decision;
  if (!stands)
    return chooseFully(record, *bucket);
  bool any = record.variant < 0;
  decision.candidate =
      any ? bucket->choice : bucket->bests[record.variant].choice;
  decision.seconds =
      any ? bucket->predicted : bucket->bests[record.variant].predicted;
  decision.reason = DecisionReason::Settled;
  if (wanted.mode == SelectionMode::Measured)
    decision.seconds *= history.expect(*bucket, decision.candidate);
  return decision;
}

Status Decider::prepare(const SharedStep &record) {
  forgetLast();
  MOIRA_RETURN_IF_ERROR(allow(record));
  loaded = nullptr;
  stands = false;
  variants.clear();
  allowance = std::min(allowance + wanted.trialLoss, wanted.initialLoss + 1);
  if (record.counts) {
    addLoads(record.counts);
    if (wanted.mode == SelectionMode::Measured) {
      learn(record);
      BucketKey key = keyOf(1);
      if (!history.peek(key))
        --history.find(key, record.step).visits; // not a decision's
      if (wanted.lag == 1)
        note(record, key);
    }
  }
  if (!asksModel(record))
    return Status();
  double scale = record.nextRows >= 0 && rows > 0
                     ? double(record.nextRows) / double(rows)
                     : 1;
  bucket = &history.find(keyOf(scale), record.step);
  stands = settled(*bucket) && allowed[bucket->choice];
  if (!stands) {
    setLoads(record.counts, scale);
    history.fade(*bucket);
    predictAll(*bucket);
  }
  if (wanted.joint)
    compareVariants(*bucket);
  return Status();
}

Result<Decision> Decider::conclude(const SharedStep &record) {
  if (record.variant >= 0 && bucket &&
      (size_t(record.variant) >= variants.size() ||
       variants[record.variant].seconds == 0))
    return noVariant(record.variant);
  Result<Decision> chosen = choose(record);
  if (!chosen.ok())
    return chosen;
  Decision &decision = *chosen;
  const LayerPlan &plan = list[decision.candidate].plan;
  if (plan.shadows > 0 && record.counts) {
    decision.shadows =
        order.find(model->placement(), record.counts, loads, plan.shadows)
            .data();
  }
  int64_t step = record.step + wanted.lag;
  PastStep &past = history.past(step);
  past.step = step;
  past.candidate = decision.candidate;
  past.predicted = 0;
  past.rough = false;
  past.key = BucketKey();
  if (wanted.lag == 0 && bucket) {
    past.key = bucket->key;
    int c = decision.candidate;
    past.rough = !asked;
    past.predicted = !asked           ? bucket->predicted
                     : careful[c] > 0 ? careful[c]
                                      : quick[c];
  }
  past.shadows.assign(decision.shadows,
                      decision.shadows + (decision.shadows ? plan.shadows : 0));
  last = decision;
  last.shadows = nullptr;
  lastStep = step;
  return decision;
}

Result<Decision> Decider::decide(const SharedStep &record) {
  MOIRA_RETURN_IF_ERROR(prepare(record));
  return conclude(record);
}
