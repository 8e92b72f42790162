// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are threads of one process.

#ifndef MOIRA_RUNTIME_COLLECTIVE_INPROCESS_H
#define MOIRA_RUNTIME_COLLECTIVE_INPROCESS_H

#include "collective/Transport.h"

#include <memory>
#include <vector>

namespace moira::runtime {

/// The ends of connections among `ranks` >= 1 ranks, by rank. The receiver
/// copies from the sender's memory. Each end may be used by another thread and
/// destroyed at any time: a rank whose end is gone has left, and who waits for
/// it fails. A failure can be forgotten (`recover`).
std::vector<std::unique_ptr<Transport>> makeInProcess(int ranks);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_INPROCESS_H
