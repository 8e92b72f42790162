// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_TRAIN_TRAINER_H
#define MOIRA_TOOLS_MOIRA_TRAIN_TRAINER_H

#include "Batches.h"
#include "Options.h"

#include "session/Program.h"
#include "session/Session.h"
#include "support/Grid.h"

namespace moira::tools {

/// What one step of training gave.
struct TrainStep {
  int64_t step = 0;
  double loss = 0;
  std::vector<double> results; ///< the program's scalar results, the loss first
  double norm = -1;            ///< of all gradients; -1: not computed
  double rate = 0;             ///< learning rate
  double seconds = 0;
  std::string plan; ///< what it ran with, where plans change
  std::vector<std::vector<int64_t>> loads; ///< rows by layer and expert
};

/// A program with its sessions, one for each rank of this process.
class Trainer {
public:
  static llvm::Expected<std::unique_ptr<Trainer>>
  create(std::shared_ptr<const runtime::Program> program,
         const TrainOptions &options, const Grid &grid);

  /// Tokens of a sequence.
  int64_t length() const { return sequenceLength; }
  /// Weights: from a checkpoint, or random.
  llvm::Error bind();
  /// One update, from `accumulate` batches that begin at sequence
  /// step * accumulate * batch.
  llvm::Expected<TrainStep> step(int64_t step, const Batches &batches);
  /// The mean loss of sequences that are not trained on.
  llvm::Expected<double> evaluate(const Batches &batches);

  /// Writes a checkpoint whose next step is `step`.
  llvm::Error save(int64_t step);
  /// Goes on from a checkpoint: the next step. Nothing where there is none.
  llvm::Expected<std::optional<int64_t>> resume();

  runtime::Session &session(int rank) {
    return *sessions[rank - grid.local().front()];
  }
  /// After the last step: writes what was learned and what steps took.
  llvm::Error finishAdapting() const;
  /// Why the last step ran with its plans.
  llvm::Expected<std::string> explain() const {
    return explainText(*sessions.front(), entry->name);
  }
  runtime::MemoryFigures memory() const;
  int64_t parameters() const;

private:
  Trainer(const TrainOptions &options, const Grid &grid)
      : options(options), grid(grid) {}
  llvm::Error checkSignature();
  /// Sets the plan of a step, and says which.
  Status setPlan();
  llvm::Expected<std::string> choosePlan(int64_t step);
  /// A rank's part of a batch, as inputs of the entry.
  std::vector<runtime::TensorView> inputsOf(const Batch &batch, int rank) const;
  std::string describePlan(const runtime::StepRow &row) const;
  Status runStep(int rank, const std::vector<Batch> &parts, TrainStep &result);
  Status readResults(const std::vector<runtime::ResultTensor> &results,
                     TrainStep &result) const;
  void addLoads(const runtime::StepRow &row, TrainStep &result) const;
  Status sumLoads(TrainStep &result) const;

  const TrainOptions &options;
  const Grid &grid;
  std::shared_ptr<const runtime::Program> program;
  const runtime::EntrySpec *entry = nullptr;
  int64_t sequenceLength = 0;
  std::vector<std::unique_ptr<runtime::Session>> sessions;
  std::shared_ptr<runtime::JsonLinesFile> statistics; ///< null: none
  runtime::PlanOptions plan;                          ///< without shadows
  std::vector<runtime::StepRow> lastRows; ///< of the last forward step, by rank
  /// Gradients of results: 1 for the loss, 0 for others.
  std::vector<std::vector<char>> seeds;
  std::vector<runtime::TensorView> resultGradients;
  int64_t seedNumber = 0, stepNumber = 0; ///< inputs of programs that have them
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_TRAIN_TRAINER_H
