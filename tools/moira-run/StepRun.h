// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_STEPRUN_H
#define MOIRA_TOOLS_MOIRA_RUN_STEPRUN_H

#include "LoadedProgram.h"
#include "RankSessions.h"
#include "Report.h"

namespace moira::tools {

/// --steps: runs each with tokens, numbers and loads of its own, shows them as
/// they end, draws them where that was asked for, and puts them and their times
/// into the report.
llvm::Error runDifferentSteps(const RunOptions &options,
                              const LoadedProgram &program, const Grid &grid,
                              RankSessions &sessions, Inputs &inputs,
                              Report &report);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_STEPRUN_H
