// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a layer's step takes under a plan: seconds and memory
// (docs/cost-model.md). Fast enough to ask in every step.

#ifndef MOIRA_RUNTIME_COST_LAYERMODEL_H
#define MOIRA_RUNTIME_COST_LAYERMODEL_H

#include "cost/BatchCost.h"
#include "cost/Calibration.h"
#include "cost/LayerFlows.h"
#include "cost/LinkTraffic.h"

#include <memory>

namespace moira::runtime {

/// Quick ones begin every exchange when all of its ranks are there; careful
/// ones follow each rank, where there are few enough (BatchCost::exactRanks). A
/// careful one takes several times as long.
enum class Detail { Quick, Careful };

/// Predictions for one layer on one grid. One thread at a time. A function of
/// what it was made of, the table and the loads: the same on all ranks. After
/// `create` and `setPlacement` nothing is allocated.
class LayerModel {
public:
  static Result<std::unique_ptr<LayerModel>>
  create(const LayerShape &shape, const Topology &topology,
         const Calibration &calibration,
         ShadowTransport transport = ShadowTransport::BySize);

  static constexpr int maxDegree = 64;

  const LayerShape &shape() const { return layer; }
  const Topology &cluster() const { return topology; }
  /// Differs where predictions may: of shape, cluster, calibration, transport.
  uint64_t hash() const;
  const Placement &placement() const { return table; }
  /// Ranks in a group of MOIRA_SCHEDULE_GROUPS, as RankGroups has them.
  int groupSize() const { return rankGroupSize; }
  bool hasHierarchical() const { return hierarchical; }
  /// Shadows that fit the spare slots.
  int maxShadows() const {
    return layer.ranks > 1 ? layer.spareSlots() / layer.shards : 0;
  }
  /// Nothing, or why this plan cannot be.
  Status check(const LayerPlan &plan) const;

  /// The lasting table, [ranks, slots]; null: LayerShape::evenTable. Loads must
  /// be set anew.
  Status setPlacement(const int32_t *slotTable);
  /// counts[ranks, experts]: rows that travel (with the padded layout the
  /// capacity, for all). `order` has the experts that are
  /// shadowed first, `shadows` of them. Both stay as they are while asked for.
  void setLoads(const int32_t *counts, const int32_t *order, int shadows);
  /// Times of a plan that passes `check`, with no more shadows than the order
  /// has. Cheapest where plans come by copies, then by shadows in ascending
  /// order, then by the rest.
  LayerPrediction predict(const LayerPlan &plan,
                          Detail detail = Detail::Careful);

private:
  LayerModel(const LayerShape &shape, const Topology &topology,
             const Calibration &calibration, ShadowTransport transport);

  using Lanes = std::vector<double>;
  /// A chunk's exchange: its batches, and with nothing else under way zero +
  /// perByte * bytes of a row, by lane.
  struct Duration {
    BatchFlows batches[2];
    int count = 1;
    Lanes zero, perByte;
  };
  /// What a value of r needs besides rows.
  struct Weights {
    int copies = 0;
    Lanes gather, reduce;
    int64_t bytes = 0, gradientBytes = 0;
    BatchFlows back[2]; ///< of a gradient; of a replicated weight's
  };
  struct Chunks {
    int count = 0;
    std::vector<Lanes> compute; ///< [chunk]
  };

  void timeWeights();
  void addNeeds(Weights &weights, const WeightShape &weight, Lanes &gather,
                Lanes &reduce);
  void reduceWeights(const Weights &weights, const LayerPlan &plan);
  void sendShadows(const LayerPlan &plan);
  void returnShadows(const LayerPlan &plan);
  void timeShadows();
  void timeShadow(int owner, ShadowTransport way,
                  std::vector<BatchFlows> &rounds);
  bool isSplit(const WeightShape &weight) const;
  void timeCounts();
  void select(const LayerPlan &plan);
  void timeExchange(const LayerPlan &plan, bool back);
  void boundExchange(const LayerPlan &plan, bool back);
  void shadow(int32_t expert);
  void measure(const Flow *pairs, const LayerPlan &plan, bool back,
               Duration &duration);
  const Flow *ofGroup(int group);
  void run(const Duration &duration, double unitBytes, Lanes &ends);
  void carry(double unitBytes, bool back, Lanes &ends);
  void timeEqual(const LayerPlan &plan, const KernelCurve &curve);
  void timePieces(const LayerPlan &plan, const KernelCurve &curve);
  void timeGroups(const LayerPlan &plan, const KernelCurve &curve);
  void timeOwn(const KernelCurve &curve);
  void findBusiest();
  void synchronize(Lanes &lanes) const;
  void exchange(int chunk, bool back, double rowBytes, LayerPrediction &sum);
  double pass(const LayerPlan &plan, bool backward, LayerPrediction &sum);
  int64_t peak(const LayerPlan &plan) const;
  const Weights &weightsOf(int copies) const;

  const LayerShape layer;
  const Topology topology;
  const Calibration costs;
  const ShadowTransport transport;
  const int rankGroupSize, groupCount;
  const bool hierarchical;
  const int lanes;

  BatchCost batch;
  Placement table;
  LayerFlows flows;
  std::unique_ptr<LinkTraffic> traffic; ///< where there is one lane
  std::vector<Weights> weightTimes;
  Lanes countsTime;
  /// Of a unit's owner: seconds there and back alone, and the rounds.
  struct ShadowWay {
    double there = 0, back = 0;
    std::vector<BatchFlows> rounds[2]; ///< there: whole weights; parts of them
  };
  std::vector<ShadowWay> shadowWays;

  const int32_t *counts = nullptr;
  const int32_t *order = nullptr;
  int orderCount = 0;
  LayerPlan current; ///< that flows and durations are of
  bool flowsSet = false;
  double allRows = 0;
  double mostRows = 0; ///< of a rank
  int fullest = 0;     ///< that rank
  // Of large grids: what the links' traffic and the busiest ranks are of.
  bool trafficSet = false, stagesSet = false;
  std::vector<int> busiest; ///< ranks that products are timed of
  std::vector<double> rankRows;
  std::vector<Duration> times[2]; ///< [back][chunk]; one chunk: for all
  int timesOf[2] = {-1, -1};      ///< schedule and exchange they are of
  int emptyChunks = 0;            ///< at the front, of small pieces
  std::vector<Flow> stage[2], subset;
  BatchFlows once; ///< of what does not depend on loads
  Detail detail = Detail::Careful;
  Chunks chunks;
  Lanes queue, clock, scratch, own;
  std::vector<Lanes> arrived;
  std::vector<double> byParts, pieceSlots;
  bool byPieces = false; ///< chunks are told apart row by row
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LAYERMODEL_H
