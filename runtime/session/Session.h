// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One user of a program: parameters, memory, threads, statistics.

#ifndef MOIRA_RUNTIME_SESSION_SESSION_H
#define MOIRA_RUNTIME_SESSION_SESSION_H

#include "base/Log.h"
#include "base/Memory.h"
#include "collective/Communicator.h"
#include "session/ParameterSource.h"
#include "session/Program.h"
#include "statistics/Statistics.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moira::runtime {

class Device;

struct SessionOptions {
  int threads = 0;           ///< 0: one per processor this process may use
  int64_t memoryLimit = 0;   ///< bytes; 0: none
  int statisticsSteps = 256; ///< rows of steps kept
  /// Who else is told of each step.
  std::vector<std::shared_ptr<StatisticsSink>> sinks{};
  LogLevel logLevel = LogLevel::Quiet;
  /// Fills all memory with poison (NaN) before generated code gets it: for
  /// tests that no result depends on what nobody wrote.
  bool poisonMemory = false;
  /// The ranks that steps run with; null: this one alone. Of one communicator
  /// one session at a time runs a step.
  std::shared_ptr<Communicator> communicator;
  /// The GPU that a program for one runs on.
  std::shared_ptr<Device> device;
  /// Called while parameters are bound, one call at a time, from any thread.
  std::function<void(int64_t doneBytes, int64_t allBytes)> progress;
};

/// The run-time integers of a layer.
struct PlanOptions {
  int32_t degree = 1;   ///< pipeline chunks
  int32_t exchange = 0; ///< 0 linear, 1 hierarchical
  /// Which unit of weights stands where, [ranks, slots]; it lasts until another
  /// is set. Empty: units in their order, as many on each rank, spare slots
  /// free (LayerShape::evenTable).
  std::vector<int32_t> slotTable{};
  /// Experts, each once, that all ranks hold in the next steps: their weights
  /// are sent into slots that the table leaves free (docs/placement.md).
  std::vector<int32_t> shadows{};
};

/// A result of a step. Before the call, `data` says where it goes: null, and
/// the runtime allocates; else the caller's own memory of `shape`, which must
/// be what the step produces.
struct ResultTensor {
  DataType dtype = DataType::F32;
  Shape shape;
  void *data = nullptr;
  std::shared_ptr<Storage> storage; ///< owner of what the runtime allocated
  bool onDevice =
      false; ///< `data` is, or shall be, memory of the session's GPU
};

class FileTensors;
class Residuals;
struct AdaptOptions;
struct RebalanceOptions;
struct Candidate;
struct Explanation;
struct TrainingState;
struct UpdateOptions;

/// Any thread may call any method; calls on one session run one at a time.
/// Sessions are independent of each other and share the machine's threads.
class Session {
public:
  /// Parameters that came packed with the program are bound at once.
  static Result<std::unique_ptr<Session>>
  create(std::shared_ptr<const Program> program,
         const SessionOptions &options = {});
  ~Session();

  const Program &program() const;
  const Manifest &manifest() const { return program().manifest(); }
  int threads() const;

  /// Packs every parameter of this name from memory, which is not needed
  /// afterwards. For a parameter of several slices, `name` with `{}` (or the
  /// plain name) takes the stacked tensor, and the name of a slice that slice
  /// alone. Binding again replaces.
  Status bind(const std::string &name, const TensorView &tensor);
  /// Packs every parameter that is not bound yet.
  Status bindSource(ParameterSource &source);
  /// Fills every parameter that is not bound yet with values uniform in
  /// +-1/sqrt(fan in), where fan in is the last dim of the logical shape;
  /// integers with zeros. A value depends on the seed, the parameter's name
  /// and its place in the file's tensor, on nothing else.
  Status bindRandom(uint64_t seed);
  /// Bytes of sources and tensors that binding has read so far.
  int64_t readBytes() const;
  /// Names of parameters that are not (wholly) bound, in table order.
  std::vector<std::string> unbound() const;

  /// Makes an entry use this variant from the next step on; an empty name
  /// goes back to the choice by rows.
  Status setVariant(const std::string &entry, const std::string &variant);
  /// What all layers run with from the next step on. Parameters in slots whose
  /// unit changes with the slot table are no longer bound; nothing else about a
  /// plan touches parameters. All ranks set the same.
  Status setPlan(const PlanOptions &plan);
  /// The same for one layer, by its index in the manifest.
  Status setPlan(int64_t layer, const PlanOptions &plan);
  /// Gives a layer, and those that share parameters with it, another lasting
  /// table and brings what slots hold to where it has them: weights, states of
  /// the optimizer, kept gradients. Nothing is bound again; shadows end, the
  /// rest of the plan stays. Handles of earlier forward steps are refused where
  /// something moved. On failure while bytes move no parameter is bound and the
  /// optimizer begins again. Of several ranks collective, with equal tables.
  Status moveWeights(int64_t layer, const std::vector<int32_t> &slotTable);
  /// Where a layer's experts stand for long, [ranks, slots]; empty where the
  /// session has no such layer on several ranks.
  std::vector<int32_t> slotTable(int64_t layer) const;
  /// Counts the loads of an entry's steps from now on, for `rebalance`. Again:
  /// from the beginning.
  Status countLoads(const std::string &entry, const RebalanceOptions &options);
  /// Moves experts of the entry's layers to where the loads since the last call
  /// want them (FlexMoE's expand, shrink, migrate), as `moveWeights` does.
  /// Returns how many layers have moved. Of several ranks collective.
  Result<int64_t> rebalance(const std::string &entry);

  /// Runs one step. `results` may be empty (all allocated) or have one
  /// element per result. On failure no result is allocated, the content of
  /// the caller's memory is undefined, and the session stays usable.
  Status invoke(const std::string &entry, const std::vector<TensorView> &inputs,
                std::vector<ResultTensor> &results);

  //===--- Plans that follow the loads (docs/selection.md) ----------------===//

  /// Makes the session decide, from the next step on, which variant an entry
  /// for several ranks runs and what its layers run with, from what the ranks
  /// tell each other in each step. All ranks do the same with the same options.
  /// What `setPlan` says of slot tables stays; the rest waits until
  /// `stopAdapting`. What was learned before is forgotten; after a failure the
  /// entry does not adapt.
  Status adapt(const std::string &entry, const AdaptOptions &options);
  Status stopAdapting(const std::string &entry);
  // Of an entry that adapts:
  /// How many tokens all ranks together bring to the next step, the same number
  /// on all ranks: whoever makes batches knows, and plans need not lag behind
  /// sizes that change. -1: not known.
  Status announceTokens(const std::string &entry, int64_t tokens);
  /// From the next step on all layers run this candidate, named as
  /// Candidate::describe does; empty: they are decided again. On all ranks
  /// alike.
  Status forceCandidate(const std::string &entry, const std::string &candidate);
  /// This rank may not run a variant, or may again. No rank runs it from the
  /// step after the next one on.
  Status forbidVariant(const std::string &entry, const std::string &variant,
                       bool forbidden);
  /// What was learned, as JSON, and back, before a step or between steps, on
  /// all ranks alike.
  Result<std::string> saveLearned(const std::string &entry) const;
  Status loadLearned(const std::string &entry, const std::string &json);
  /// All plans that there are to choose from, the same in all layers.
  Result<std::vector<Candidate>> candidates(const std::string &entry) const;
  /// Of the last decision, by layer, and the same as one line of JSON.
  Result<std::vector<Explanation>> explain(const std::string &entry) const;
  Result<std::string> explainJson(const std::string &entry) const;

  //===--- Training (docs/gradients.md) ----------------------------------===//

  /// Runs one step of an entry that has a way back. `results` are the program's
  /// own, as in `invoke`. `residuals` receives what the way back needs: any
  /// number of handles may be alive, each be used any number of times and end
  /// at any time, also after the session. It goes with the plan and the
  /// parameters of this step; what is set later is for later steps.
  Status forward(const std::string &entry,
                 const std::vector<TensorView> &inputs,
                 std::vector<ResultTensor> &results,
                 std::shared_ptr<const Residuals> &residuals);
  /// Computes gradients from those of the results of a float type, one for
  /// each. `results` are those of the way back: gradients of inputs of a float
  /// type, then of parameters, as EntrySpec::results says. Fails where the
  /// handle is another session's, or parameters or slots have changed since.
  Status backward(const Residuals &residuals,
                  const std::vector<TensorView> &resultGradients,
                  std::vector<ResultTensor> &results);
  /// The same, but gradients of parameters are added to those that the session
  /// keeps, in the order of the calls; `results` are those of inputs.
  Status accumulate(const Residuals &residuals,
                    const std::vector<TensorView> &resultGradients,
                    std::vector<ResultTensor> &results);
  /// Puts what this rank has of a parameter's gradient, a result of `backward`,
  /// where it stands in the checkpoint's tensors, whose names get `prefix`.
  /// What another rank puts as well is left to that one.
  void putGradient(const TensorSpec &result, const void *data,
                   FileTensors &tensors, const std::string &prefix) const;
  /// Makes the session take every parameter for changed, as after an update:
  /// for runs that time training and have no optimizer.
  void touchParameters();
  /// Forgets the gradients that the session keeps.
  void zeroGradients();
  /// The root of the sum of squares of all kept gradients, of all ranks. What
  /// several ranks or slots hold counts once. Of several ranks collective.
  Result<double> gradientNorm();
  /// Updates every parameter that has a gradient.
  Status update(const UpdateOptions &options);
  /// Updates so far with this rule.
  int64_t updates() const;

  /// Writes parameters, the optimizer's states and `state` into a folder that
  /// exists, as session/Checkpoint.h says; `sharded`: a file for each rank,
  /// else one for all. At any moment the folder holds a whole checkpoint, this
  /// one or the last. Of several ranks collective.
  Status saveCheckpoint(const std::string &folder, const TrainingState &state,
                        bool sharded);
  /// Takes everything from such a folder, written with any ranks and slots. On
  /// failure parameters may not be bound. Of several ranks collective.
  Result<TrainingState> restoreCheckpoint(const std::string &folder);

  /// The bytes that the session would hold at most during such a step: what
  /// it holds now, the workspace that the entry asks for, and results whose
  /// dynamic dims are taken to be the rows of the first input. Only types and
  /// shapes of `inputs` are read. With `backward`, of a step and its way back.
  Result<int64_t> predictPeak(const std::string &entry,
                              const std::vector<TensorView> &inputs,
                              bool backward = false);

  MemoryFigures memory() const;
  /// The last steps, oldest first.
  std::vector<StepRow> statistics() const;

  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_SESSION_H
