// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pictures of a run, as SVG.

#ifndef MOIRA_TOOLS_MOIRA_TRAIN_PICTURES_H
#define MOIRA_TOOLS_MOIRA_TRAIN_PICTURES_H

#include "support/Svg.h"

#include <string>
#include <vector>

namespace moira::tools {

using svg::Curve;

/// (step, loss) of all steps, and of evaluations.
std::string drawLosses(const Curve &training, const Curve &evaluation);

/// Rows by step, layer and expert. One strip per layer, an expert to a line:
/// the darker, the more of the layer's rows it got; white where it got none.
std::string
drawLoads(const std::vector<std::vector<std::vector<int64_t>>> &loads,
          int64_t firstStep);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_TRAIN_PICTURES_H
