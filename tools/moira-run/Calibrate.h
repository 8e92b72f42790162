// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --calibrate: what this machine takes for the parts of the program's layer.

#ifndef MOIRA_TOOLS_MOIRA_RUN_CALIBRATE_H
#define MOIRA_TOOLS_MOIRA_RUN_CALIBRATE_H

#include "LoadedProgram.h"
#include "RankSessions.h"

#include "cost/Calibration.h"

namespace moira::tools {

/// A calibration, and what it was made from.
struct Measurements {
  runtime::Calibration calibration;
  std::vector<runtime::CalibrationPoint> points;
};

/// Runs the program, whose weights are bound, with fewer and fewer tokens, and
/// sends messages between two ranks of a node and of two nodes: at most
/// Calibration::maxPoints in all. Of several repetitions the fastest counts.
/// Collective among processes; the first rank's times are taken.
llvm::Expected<Measurements> calibrate(const LoadedProgram &program,
                                       const RunOptions &options,
                                       const Grid &grid,
                                       RankSessions &sessions);

/// What was measured, and how well it fits.
void printMeasurements(const Measurements &measured, llvm::raw_ostream &stream);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_CALIBRATE_H
