// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run writes while it goes on, and at its end.

#ifndef MOIRA_TOOLS_MOIRA_TRAIN_LOG_H
#define MOIRA_TOOLS_MOIRA_TRAIN_LOG_H

#include "Pictures.h"
#include "Trainer.h"

#include "llvm/Support/raw_ostream.h"

namespace moira::tools {

/// A line of JSON per step, and the pictures.
class Log {
public:
  explicit Log(const TrainOptions &options) : options(options) {}

  /// Opens the file of lines. A run that goes on keeps those before `first`.
  llvm::Error open(int64_t first);
  llvm::Error add(const TrainStep &step, std::optional<double> evaluation);
  llvm::Error finish();

private:
  std::string keep(llvm::StringRef text, int64_t first);

  const TrainOptions &options;
  std::unique_ptr<llvm::raw_fd_ostream> stream;
  Curve training, evaluations;
  std::vector<std::vector<std::vector<int64_t>>> loads; ///< by step
  int64_t firstStep = -1;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_TRAIN_LOG_H
