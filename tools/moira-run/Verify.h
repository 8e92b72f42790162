// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_VERIFY_H
#define MOIRA_TOOLS_MOIRA_RUN_VERIFY_H

#include "Inputs.h"
#include "LoadedProgram.h"
#include "RankSessions.h"
#include "support/Compare.h"
#include "support/Progress.h"

#include "session/Session.h"

namespace moira::tools {

/// The outcome of --verify.
struct Verification {
  int64_t rows = 0;    ///< that were compared
  int64_t allRows = 0; ///< of the run
  std::string note;    ///< what was not done as asked, and why
  Choices choices;
  Comparison values;
  double bound = 0; ///< on values.maxRelative
  double seconds = 0;

  bool passed() const { return choices.wrong == 0 && values.beyond == 0; }
};

/// Compares the results of a run with the oracle: the decomposed program on the
/// same inputs and weights. First the run's choices of experts must be
/// admissible; then the oracle runs with these choices and its values are
/// compared, and so are `gradients` (null: none were computed) with those of
/// its own way back. `results` are all the results of the run.
llvm::Expected<Verification>
verify(const LoadedProgram &program, const RunOptions &options,
       const Inputs &inputs, const std::vector<runtime::ResultTensor> &results,
       const Gradients *gradients, Progress &progress);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_VERIFY_H
