// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which plan a layer's next step gets (docs/selection.md).

#ifndef MOIRA_RUNTIME_SELECTION_DECIDER_H
#define MOIRA_RUNTIME_SELECTION_DECIDER_H

#include "placement/Shadowing.h"
#include "selection/Candidate.h"
#include "selection/History.h"

#include <functional>

namespace moira::runtime {

enum class SelectionMode {
  Fixed,    ///< always one candidate
  Model,    ///< the model's best
  Measured, ///< the model's, corrected by what was measured; trials
  Oracle    ///< the best of times that somebody else tells
};

struct SelectionOptions {
  SelectionMode mode = SelectionMode::Measured;
  /// Of Fixed, and of a step before any record.
  int fixed = 0;
  /// Only variants of this class; "": of any.
  std::string numerics;
  /// Trials may cost this share of all steps, and `initialLoss` steps at once.
  double trialLoss = 0.005;
  double initialLoss = 1;
  /// Steps from one trial to the next, at least; four times as many once a
  /// hundred steps have gone.
  int trialSpacing = 3;
  /// Of a candidate, in a bucket.
  int trialsPerBucket = 3;
  /// 1: a record decides for the step after its own, so nobody waits. 0: for
  /// its own, between counting and the exchange.
  int lag = 1;
  /// Several layers run one variant (selection/EntryChoice.h): the best plan of
  /// each variant is followed, and `SharedStep::variant` says which it is.
  bool joint = false;
};

/// What ranks have told each other in a step; the same on all ranks. Nothing is
/// kept of it.
struct SharedStep {
  int64_t step = 0;
  const int32_t *counts = nullptr; ///< [ranks, experts]: rows that travelled;
                                   ///< null: there was no step yet
  /// Seconds that the layer took in `timedStep`, by rank; null: nothing known.
  /// What is no positive number counts as not known.
  const double *seconds = nullptr;
  int64_t timedStep = -1;
  const uint64_t *variants = nullptr; ///< by rank: bit i, it may run variant i;
                                      ///< null: all may
  const uint64_t *programs = nullptr; ///< by rank, hashes; null: all alike
  /// Rows of all ranks in the next step, where they are known on all ranks; -1:
  /// as in this one. Loads are scaled.
  int64_t nextRows = -1;
  // What somebody else has decided, alike on all ranks; -1: nothing.
  int variant = -1;   ///< only candidates of this variant
  int candidate = -1; ///< this one, learned from like any other
};

enum class DecisionReason {
  First,        ///< no record yet
  Fixed,        ///< by the mode, or by somebody else
  Only,         ///< nothing else is allowed
  Model,        ///< the least predicted time
  Measured,     ///< the least time, measured times counted in
  Trial,        ///< may be better
  ExtremeTrial, ///< r = 0 and r = s are tried once
  Settled,      ///< as often before in this bucket
  Oracle
};
const char *reasonName(DecisionReason reason);

struct Decision {
  int candidate = 0; ///< index into Decider::candidates
  DecisionReason reason = DecisionReason::First;
  double seconds = 0; ///< expected; 0: not known
  /// The experts to shadow, as many as the plan says. Valid to the next call.
  const int32_t *shadows = nullptr;

  bool trial() const {
    return reason == DecisionReason::Trial ||
           reason == DecisionReason::ExtremeTrial;
  }
};

/// Why a decision is as it is.
struct Explanation {
  enum Verdict {
    Chosen,
    Slower,      ///< by its expected time
    NotFollowed, ///< so slow by the quick model that nothing more was asked
    Unqualified, ///< a rank may not run its variant
    OtherClass,  ///< other bits
    NotAsked     ///< the bucket was settled, or the mode does not ask
  };
  struct Row {
    int candidate;
    double predicted; ///< seconds; 0: not asked
    double expected;  ///< corrected by measurements
    double measured;  ///< mean of measured over predicted in this bucket; 0:
                      ///< none
    double trials;    ///< that count in this bucket
    Verdict verdict;
  };
  int64_t step = 0; ///< that the decision is for
  BucketKey bucket;
  Decision decision; ///< `shadows` stand below
  std::vector<int32_t> shadows;
  std::vector<Row> rows; ///< by candidate

  std::string toText(const std::vector<Candidate> &candidates) const;
  /// The same as one line of JSON, times in seconds.
  std::string toJson(const std::vector<Candidate> &candidates) const;
};

/// Chooses for one layer. Every rank has one and tells it the same: so all
/// choose the same, without talking. A function of what it was told, of nothing
/// else: no clock, no random number, no function of the C library whose bits
/// depend on the processor. One thread at a time. Once a bucket of loads has
/// been seen, nothing is allocated.
class Decider {
public:
  static Result<std::unique_ptr<Decider>>
  create(const SelectionSpace &space, std::unique_ptr<LayerModel> model,
         const SelectionOptions &options = {});

  /// An extreme is tried unless it is said to take so much longer: then the
  /// model would have to be wrong by that.
  static constexpr double extremeFactor = 4;

  const std::vector<Candidate> &candidates() const { return list; }
  const SelectionSpace &space() const { return choices; }
  const SelectionOptions &options() const { return wanted; }
  LayerModel &costs() { return *model; }

  /// The plan of step `record.step + lag`. Fails where programs differ or no
  /// candidate is allowed.
  Result<Decision> decide(const SharedStep &record);
  /// The two halves of `decide`, between which somebody may compare variants
  /// and put one into the record. After a failure the other half is not called.
  Status prepare(const SharedStep &record);
  Result<Decision> conclude(const SharedStep &record);
  /// Of the last decision, until something else is told; before the first,
  /// without rows. Costs nothing where nobody asks.
  Explanation explain() const;
  /// What the best plan of a variant is expected to take.
  struct VariantTime {
    double seconds = 0; ///< 0: not known, or not all ranks may run it
    double doubt = 0;   ///< what part of that it may be off
    double trials = 0;  ///< that count under such loads
  };
  /// By variant, between the halves; empty where no time was asked for. Of
  /// joint decisions.
  const std::vector<VariantTime> &variantTimes() const { return variants; }
  /// r = 0: 0; r = s: 1; else -1.
  int extremeOfVariant(int variant) const;

  /// Of Oracle: true seconds of a candidate in the next step.
  void setOracle(std::function<double(const Candidate &)> times) {
    oracle = std::move(times);
  }
  /// A new lasting table; buckets are as unsettled as at the beginning.
  Status setPlacement(const int32_t *slotTable);

  /// What was learned, as JSON, and back. Refuses a table of other candidates
  /// or of another grid; then nothing has changed.
  std::string saveLearned() const;
  Status loadLearned(const std::string &json,
                     const std::string &name = "learned table");

private:
  Decider(const SelectionSpace &space, std::unique_ptr<LayerModel> model,
          const SelectionOptions &options);

  Status allow(const SharedStep &record);
  void learn(const SharedStep &record);
  void addLoads(const int32_t *counts);
  BucketKey keyOf(double scale) const;
  bool settled(const Bucket &bucket) const;
  void note(const SharedStep &record, const BucketKey &key);
  void setLoads(const int32_t *counts, double scale);
  Decision chooseFully(const SharedStep &record, Bucket &bucket);
  Result<Decision> choose(const SharedStep &record);
  bool asksModel(const SharedStep &record) const;
  void predictAll(const Bucket &bucket);
  void compareVariants(const Bucket &bucket);
  int bestOf(int variant) const;
  int pickTrial(const SharedStep &record, const Bucket &bucket, int best,
                DecisionReason &reason);
  int extremeOf(int candidate) const;
  /// What the last decision was made of is gone.
  void forgetLast() {
    asked = false;
    bucket = nullptr;
    lastStep = -1;
  }

  /// Full decisions that must agree before their bucket is settled.
  static constexpr int agreements = 3;

  const SelectionSpace choices;
  const std::unique_ptr<LayerModel> model;
  const SelectionOptions wanted;
  const std::vector<Candidate> list;
  std::function<double(const Candidate &)> oracle;

  uint64_t mask = 0;         ///< of variants, as it was last
  std::vector<char> allowed; ///< by candidate
  int allowedCount = 0;
  History history;
  std::vector<int> owners; ///< by unit: the first rank that holds it
  mutable std::vector<int64_t> rankLoads;

  // Of the decision under way:
  std::vector<uint32_t> sums;
  std::vector<int64_t> loads;      ///< by expert
  int64_t rows = 0;                ///< of all
  const int32_t *loaded = nullptr; ///< that the model has
  double loadedScale = 1;
  std::vector<int32_t> scaledCounts, ordered;
  ShadowOrder order;
  std::vector<double> quick, careful, expected; ///< by candidate; 0: not asked

  bool asked = false;       ///< the model, in the last decision
  Bucket *bucket = nullptr; ///< of the loads; null: not asked for
  bool stands = false;      ///< it is settled
  std::vector<VariantTime> variants;
  Decision last;         ///< its shadows are those of its past step
  int64_t lastStep = -1; ///< that it is for; -1: none yet

  int64_t lastTrial;
  double allowance;                      ///< steps that trials may still cost
  bool extremeTried[2] = {false, false}; ///< r = 0, r = s
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SELECTION_DECIDER_H
