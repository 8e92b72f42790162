// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every transport must do, as functions that all ranks call at the same
// time, each with its own end. Checks are gtest's, and may run in threads.

#ifndef MOIRA_UNITTESTS_RANKS_TRANSPORTCASES_H
#define MOIRA_UNITTESTS_RANKS_TRANSPORTCASES_H

#include "collective/Transport.h"

#include <vector>

namespace moira::runtime {

/// Carries a batch to its end. After `seconds` gives up on all ranks, naming
/// the one that was waited for.
Status complete(Transport &transport, const Batch &batch, double seconds = 60);

struct TransportCase {
  const char *name;
  void (*run)(Transport &transport);
};

const std::vector<TransportCase> &transportCases();

/// Bytes that rank `from` sends to rank `to` by these cases and `complete`
/// calls so far, as the caller counts them: what a counter of another kind is
/// compared with.
int64_t bytesSentToOthers();

} // namespace moira::runtime

#endif // MOIRA_UNITTESTS_RANKS_TRANSPORTCASES_H
