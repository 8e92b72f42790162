// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a decider takes from the record of a step: who may run what, times,
// loads.

#include "selection/Decider.h"

#include <algorithm>
#include <limits>

using namespace moira;
using namespace moira::runtime;

// A bucket is settled when in so many full decisions (`agreements`) the choice
// of the one before would have lost less than this part of a step, and decided
// fully again once in so many visits.
static constexpr int refresh = 8;
static constexpr double settledLoss = 0.002;

/// Candidates whose variants all ranks may run, of the wanted class.
Status Decider::allow(const SharedStep &record) {
  int ranks = model->shape().ranks;
  if (record.programs)
    for (int rank = 1; rank < ranks; ++rank)
      if (record.programs[rank] != record.programs[0])
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("selection: rank ", rank,
                             ": expected the program of rank 0, got another"));
  uint64_t now = ~uint64_t(0);
  for (int rank = 0; record.variants && rank < ranks; ++rank)
    now &= record.variants[rank];
  if (now != mask || allowedCount == 0) {
    mask = now;
    allowedCount = 0;
    for (size_t c = 0; c < list.size(); ++c) {
      const VariantChoice &variant = choices.variants[list[c].variant];
      allowed[c] =
          (mask >> list[c].variant & 1) &&
          (wanted.numerics.empty() || variant.numerics == wanted.numerics);
      allowedCount += allowed[c];
    }
    history.unsettle();
  }
  if (allowedCount == 0)
    return Status(MOIRA_UNAVAILABLE,
                  wanted.numerics.empty()
                      ? "selection: expected a variant that all ranks may run, "
                        "got none"
                      : "selection: expected a variant of class '" +
                            wanted.numerics +
                            "' that all ranks may run, got none");
  return Status();
}

int Decider::extremeOfVariant(int variant) const {
  int copies = choices.variants[variant].copies;
  return copies == 0 ? 0 : copies == model->shape().shards ? 1 : -1;
}

int Decider::extremeOf(int candidate) const {
  return extremeOfVariant(int(list[candidate].variant));
}

void Decider::learn(const SharedStep &record) {
  if (!record.seconds || record.timedStep < 0)
    return;
  // The slowest rank counts. A time that is missing anywhere is missing.
  double seconds = 0;
  for (int rank = 0; rank < model->shape().ranks; ++rank) {
    double mine = record.seconds[rank];
    if (!(mine > 0) || mine > std::numeric_limits<double>::max())
      return;
    seconds = std::max(seconds, mine);
  }
  PastStep &past = history.past(record.timedStep);
  if (past.step != record.timedStep)
    return;
  history.add(past, seconds);
  if (int extreme = extremeOf(past.candidate); extreme >= 0)
    extremeTried[extreme] = true;
  past.step = -1; // counts once
}

/// sum[e] += of `count` rows of counts; returns all bits that were seen.
static uint32_t addRows(const int32_t *__restrict rows, int count, int experts,
                        uint32_t *__restrict sum) {
  uint32_t bits = 0;
  int p = 0;
  // Four at a time: sums are read and written a quarter as often.
  for (; p + 4 <= count; p += 4) {
    const int32_t *a = rows + size_t(p) * experts, *b = a + experts,
                  *c = b + experts, *d = c + experts;
    for (int e = 0; e < experts; ++e) {
      sum[e] +=
          uint32_t(a[e]) + uint32_t(b[e]) + uint32_t(c[e]) + uint32_t(d[e]);
      bits |= uint32_t(a[e]) | uint32_t(b[e]) | uint32_t(c[e]) | uint32_t(d[e]);
    }
  }
  for (; p < count; ++p)
    for (int e = 0; e < experts; ++e) {
      sum[e] += uint32_t(rows[size_t(p) * experts + e]);
      bits |= uint32_t(rows[size_t(p) * experts + e]);
    }
  return bits;
}

void Decider::addLoads(const int32_t *counts) {
  int ranks = model->shape().ranks, experts = model->shape().experts;
  // In 32 bits, which is twice as fast, where no sum can leave them.
  std::fill(sums.begin(), sums.end(), 0);
  uint64_t bits = addRows(counts, ranks, experts, sums.data());
  bool fits = bits * uint64_t(ranks) <= UINT32_MAX;
  rows = 0;
  for (int e = 0; e < experts; ++e) {
    int64_t load = sums[e];
    for (int p = 0; p < ranks && !fits; ++p) {
      load = p ? load : 0;
      load += std::max(counts[size_t(p) * experts + e], 0);
    }
    loads[e] = load;
    rows += load;
  }
}

BucketKey Decider::keyOf(double scale) const {
  const LayerShape &shape = model->shape();
  std::fill(rankLoads.begin(), rankLoads.end(), 0);
  int64_t expert = 0;
  for (int e = 0; e < shape.experts; ++e) {
    expert = std::max(expert, loads[e]);
    // A shard's holder computes a share of its expert's rows.
    for (int h = 0; h < shape.shards; ++h)
      rankLoads[owners[e * shape.shards + h]] += loads[e];
  }
  int64_t most = *std::max_element(rankLoads.begin(), rankLoads.end());
  double all = double(std::max<int64_t>(rows, 1));
  BucketKey key;
  key.load = quarterLog2(double(most) * scale / shape.shards);
  key.skew = quarterLog2(double(most) * shape.ranks / (all * shape.shards));
  key.expert = quarterLog2(double(expert) * shape.experts / all) / 2;
  return key;
}

bool Decider::settled(const Bucket &bucket) const {
  return bucket.decisions > agreements && bucket.loss < settledLoss &&
         bucket.visits - bucket.decided < refresh;
}

/// Brings the model to these loads, unless it has them.
void Decider::setLoads(const int32_t *counts, double scale) {
  if (loaded == counts && loadedScale == scale)
    return;
  loaded = counts;
  loadedScale = scale;
  if (scale != 1) {
    for (size_t i = 0; i < scaledCounts.size(); ++i)
      scaledCounts[i] =
          int32_t(std::min(double(counts[i]) * scale + 0.5, double(INT32_MAX)));
    counts = scaledCounts.data();
  }
  const std::vector<int32_t> &shadows =
      order.find(model->placement(), counts, loads, choices.maxShadows);
  model->setLoads(counts, shadows.data(), int(shadows.size()));
}

/// What the step that the record is of was to take, under the loads that it
/// had: its time comes later.
void Decider::note(const SharedStep &record, const BucketKey &key) {
  PastStep &past = history.past(record.step);
  if (past.step != record.step)
    return;
  past.key = key;
  const Bucket *bucket = history.peek(key);
  if (bucket && settled(*bucket) && bucket->choice == past.candidate) {
    past.predicted = bucket->predicted;
    past.rough = true;
    return;
  }
  setLoads(record.counts, 1);
  // It ran with the shadows that were chosen for it.
  int shadows = int(past.shadows.size());
  const std::vector<int32_t> &best =
      order.find(model->placement(), record.counts, loads, shadows);
  bool same = std::equal(past.shadows.begin(), past.shadows.end(), best.begin(),
                         best.end());
  if (!same) {
    model->setLoads(record.counts, past.shadows.data(), shadows);
    loaded = nullptr;
  }
  past.predicted = model->predict(list[past.candidate].plan).seconds;
}
