// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What happened in each step: one row per step, one per layer in it.

#ifndef MOIRA_RUNTIME_STATISTICS_STATISTICS_H
#define MOIRA_RUNTIME_STATISTICS_STATISTICS_H

#include "moira/abi.h"
#include "statistics/Clock.h"
#include "statistics/Trace.h"

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace moira::runtime {

using PartSeconds = std::array<double, MOIRA_PART_COUNT>;

/// As files and tables name a part: "gate". Of MOIRA_PART_OTHER "other".
const char *partName(int part);

/// One layer in one step.
struct LayerRow {
  int64_t layer = 0;
  moira_plan plan{};           ///< without its slot table
  std::vector<int32_t> counts; ///< rows per expert before drops
  std::vector<int32_t> sizes;  ///< and after
  int64_t routed = 0;          ///< sum of counts
  int64_t dropped = 0;         ///< sum of counts less sum of sizes
  PartSeconds seconds{};
  std::vector<int32_t> matrix;  ///< [ranks, experts]: rows of each rank for
                                ///< each; empty where they were not gathered
  int64_t bytesSent = 0;        ///< to other ranks: rows and weights
  int64_t bytesReceived = 0;    ///< from them
  std::vector<int32_t> shadows; ///< experts that all ranks held
  double predicted = 0;    ///< seconds that the plan was to take, the way back
                           ///< with it; 0: nobody said
  const char *reason = ""; ///< why the plan is as it is (reasonName); "": it
                           ///< was set

  /// Of all parts.
  double total() const;
};

/// One step. The parts of all layers and `seconds` of the dense parts add up
/// to `total`.
struct StepRow {
  int64_t step = 0; ///< 0, 1, ... in the session
  int32_t entry = 0;
  int32_t variant = 0;
  int64_t rows = 0;     ///< dim 0 of the first input
  int32_t error = 0;    ///< MOIRA_OK or a code
  int64_t launches = 0; ///< of kernels of a device
  int64_t waits = 0;    ///< for it, before the step's end
  /// Device time between the copies of inputs and those of results.
  double deviceSeconds = 0;
  int64_t deviceAllocations = 0; ///< blocks since the step before
  double total = 0;              ///< seconds
  PartSeconds seconds{};         ///< outside of layers
  std::vector<LayerRow> layers;
};

/// Receives rows as steps end, from the thread of the step.
class StatisticsSink {
public:
  virtual ~StatisticsSink() = default;
  virtual void record(const StepRow &row) = 0;
};

/// Keeps the last rows. Any thread may call anything.
class RingSink final : public StatisticsSink {
public:
  /// `capacity` steps; 0 keeps none.
  explicit RingSink(int64_t capacity) : capacity(capacity) {}

  void record(const StepRow &row) override;
  /// The rows kept, oldest first.
  std::vector<StepRow> snapshot() const;

private:
  const int64_t capacity;
  mutable std::mutex mutex;
  std::vector<StepRow> rows;
  int64_t next = 0; ///< the place of the oldest row once full
};

/// Builds the row of the step that runs. One thread at a time.
class StepRecorder {
public:
  /// Where times come from (null: the machine), and who is told what ran when
  /// (null: nobody). Both outlive the recorder or the next call.
  void setClock(Clock *newClock) { clock = newClock; }
  void setTrace(TraceRecorder *newTrace) { trace = newTrace; }

  /// Starts a row, keeping the memory of the last one.
  void begin(int64_t step, int32_t entry, int32_t variant, int64_t rows,
             const std::vector<int64_t> &layers, const moira_plan *plans);
  /// Charges the time since the last call to where it was spent, and what
  /// follows to `part` of `layer`; -1: outside of layers. Returns false and
  /// changes nothing where the entry has no such layer or part.
  [[nodiscard]] bool enter(int64_t layer, int64_t part);
  /// Adds one routing to a layer's row. Returns false where the entry has no
  /// such layer, or has had another number of experts there.
  [[nodiscard]] bool loads(int64_t layer, int64_t experts,
                           const int32_t *counts, const int32_t *sizes);
  /// Charges what follows to the exchange of a layer, -1 for the one that is
  /// charged now, and returns where time went before. No failure: an unknown
  /// layer counts as -1.
  double *enterExchange(int64_t layer) {
    return enterPart(layer, MOIRA_PART_EXCHANGE);
  }
  void leaveExchange(double *before) { leavePart(before); }
  /// The same of any part.
  double *enterPart(int64_t layer, int64_t part);
  void leavePart(double *before);
  /// Adds the rows of all ranks to a layer's row, [ranks, experts].
  void matrix(int64_t layer, int64_t experts, int64_t ranks,
              const int32_t *rows);
  /// What the layer at a place in the entry runs with, and why.
  void planned(size_t place, const std::vector<int32_t> &shadows,
               double predicted, const char *reason);
  /// The layer runs with another degree and exchange than it began with.
  void replanned(size_t place, const moira_plan &plan);
  /// Adds bytes to a layer's row.
  void moved(int64_t layer, int64_t bytesSent, int64_t bytesReceived);
  /// Says what the step had a device do.
  void device(int64_t launches, int64_t waits, double seconds,
              int64_t allocations) {
    row.deviceAllocations = allocations;
    row.launches = launches;
    row.waits = waits;
    row.deviceSeconds = seconds;
  }
  /// Ends the row, which stays valid until the next `begin`.
  const StepRow &end(int32_t error);

private:
  LayerRow *find(int64_t layer);
  double now() const { return clock ? clock->seconds() : realSeconds(); }
  void charge();
  std::string currentName() const;

  Clock *clock = nullptr;
  TraceRecorder *trace = nullptr;

  StepRow row;
  double started = 0;
  double since = 0;
  double *current = nullptr;
  LayerRow *inside = nullptr; ///< the layer that is charged; null: none
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_STATISTICS_STATISTICS_H
