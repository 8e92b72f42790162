// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// A picture of steps that differ: what they took, under which plans, and the
// loads.

#ifndef MOIRA_TOOLS_MOIRA_RUN_STEPPICTURE_H
#define MOIRA_TOOLS_MOIRA_RUN_STEPPICTURE_H

#include "StepTable.h"

namespace moira::tools {

/// As SVG, from above: the time of every plan as a thin line, of the one that
/// is best over all steps without shadows, and of the run; the plans that ran,
/// as a strip of colours; shares of the first layer's experts. Needs the times
/// of all plans.
std::string drawSteps(const StepTable &table);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_STEPPICTURE_H
