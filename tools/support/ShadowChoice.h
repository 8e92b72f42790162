// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_SUPPORT_SHADOWCHOICE_H
#define MOIRA_TOOLS_SUPPORT_SHADOWCHOICE_H

#include "session/Session.h"

#include "llvm/Support/Error.h"

namespace moira::tools {

/// Which experts all ranks hold, of each layer: these, or in each step those
/// with most rows in the step before.
struct ShadowChoice {
  std::vector<int32_t> experts;
  int hottest = 0;
};

/// Reads the value of --shadows: "0,3", "hottest:2" or nothing.
llvm::Expected<ShadowChoice> parseShadows(llvm::StringRef text);

/// Sets a plan with the choice's experts. `last` is the step before, whose
/// layers have the rows of all ranks for all experts; without one, null,
/// weights are to stand where the plan's table says.
Status setShadows(runtime::Session &session, runtime::PlanOptions plan,
                  const ShadowChoice &choice, const runtime::StepRow *last);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_SHADOWCHOICE_H
