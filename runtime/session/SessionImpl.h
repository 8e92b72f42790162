// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a session is made of: for the files that implement it.

#ifndef MOIRA_RUNTIME_SESSION_SESSIONIMPL_H
#define MOIRA_RUNTIME_SESSION_SESSIONIMPL_H

#include "session/Adaptation.h"
#include "session/Checkpoint.h"
#include "session/DeviceStep.h"
#include "session/GradientTable.h"
#include "session/Optimizer.h"
#include "session/ParameterTable.h"
#include "session/Rebalancing.h"
#include "session/Residuals.h"
#include "session/Session.h"
#include "session/Shadows.h"
#include "session/SlotMoves.h"
#include "session/StepContext.h"
#include "session/StepPlan.h"

#include <limits>
#include <mutex>

namespace moira::runtime {

struct Session::Impl {
  Impl(std::shared_ptr<const Program> program, const SessionOptions &options);

  // Session.cpp: checks; SessionSteps.cpp: steps.
  Status openDevice(std::shared_ptr<Device> given);
  Result<int> findEntry(const std::string &name) const;
  Status checkBound() const;
  Status checkRanks(const EntrySpec &spec) const;
  RankRecord describeRank(int entry, const std::vector<TensorView> &inputs);
  void noteTraffic();
  /// Runs `action` as a step that all ranks end together.
  template <typename Action> Status together(const Action &action) {
    if (!communicator)
      return action();
    Status status = communicator->beginStep();
    try {
      if (status.ok())
        status = action();
    } catch (const std::exception &error) {
      status = Status(MOIRA_OUT_OF_MEMORY, error.what());
    }
    status = communicator->endStep(status);
    // Ranks may have got different parts of what the step has sent.
    if (!status.ok())
      shadows.forget();
    return status;
  }
  Status runStep(int entry, const std::vector<TensorView> &inputs,
                 std::vector<ResultTensor> &results, StepPlan &given);

  Status runCode(int entry, const StepPlan &given,
                 const std::vector<TensorView> &inputs,
                 const std::vector<ResultTensor> &results,
                 const std::vector<moira_buffer> &buffers);

  // SessionMemory.cpp.
  Result<int64_t> workspace(int entry, int variant,
                            const std::vector<moira_buffer> &inputs);
  int64_t peakWith(int64_t workspace, int64_t resultBytes) const;
  struct BackwardBounds {
    std::vector<TensorView> inputs;
    std::vector<int64_t> numbers;       ///< values of inputs of rank 0
    int64_t results = 0, residuals = 0; ///< bytes
  };
  BackwardBounds boundBackward(int entry, const StepPlan &given,
                               const std::vector<TensorView> &inputs);
  Result<int64_t> predictBackward(int entry, const StepPlan &given,
                                  const std::vector<TensorView> &inputs,
                                  int64_t forwardWorkspace);

  // SessionPlans.cpp.
  /// What the next step of an entry runs with, valid until the next call.
  StepPlan &choosePlan(int entry, const std::vector<TensorView> &inputs);
  void preparePlans(const EntrySpec &spec, const StepPlan &given);
  Status setPlan(std::optional<int64_t> layer, const PlanOptions &plan);

  // SessionMoves.cpp.
  Status moveWeights(int64_t layer, const std::vector<int32_t> &slotTable);
  Status agree(uint64_t mine, const char *expected);
  Status agreeOnMove(const std::vector<std::vector<int32_t>> &tables);
  Status agreeOnProposal(int entry, int64_t layer,
                         const std::optional<std::vector<int32_t>> &table);
  Result<std::vector<SlotMove>> movesOf(int row,
                                        const std::vector<int32_t> &after);
  Status checkStaging(const std::vector<std::vector<int32_t>> &tables);
  std::vector<std::pair<void *, int64_t>> keptOf(int row);
  Status moveRow(int row, const std::vector<int32_t> &after);

  // SessionAdapt.cpp.
  Status adaptPlan(int entry, StepPlan &given);
  Status followAdaptation(int entry, StepPlan &given);
  void notePlans(int entry, const StepPlan &given);
  const std::vector<double> &sumLayers(int entry);
  void noteEnd(int entry, const Status &status, int64_t number, bool more);
  void noteBackEnd(const Residuals &residuals);
  std::vector<LayerRun> ranWith(const StepPlan &given) const;
  std::vector<int32_t> lastingTable(int64_t layer) const;
  Status checkAdaptations(const LayerPlans &next) const;
  Status moveAdaptations();

  // SessionTraining.cpp: forward, backward, updates.
  Result<int> findBackward(int entry) const;
  Status checkResiduals(const Residuals &residuals) const;
  Status agreeOnBackward(int entry, const StepPlan &given);
  StepPlan &planBackward(const Residuals &residuals);
  Status checkGradients(const Residuals &residuals, const EntrySpec &back,
                        const std::vector<TensorView> &inputs) const;
  /// Collects what a way back takes.
  Result<std::vector<TensorView>>
  backwardInputs(const Residuals &residuals,
                 const std::vector<TensorView> &resultGradients) const;
  Status runBackward(const Residuals &residuals,
                     const std::vector<TensorView> &resultGradients,
                     std::vector<ResultTensor> &results);
  Status runAccumulate(const Residuals &residuals,
                       const std::vector<TensorView> &resultGradients,
                       std::vector<ResultTensor> &results);
  GradientTable &gradients();
  void makeOptimizer() {
    if (!optimizer)
      optimizer = std::make_unique<Optimizer>(*program, pool, account);
  }

  // SessionCheckpoint.cpp.
  Status save(const std::string &folder, bool sharded, TrainingState state);
  Result<TrainingState> restore(const std::string &folder);
  /// A state of a row; the parameter itself for an empty name.
  Result<const void *> stateOf(int row, const std::string &state);
  const PackedLayout &layoutOf(int row) { return gradients().layout(row); }
  /// Parameters have been bound: copies of them are no longer theirs.
  void forgetMasters() {
    if (optimizer)
      optimizer->forgetMasters();
  }

  std::shared_ptr<const Program> program;
  const Manifest &manifest;
  Log log;
  std::shared_ptr<MemoryAccount> account;
  Pool pool;
  std::shared_ptr<Communicator> communicator; ///< null for one rank
  std::unique_ptr<DeviceStep> device;         ///< null: the processor
  StepContext step;
  ParameterTable parameters;
  RingSink ring;
  std::vector<std::shared_ptr<StatisticsSink>> sinks;
  std::vector<int> forcedVariant; ///< by entry; -1: by rows
  LayerPlans layerPlans;
  Shadows shadows;
  StepPlan stepPlan;           ///< of the last choice; keeps its memory
  std::vector<int64_t> layers; ///< of the entry that runs
  std::vector<moira_plan> plans;
  int64_t stepCount = 0;
  // By entry: seconds of each layer in its last step, with the way back where
  // that has been, and the number of that step; -1: it is whole.
  std::vector<std::vector<double>> layerSeconds;
  std::vector<int64_t> timedSteps;
  std::vector<double> rowSeconds;
  std::vector<std::pair<int64_t, double>> ranLayers;      ///< of the last row
  std::vector<std::unique_ptr<Adaptation>> adaptations;   ///< by entry, or null
  std::vector<std::unique_ptr<Rebalancing>> rebalancings; ///< by entry
  uint64_t programHash = 0;
  std::shared_ptr<const SessionIdentity> identity =
      std::make_shared<SessionIdentity>();
  std::shared_ptr<ResidualPool> residualPool;
  std::unique_ptr<GradientTable> gradientTable; ///< made when first needed
  std::unique_ptr<Optimizer> optimizer;         ///< likewise
  mutable std::mutex mutex;
};

/// Checks tensors against a signature; `what` is "input" or "gradient of".
Status checkInputs(const EntrySpec &spec, const std::vector<TensorView> &inputs,
                   bool needData);
/// Memory of a GPU is for sessions that run on it, and numbers are read by the
/// host.
Status checkPlaces(bool hasDevice, const EntrySpec &spec,
                   const std::vector<TensorView> &inputs,
                   const std::vector<ResultTensor> &results);
/// Makes `results` as many as `count` where it is empty, and checks the
/// caller's own.
Status checkResults(const EntrySpec &spec, int64_t count,
                    std::vector<ResultTensor> &results);
/// Bytes of results [first, last) that the runtime allocates. A dynamic dim
/// counts as `rows`.
int64_t predictResults(const EntrySpec &spec, int64_t first, int64_t last,
                       int64_t rows, const std::vector<ResultTensor> &results);
std::vector<moira_buffer> toBuffers(const std::vector<TensorView> &inputs);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_SESSIONIMPL_H
