// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's side of moira/abi.h: what stands behind a moira_ctx while
// generated code runs.

#ifndef MOIRA_RUNTIME_SESSION_STEPCONTEXT_H
#define MOIRA_RUNTIME_SESSION_STEPCONTEXT_H

#include "base/Arena.h"
#include "base/Pool.h"
#include "collective/Communicator.h"
#include "session/ComputeCharges.h"
#include "session/Manifest.h"
#include "session/Session.h"
#include "statistics/Statistics.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace moira::runtime {

class Adaptation;
class DeviceStep;
class ResidualPool;
class Shadows;

/// A context and its workers' arenas. Used again for every step. Generated
/// code calls `alloc`, `mark`, `release`, `fail` from any worker, the rest
/// from the thread of the step only.
class StepContext {
public:
  /// `pool` may be null: one worker, loops run on the caller. It must outlive
  /// the context.
  StepContext(Pool *pool, std::shared_ptr<MemoryAccount> account);

  /// What generated code gets; its `session` is this object.
  moira_ctx *context() { return &ctx; }
  /// That of worker 0 is the device's where there is one.
  Arena &arena(int64_t worker);
  const Arena &arena(int64_t worker) const {
    return const_cast<StepContext *>(this)->arena(worker);
  }
  /// The GPU that the next steps run on; null: the processor. It outlives them.
  void setDevice(DeviceStep *device);
  DeviceStep *device() const { return gpu; }
  int64_t workers() const { return static_cast<int64_t>(arenas.size()); }
  StepRecorder &recorder() { return steps; }
  /// Compute time of the steps on a calibrated virtual clock.
  ComputeCharges &charges() { return computed; }

  /// The ranks that the next steps run with; null: this one alone.
  void setCommunicator(std::shared_ptr<Communicator> communicator);
  /// What transfers go through: the communicator, or copies within this rank.
  Communicator &link();
  /// What this rank says of itself in each layer of the next step; `plan` and
  /// `layer` are filled in there, and `seconds` from those of the layers, which
  /// stay in place. `given` is told what all ranks said and may change `plans`;
  /// null: nobody is.
  void setRecord(const RankRecord &mine, const std::vector<double> &seconds,
                 Adaptation *given, std::vector<moira_plan> &plans) {
    record = mine;
    layerSeconds = &seconds;
    adaptation = given;
    layerPlans = &plans;
  }

  /// What brings shadows to the layers of the next steps; null: nobody.
  void setShadows(Shadows *given) { shadows = given; }

  /// Where results from index `from` on come from in the next step; null: all
  /// are allocated.
  void setPool(ResidualPool *given, int64_t from) {
    residuals = given;
    pooledFrom = from;
  }

  /// Clears the error and says where results go: `results` has one element
  /// per result of `entry`. Both stay in place until `finish`.
  void begin(const EntrySpec *entry, std::vector<ResultTensor> *results);
  /// Says where results go after `begin` without that: memory of the step may
  /// be allocated first.
  void resume(const EntrySpec *entry, std::vector<ResultTensor> *results);
  /// Ends what the step allocated in arenas, and returns its error.
  Status finish();

  /// Sets the sticky error unless one is set.
  void fail(int32_t code, std::string message);
  bool hasFailed() const {
    return __atomic_load_n(&ctx.error, __ATOMIC_RELAXED) != MOIRA_OK;
  }

  StepContext(const StepContext &) = delete;
  StepContext &operator=(const StepContext &) = delete;

private:
  friend struct Api;

  void *allocate(int64_t worker, int64_t bytes);
  void *result(int64_t index, int64_t rank, const int64_t *shape);
  Status placeResult(int64_t index, Shape shape);
  void parallelFor(moira_body body, void *captures, int64_t n, int64_t cost);
  void runOnVirtualWorkers(VirtualClock &clock, int64_t n, int64_t cost,
                           const std::function<void(int64_t, int64_t)> &body);
  /// Runs `action`, which waits for other ranks, and charges the time to the
  /// exchange of the layer; -1: of the one that is charged now.
  template <typename Action> void waiting(int64_t layer, const Action &action) {
    double *before = steps.enterExchange(layer);
    action();
    steps.leaveExchange(before);
  }
  const moira_plan *planOf(const char *function, int64_t layer);
  /// Queues what a layer needs before any transfer of its own.
  void prepareLayer(int64_t layer);
  /// Whether transfers may use the step's memory now: waits for the device.
  bool settle(const char *function);
  void note(const char *function, const Status &status);
  void noteTravel(const moira_plan &plan, const moira_exchange &exchange);
  void adapt(size_t place, int64_t experts, const int32_t *matrix);
  void gatherCounts(int64_t layer, int64_t experts, const int32_t *counts,
                    int32_t *matrix);
  int64_t receiveSizes(const moira_exchange &exchange, int32_t *groups);
  int64_t receiveSizesOnDevice(const moira_plan &plan,
                               const moira_exchange &exchange, int32_t *groups);
  void mergeRows(const moira_exchange &exchange);
  /// Charges the product of a chunk whose results leave.
  void chargeProduct(const moira_plan &plan, const moira_exchange &exchange);
  bool checkWorker(int64_t worker);
  bool checkNotInBody(const char *function);

  moira_ctx ctx{};
  Pool *pool;
  std::shared_ptr<MemoryAccount> account;
  std::vector<std::unique_ptr<Arena>> arenas;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Communicator> alone; ///< made when first needed
  RankRecord record;
  const std::vector<double> *layerSeconds = nullptr;
  Adaptation *adaptation = nullptr;
  std::vector<moira_plan> *layerPlans = nullptr;
  Shadows *shadows = nullptr;
  StepRecorder steps;
  ComputeCharges computed{steps};
  std::vector<int32_t> chunkRows; ///< of the product that is charged
  const EntrySpec *entry = nullptr;
  std::vector<ResultTensor> *results = nullptr;
  DeviceStep *gpu = nullptr;
  ResidualPool *residuals = nullptr;
  int64_t pooledFrom = 0;
  std::vector<bool> made; ///< results that the step has asked for
  std::string message;    ///< of the error; written by the thread that set it
};

/// A hash of a plan as ranks compare it: of variants that differ in their rows
/// alone the first one's. `entry` may be null.
uint64_t hashPlanOf(const EntrySpec *entry, moira_plan plan, int ranks);

/// What moira_ctx.api points to.
const moira_api &apiTable();

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_STEPCONTEXT_H
