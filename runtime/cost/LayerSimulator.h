// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer's step message by message: the times that the virtual clock would
// give, without data and threads.

#ifndef MOIRA_RUNTIME_COST_LAYERSIMULATOR_H
#define MOIRA_RUNTIME_COST_LAYERSIMULATOR_H

#include "collective/ExchangeLayout.h"
#include "cost/Calibration.h"
#include "cost/LayerShape.h"
#include "cost/LinkSchedule.h"

namespace moira::runtime {

/// What a simulated machine takes for compute. Of a calibration, or of anything
/// that a test wants to be the truth.
class ComputeTimes {
public:
  virtual ~ComputeTimes() = default;
  /// Of one call of the experts' product, and of each group with rows.
  virtual double call(bool backward) const = 0;
  virtual double group(int64_t rows, bool backward) const = 0;
  virtual double gate(int64_t rows) const = 0;
  virtual double dispatch(int64_t rows) const = 0;
  virtual double combine(int64_t rows) const = 0;
};

class CalibratedTimes final : public ComputeTimes {
public:
  explicit CalibratedTimes(const Calibration &costs) : costs(costs) {}
  double call(bool backward) const override {
    return backward ? costs.backward.call : costs.forward.call;
  }
  double group(int64_t rows, bool backward) const override {
    return (backward ? costs.backward : costs.forward).group(double(rows));
  }
  double gate(int64_t rows) const override {
    return costs.gate.at(double(rows));
  }
  double dispatch(int64_t rows) const override {
    return costs.dispatch.at(double(rows));
  }
  double combine(int64_t rows) const override {
    return costs.combine.at(double(rows));
  }

private:
  const Calibration &costs;
};

/// The messages of a batch, as each rank sends them in order.
using MessageRound = std::vector<TimedMessage>;

/// Takes much longer than LayerModel and knows every message: for plans made at
/// compile time, for people and for tests. One thread at a time.
class LayerSimulator {
public:
  /// All stay as they are while it is used. `stagingBytes` is that of
  /// CommunicatorOptions.
  LayerSimulator(const LayerShape &shape, const Topology &topology,
                 const ComputeTimes &times,
                 ShadowTransport transport = ShadowTransport::BySize,
                 int64_t stagingBytes = int64_t(64) << 20);

  /// Seconds of a step. `slotTable` is [ranks, slots] with the shadows in it
  /// (null: LayerShape::evenTable); `shadowed` are the units among them, with
  /// the rank that each comes from.
  Result<double> run(const LayerPlan &plan, const int32_t *counts,
                     const int32_t *slotTable,
                     const std::vector<Place> &shadowed = {});

  /// The rounds of one chunk's exchange; plan.copies >= 1.
  Status exchangeRounds(const LayerPlan &plan, const int32_t *counts,
                        int direction, int64_t chunk, int64_t rowBytes,
                        std::vector<MessageRound> &rounds);
  int64_t chunks(const LayerPlan &plan) const;
  Status setPlacement(const LayerPlan &plan, const int32_t *slotTable);

private:
  using Times = std::vector<double>;

  Status pass(const LayerPlan &plan, const int32_t *counts,
              const std::vector<Place> &shadowed, bool backward, Times &clock);
  void carry(std::vector<MessageRound> &rounds, Times &ends);
  void hierarchicalRounds(std::vector<MessageRound> &rounds) const;
  void countRounds(std::vector<MessageRound> &rounds) const;
  void weightRounds(const LayerPlan &plan, const WeightShape &weight,
                    bool reduce, std::vector<MessageRound> &rounds) const;
  void shadowRounds(int owner, int64_t bytes,
                    std::vector<MessageRound> &rounds) const;
  RankGroups groupsOf(int rank) const;
  double product(const LayerPlan &plan, const int32_t *counts, int rank,
                 bool backward);
  Status layout(const LayerPlan &plan, const int32_t *counts, int rank,
                int direction, int64_t chunk);

  const LayerShape shape;
  const Topology &topology;
  const ComputeTimes &times;
  const ShadowTransport transport;
  const int64_t stagingBytes;
  LinkSchedule schedule;
  Placement placement;
  ExchangeLayout rows;
  std::vector<int64_t> pairs; ///< bytes, [from, to]
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LAYERSIMULATOR_H
