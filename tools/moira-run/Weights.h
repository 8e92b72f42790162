// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_WEIGHTS_H
#define MOIRA_TOOLS_MOIRA_RUN_WEIGHTS_H

#include "Options.h"

#include "session/Session.h"

namespace moira::tools {

/// Binds all parameters: from the checkpoint, or random. Two programs with the
/// same parameters get the same values, whatever their layouts.
Status bindWeights(runtime::Session &session, const RunOptions &options);

/// Bytes of a program's packed parameters.
int64_t weightBytes(const runtime::Manifest &manifest);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_WEIGHTS_H
