// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "selection/History.h"

#include <algorithm>
#include <cmath>

using namespace moira;
using namespace moira::runtime;

int32_t moira::runtime::quarterLog2(double x) {
  if (!(x >= 1))
    return 0;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent) * 2; // of [1, 2): exact
  // 2^(1/4), 2^(1/2), 2^(3/4).
  int part = mantissa >= 1.681792830507429    ? 3
             : mantissa >= 1.4142135623730951 ? 2
             : mantissa >= 1.189207115002721  ? 1
                                              : 0;
  return 4 * (exponent - 1) + part;
}

// The table is four times as large as can be filled.
static constexpr size_t indexSize = 4 * History::maxBuckets;

History::History(int candidates, int variants) : byCandidate(candidates) {
  buckets.reserve(maxBuckets);
  index.assign(indexSize, -1);
  Bucket empty;
  empty.ratios.resize(candidates);
  empty.bests.resize(variants);
  spare.assign(maxBuckets, empty);
}

uint64_t History::slotOf(const BucketKey &key) {
  uint64_t hash = uint64_t(uint32_t(key.load)) * 0x9E3779B97F4A7C15u;
  hash ^= uint64_t(uint32_t(key.skew)) * 0xC2B2AE3D27D4EB4Fu;
  hash ^= uint64_t(uint32_t(key.expert)) * 0x165667B19E3779F9u;
  return (hash ^ (hash >> 29)) % indexSize;
}

const Bucket *History::peek(const BucketKey &key) const {
  for (uint64_t slot = slotOf(key);; slot = (slot + 1) % indexSize) {
    if (index[slot] < 0)
      return nullptr;
    if (buckets[index[slot]].key == key)
      return &buckets[index[slot]];
  }
}

void History::rebuild() {
  std::fill(index.begin(), index.end(), -1);
  for (size_t i = 0; i < buckets.size(); ++i) {
    uint64_t slot = slotOf(buckets[i].key);
    while (index[slot] >= 0)
      slot = (slot + 1) % indexSize;
    index[slot] = int16_t(i);
  }
}

Bucket &History::find(const BucketKey &key, int64_t step) {
  Bucket *found = const_cast<Bucket *>(peek(key));
  if (!found) {
    if (int(buckets.size()) < maxBuckets) {
      // As many are spare as there may be.
      buckets.push_back(std::move(spare.back()));
      spare.pop_back();
      found = &buckets.back();
    } else {
      found = &*std::min_element(buckets.begin(), buckets.end(),
                                 [](const Bucket &a, const Bucket &b) {
                                   return a.lastVisit < b.lastVisit;
                                 });
      Bucket fresh;
      fresh.ratios = std::move(found->ratios);
      fresh.bests = std::move(found->bests);
      std::fill(fresh.ratios.begin(), fresh.ratios.end(), Ratio());
      std::fill(fresh.bests.begin(), fresh.bests.end(), VariantBest());
      *found = std::move(fresh);
    }
    found->key = key;
    rebuild();
  }
  ++found->visits;
  found->lastVisit = step;
  return *found;
}

double History::expect(const Bucket &bucket, int candidate) const {
  auto drawn = [](const Ratio &ratio, double to, double weight) {
    return (weight * to + ratio.count * ratio.mean) / (weight + ratio.count);
  };
  double ofAll = drawn(all, 1, 1);
  double own = drawn(byCandidate[candidate], ofAll, 1);
  return drawn(bucket.ratios[candidate], own, 2);
}

double History::doubt(const Bucket &bucket, int candidate) const {
  // A tenth is what models of this kind are off by where nothing is known of
  // the machine but twenty points.
  constexpr double model = 0.1;
  return model / (1 + 0.5 * std::min(byCandidate[candidate].count, 8.0) +
                  bucket.ratios[candidate].count);
}

bool History::add(const PastStep &step, double seconds) {
  Bucket *bucket = const_cast<Bucket *>(peek(step.key));
  if (!bucket || step.predicted <= 0 || step.candidate < 0)
    return false;
  double wanted = expect(*bucket, step.candidate);
  double ratio = seconds / step.predicted;
  drift.add(std::clamp(ratio / wanted, 0.25, 4.0), 4);
  if (!step.rough)
    learn(*bucket, step.candidate, ratio, wanted);
  if (drift.count < 4 || (drift.mean < 1.25 && drift.mean > 0.8))
    return false;
  forget();
  return true;
}

void History::learn(Bucket &bucket, int candidate, double ratio,
                    double wanted) {
  // One step that was held up must not count for many.
  double seen = bucket.ratios[candidate].count + byCandidate[candidate].count;
  double width = seen >= 2 ? 1.5 : 16;
  ratio = std::clamp(ratio, wanted / width, wanted * width);
  all.add(ratio, allLimit);
  byCandidate[candidate].add(ratio, candidateLimit);
  bucket.ratios[candidate].add(ratio, bucketLimit);
}

void History::fade(Bucket &bucket) const {
  // By half in 23 full decisions: a candidate that once seemed bad here is
  // believed to be what it is elsewhere, and may be tried again.
  for (Ratio &ratio : bucket.ratios)
    ratio.count *= 0.97;
}

void History::unsettle() {
  for (Bucket &bucket : buckets)
    bucket.decisions = 0;
}

void History::forget() {
  // A quarter stays, so that the order of candidates is not learned again.
  auto fade = [](Ratio &ratio) { ratio.count *= 0.25; };
  fade(all);
  for (Ratio &ratio : byCandidate)
    fade(ratio);
  for (Bucket &bucket : buckets)
    for (Ratio &ratio : bucket.ratios)
      fade(ratio);
  drift = Ratio();
  unsettle();
  ++forgotten;
}
