// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_RANKSESSIONS_H
#define MOIRA_TOOLS_MOIRA_RUN_RANKSESSIONS_H

#include "Inputs.h"
#include "support/Grid.h"
#include "support/Progress.h"

#include "collective/ExchangeLayout.h"
#include "session/FileTensors.h"
#include "session/Session.h"

#include <mutex>

namespace moira::tools {

/// What one rank did in a run. Travels between processes as it is.
struct RankFigures {
  int64_t tokens = 0;
  int64_t rowsReceived = 0; ///< at its experts, its own among them
  std::array<runtime::TrafficCount, runtime::trafficKinds> traffic{};
  int64_t weightBytes = 0; ///< packed
  int64_t readBytes = 0;   ///< of checkpoints
  int64_t peakBytes = 0;
  double seconds = 0;         ///< of the last step
  double exchangeSeconds = 0; ///< of it, waiting for transfers
};

/// Gradients of a run: of the inputs that have some, and of parameters under
/// the names that a checkpoint has, each with "d_" before it.
struct Gradients {
  std::vector<runtime::TensorSpec> specs;
  std::vector<runtime::ResultTensor> inputs;
  runtime::FileTensors parameters;
};

/// The names of the gradients of inputs, in the order of the way back.
std::vector<runtime::TensorSpec>
inputGradients(const runtime::EntrySpec &entry,
               const runtime::EntrySpec &backward);

/// Which rows came to a rank's experts in a step, copies >= 1, from the counts
/// of all ranks and the step's table (null: identity).
Status layArrivals(const runtime::LayerRow &row,
                   const runtime::LayerSpec &layer, int32_t copies,
                   const int32_t *table, const runtime::RankGroups &ranks,
                   runtime::ExchangeLayout &layout);

/// The sessions of a program on the ranks of this process: one step is a step
/// of all of them.
class RankSessions {
public:
  static llvm::Expected<std::unique_ptr<RankSessions>>
  create(std::shared_ptr<const runtime::Program> program,
         const RunOptions &options, const Grid &grid, Progress &progress);

  /// Makes the next steps run with these.
  llvm::Error setVariant(const std::string &entry, const std::string &variant);
  llvm::Error setPlan(const runtime::PlanOptions &plan,
                      const ShadowChoice &shadows);
  /// Moves experts after each so many steps of an entry.
  llvm::Error setRebalance(const std::string &entry, int64_t steps);
  /// Makes them decide, where the options say so.
  llvm::Error adapt(const std::string &entry, const RunOptions &options);
  /// After the last step: writes what was learned and what steps took.
  llvm::Error finishAdapting(const std::string &entry) const;
  /// Why the last step of this process's first rank ran with its plans.
  const runtime::Session &first() const { return *sessions.front(); }
  /// The peak of this process's ranks together, weights included.
  llvm::Expected<int64_t> predictPeak(const std::string &entry,
                                      const Inputs &inputs) const;
  llvm::Error bind(const RunOptions &options);
  /// Steps one after the other; the time of each is that of the slowest rank.
  llvm::Expected<std::vector<double>> run(const std::string &entry,
                                          const Inputs &inputs, int64_t steps);
  /// The same with a way back after each step; the times of those alone.
  const std::vector<double> &backwardTimes() const { return backTimes; }

  /// Of the last step: what all ranks did together, by rank, and the results
  /// of all tokens in the order of ranks. Collective among processes.
  llvm::Expected<runtime::StepRow> sumStep() const;
  llvm::Expected<std::vector<RankFigures>>
  gatherFigures(const runtime::EntrySpec &entry, const Inputs &inputs) const;
  llvm::Expected<std::vector<runtime::ResultTensor>>
  joinResults(const runtime::EntrySpec &entry, const Inputs &inputs);
  llvm::Expected<Gradients> joinGradients(const runtime::EntrySpec &entry,
                                          const runtime::EntrySpec &backward,
                                          const Inputs &inputs);
  /// Memory of this process's ranks together.
  runtime::MemoryFigures memory() const;
  /// Seconds of all steps by part, of this process's ranks together.
  const runtime::PartSeconds &parts() const { return seconds; }
  void forgetParts() { seconds.fill(0); }
  /// The next step may have other tokens than the last one.
  void forgetGradients() {
    for (std::vector<runtime::ResultTensor> &list : gradients)
      list.clear();
  }
  int threads() const { return sessions.front()->threads(); }

private:
  RankSessions(const Grid &grid, const RunOptions &options)
      : grid(grid), choices(options.adapt), grad(options.grad) {}

  size_t placeOf(int rank) const { return rank - grid.local().front(); }
  /// The last step; with a way back, that of the forward pass.
  runtime::StepRow lastStep(int rank) const {
    return sessions[placeOf(rank)]->statistics().front();
  }
  Status runOnce(size_t place, const std::string &entry,
                 const std::vector<runtime::TensorView> &views);
  llvm::Expected<int64_t> countRowsPerToken(
      size_t index,
      const std::vector<std::vector<runtime::ResultTensor>> &parts,
      const Inputs &inputs);
  llvm::Expected<runtime::ResultTensor>
  joinRows(const runtime::TensorSpec &spec, size_t index,
           std::vector<std::vector<runtime::ResultTensor>> &parts,
           const Inputs &inputs);
  int64_t countRows(const runtime::EntrySpec &entry, int rank) const;

  const Grid &grid;
  const AdaptChoices &choices;
  std::shared_ptr<runtime::JsonLinesFile> statistics; ///< null: none
  int64_t stepsRun = 0;
  std::vector<std::unique_ptr<runtime::Session>> sessions;
  const bool grad;
  std::vector<std::vector<runtime::ResultTensor>> results;   ///< by session
  std::vector<std::vector<runtime::ResultTensor>> gradients; ///< likewise
  std::vector<double> backTimes;
  runtime::PlanOptions plan; ///< without shadows
  ShadowChoice shadows;
  int64_t rebalance = 0;
  std::vector<int64_t> stepsDone; ///< by session
  runtime::PartSeconds seconds{};
  mutable std::mutex mutex; ///< of `seconds`
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_RANKSESSIONS_H
