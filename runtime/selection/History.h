// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a decider remembers: measured over predicted times, by bucket of loads
// and candidate, and the last steps.

#ifndef MOIRA_RUNTIME_SELECTION_HISTORY_H
#define MOIRA_RUNTIME_SELECTION_HISTORY_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moira::runtime {

/// Loads that are treated alike. Quarters of powers of two.
struct BucketKey {
  int32_t load = -1;  ///< rows of the fullest rank
  int32_t skew = 0;   ///< those over the mean of ranks
  int32_t expert = 0; ///< rows of the fullest expert over all, halves

  bool operator==(const BucketKey &other) const {
    return load == other.load && skew == other.skew && expert == other.expert;
  }
};

/// 4 * log2(x), rounded down, exactly and the same everywhere; 0 for x < 1.
int32_t quarterLog2(double x);

/// A mean of ratios. `count` stops at a limit, so that old ones fade.
struct Ratio {
  double count = 0, mean = 1;

  void add(double value, double limit) {
    mean += (value - mean) / (count + 1);
    count = count + 1 < limit ? count + 1 : limit;
  }
};

/// The best plan of a variant in the last full decision.
struct VariantBest {
  int choice = -1;
  double predicted = 0; ///< seconds
};

struct Bucket {
  BucketKey key;
  int64_t visits = 0;
  int64_t lastVisit = -1;
  // The last full decision:
  int choice = -1;
  double loss = 0;   ///< mean part of a step that the choice before would have
                     ///< lost, by the last full decisions
  int decisions = 0; ///< full ones that it is of
  int64_t decided = -1;           ///< visit of the last one
  double predicted = 0;           ///< of the choice, seconds
  std::vector<Ratio> ratios;      ///< by candidate: measured over predicted
  std::vector<VariantBest> bests; ///< by variant; empty: nobody compares them
};

/// A step that has a plan and waits for its time.
struct PastStep {
  int64_t step = -1;
  int candidate = -1;
  double predicted = 0; ///< under the loads that it had; 0: not known
  /// That is of earlier loads in the bucket: near enough to see drift by, not
  /// to learn from.
  bool rough = false;
  BucketKey key;
  std::vector<int32_t> shadows; ///< experts, as its plan has
};

/// Holds at most `maxBuckets`; the one not seen for longest makes room.
class History {
public:
  static constexpr int maxBuckets = 256;
  static constexpr int pastSteps = 8;
  // After so many, means forget.
  static constexpr double bucketLimit = 8, candidateLimit = 32, allLimit = 64;

  explicit History(int candidates, int variants = 0);

  /// The bucket of a key, new or known.
  Bucket &find(const BucketKey &key, int64_t step);
  const Bucket *peek(const BucketKey &key) const;
  PastStep &past(int64_t step) { return ring[uint64_t(step) % pastSteps]; }
  const PastStep &past(int64_t step) const {
    return ring[uint64_t(step) % pastSteps];
  }

  /// Measured over predicted time that is expected of a candidate in a bucket:
  /// its own mean there, drawn to its mean anywhere, drawn to that of all.
  double expect(const Bucket &bucket, int candidate) const;
  /// How sure that is: what part of the time it may be off.
  double doubt(const Bucket &bucket, int candidate) const;
  /// A step's time. Returns whether times have drifted away from what was
  /// expected, in which case most has been forgotten.
  bool add(const PastStep &step, double seconds);

  /// Lets what was measured in a bucket long ago count less.
  void fade(Bucket &bucket) const;
  /// Buckets keep what was measured and decide anew.
  void unsettle();
  void forget();

  std::vector<Bucket> buckets;
  std::vector<Ratio> byCandidate;
  Ratio all;
  Ratio drift; ///< measured over expected, of the last steps
  int64_t forgotten = 0;

private:
  void learn(Bucket &bucket, int candidate, double ratio, double wanted);
  static uint64_t slotOf(const BucketKey &key);

  std::array<PastStep, pastSteps> ring;
  std::vector<int16_t> index; ///< hash table into buckets, -1: free
  /// Memory of buckets to come, so that a decision allocates none.
  std::vector<Bucket> spare;
  void rebuild();
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SELECTION_HISTORY_H
