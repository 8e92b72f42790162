// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An entry whose plans follow its loads: a decider for each layer, told in each
// step what the ranks told each other (docs/selection.md, "In a session").

#ifndef MOIRA_RUNTIME_SESSION_ADAPTATION_H
#define MOIRA_RUNTIME_SESSION_ADAPTATION_H

#include "collective/ExchangeLayout.h"
#include "collective/Record.h"
#include "selection/Decider.h"
#include "selection/EntryChoice.h"
#include "selection/FlightLog.h"
#include "session/Manifest.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moira::runtime {

/// How plans are decided. The same on all ranks, but for files.
struct AdaptOptions {
  /// `selection.lag` 0: see Adaptation::gathered.
  SelectionOptions selection;
  /// Links between the ranks; nothing: of nodes as the communicator has them,
  /// with the links of the calibration.
  std::optional<Topology> topology;
  /// Times of the parts of a layer, the same for all layers; nothing:
  /// see `chooseCalibration`.
  std::optional<Calibration> calibration;
  std::vector<int> degrees = {1, 2, 4, 8};
  /// Experts that may be shadowed at most; -1: as many as spare slots take.
  int maxShadows = -1;
  /// The least that a variant must have passed: "none", "twin" or "target".
  std::string qualified = "none";
  /// Where rank 0 writes what the deciders were told; empty: nowhere. Several
  /// layers have a file each, with "." and the layer's index behind the name.
  /// Where a write fails the step fails, once, and the log ends.
  std::string flightLog;
  /// Logs of an earlier run, named alike: their decisions are made again,
  /// compared, and followed; a step beyond them fails. Empty: none.
  std::string replay;
};

/// What was measured; where nothing was, what a layer is assumed to take:
/// products at so many flops per second, or weights read at so many bytes per
/// second, whichever is longer (docs/selection.md has the numbers). Links are
/// then one machine's.
Calibration chooseCalibration(const std::optional<Calibration> &measured,
                              const LayerSpec &layer);

/// The links between ranks that somebody described; else those of nodes as the
/// communicator has them, with the links of the calibration.
Result<Topology> chooseTopology(const std::optional<Topology> &described,
                                const Calibration &calibration,
                                const RankGroups &groups);

/// A variant as far as a choice depends on it. Of several ranks.
VariantChoice choiceOf(const VariantSpec &variant);

/// A layer with a placement and costs, as the cost model has it.
LayerShape layerShape(const EntrySpec &entry, const LayerSpec &layer);

/// What a layer runs with in a step.
struct AdaptedPlan {
  int32_t degree = 1;
  int32_t exchange = 0;
  std::vector<int32_t> shadows;
};

/// Decides for one entry. Every rank has one and all are told the same. One
/// thread at a time. A step is `next`, `gathered` for each layer, `finish`.
class Adaptation {
public:
  /// Needs an entry for several ranks whose layers have a placement and costs.
  /// `tables`: where weights stand for long, by layer, each [ranks, slots];
  /// empty: LayerShape::evenTable. `groups` has the ranks' nodes.
  static Result<std::unique_ptr<Adaptation>>
  create(const Manifest &manifest, int entry, const RankGroups &groups,
         const std::vector<std::vector<int32_t>> &tables,
         const AdaptOptions &options);
  ~Adaptation();

  const AdaptOptions &options() const { return wanted; }
  /// The same for all layers.
  const std::vector<Candidate> &candidates() const {
    return deciders.front()->candidates();
  }

  /// Tokens that all ranks together bring to the next step, the same number on
  /// all ranks; -1: not known, and taken to be as many as in the last one.
  void announce(int64_t tokens) { announced = tokens; }
  /// Decides the plans of the step that comes, from what the last one told.
  Status next();
  /// Whether there are plans yet.
  bool decides() const { return decided >= 0; }
  /// Of that step: which variant runs so many rows, and what a layer (by its
  /// place in the entry) runs with.
  int variant(int64_t rows) const;
  const AdaptedPlan &plan(size_t layer) const { return layers[layer].plan; }
  int experts(size_t layer) const { return layers[layer].experts; }
  const Decision &decision(size_t layer) const {
    return layers[layer].decision;
  }

  /// What this rank says of itself in a layer's record: the seconds of its last
  /// step, infinity where they are not known, and the variants it may run.
  const std::vector<double> &seconds() const { return lastSeconds; }
  uint64_t mask() const { return variantMask; }

  /// What a layer's steps are predicted with, anew.
  Result<std::unique_ptr<LayerModel>> makeModel(size_t layer) const;
  /// Experts that a step may shadow at most.
  int maxShadows() const { return space.maxShadows; }
  /// Whether shadows are chosen within a step, by its own counts.
  bool shadowsLate() const {
    return wanted.selection.lag == 0 && space.maxShadows > 0;
  }
  /// What all ranks said in a layer, once in each step, and matrix[ranks,
  /// experts] of rows. With lag 0 the layer's degree, exchange and shadows are
  /// decided now, for this step: then the result is true and `plan` has them.
  /// The variant was chosen by the step before, since its code runs already.
  Result<bool> gathered(size_t layer, const std::vector<RankRecord> &records,
                        const int32_t *matrix);
  /// What an exchange of a layer sends to experts, [ranks, experts], on all
  /// ranks alike: with the padded layout more than the rows that all ranks
  /// said. What it sends is what plans cost, so it takes their place in
  /// decisions.
  void travelled(size_t layer, const int32_t *matrix);
  /// A step with this number is over: its seconds by layer. After a failed one
  /// the next runs with the same plans. With `more` its way back is to come.
  void finish(bool succeeded, int64_t number,
              const std::vector<double> &seconds, bool more);
  /// What the way back of a step took. Ignored unless that is the last step,
  /// and its first way back: only then a time is one of the last plan.
  void finishBack(int64_t number, const std::vector<double> &seconds);
  /// Steps that succeeded.
  int64_t steps() const { return done; }

  /// All layers run this candidate (as Candidate::describe names it) from the
  /// next step on; empty: they are decided again. On all ranks alike.
  Status force(const std::string &candidate);
  /// This rank may not run a variant, or may again. All ranks know with the
  /// record of the next step.
  Status forbid(const std::string &variant, bool forbidden);
  /// Whether a layer may have this lasting table: whether it leaves room for
  /// the shadows that may be chosen.
  Status checkPlacement(size_t layer, const std::vector<int32_t> &table) const;
  /// A new lasting table of a layer, as in `create`.
  Status setPlacement(size_t layer, const std::vector<int32_t> &table);

  /// What was learned, of all layers, as JSON, and back. Refuses what is of
  /// other layers or candidates; then nothing has changed.
  std::string saveLearned() const;
  Status loadLearned(const std::string &json,
                     const std::string &name = "learned table");

  /// Of the last decision, by layer, and the same as one line of JSON.
  std::vector<Explanation> explain() const;
  std::string explainJson() const;

private:
  /// A decision of an earlier run.
  struct Followed {
    Decision decision;
    std::vector<int32_t> shadows;
  };
  struct Layer {
    int64_t index = 0;
    int experts = 0;
    // What ranks told in the last step, by rank.
    std::vector<int32_t> counts; ///< [ranks, experts]
    std::vector<double> told;
    std::vector<uint64_t> variants, programs;
    int64_t toldStep = -1; ///< that this is of
    // Of the last step whose groups travelled with padding:
    std::vector<int32_t> padded; ///< by rank, rows of a group; empty: none did
    int64_t paddedRows = 0;      ///< rows that its groups had
    int64_t rows = -1;           ///< of the last step; -1: nobody needs them
    bool hasTravelled = false;   ///< `counts` are what was sent
    double forward = 0;          ///< while its way back is to come
    AdaptedPlan plan;
    Decision decision;      ///< that the plan is of, which has its shadows
    int64_t decidedFor = 0; ///< a step
    std::unique_ptr<FlightRecorder> recorder; ///< null: nobody records
    std::FILE *file = nullptr;
    std::vector<Followed> followed;
  };

  Adaptation(const EntrySpec &entry, const RankGroups &groups,
             const AdaptOptions &options);
  Status makeSpace();
  int64_t roomOf(size_t layer, const std::vector<int32_t> &table) const;
  bool sharesParameters() const;
  Status makeDeciders();
  Status openReplay(size_t layer);
  Status openLog(size_t layer);
  Status writeLog(Layer &layer);
  static void endLog(Layer &layer);
  std::string fileOf(const std::string &name, const Layer &layer) const;
  bool training() const { return !entry.backward.empty(); }

  SharedStep recordOf(const Layer &layer, int64_t step) const;
  Status decideLayers();
  Status chooseVariant();
  uint64_t sharedVariants() const;
  uint64_t groupsThatRun(uint64_t variants) const;
  Status follow(size_t layer, int64_t step);
  static void pad(Layer &layer);
  void apply(Layer &layer, const SharedStep &record, const Decision &decision,
             int64_t step);

  AdaptOptions wanted;
  const EntrySpec &entry;
  const RankGroups ranks;
  SelectionSpace space;
  std::vector<int> groupOf; ///< by variant of the entry: of the space, or -1
  std::vector<std::vector<int32_t>> tables;
  std::vector<std::unique_ptr<Decider>> deciders; ///< by layer
  /// Of several layers, and of lag 0, where a step's variant is not decided
  /// with the rest.
  std::unique_ptr<EntryChoice> choice;
  EntryChoice::Choice chosen; ///< of the step
  std::vector<Layer> layers;
  std::vector<double> lastSeconds; ///< by layer
  uint64_t variantMask = 0;
  std::string loaded; ///< the learned table that was loaded last
  Status logFailure;  ///< that no step has reported yet
  int forced = -1;    ///< candidate
  int64_t announced = -1;
  int64_t done = 0;     ///< steps
  int64_t decided = -1; ///< the step that plans are of
  int64_t pending = -1; ///< the step whose way back is to come
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_ADAPTATION_H
