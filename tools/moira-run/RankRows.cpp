// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results that have several rows of each token.

#include "RankSessions.h"

#include "support/CommandLine.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// Rows that a result has of each token, for sequences are tokens too: 1 where
/// there are none to tell.
llvm::Expected<int64_t> RankSessions::countRowsPerToken(
    size_t index, const std::vector<std::vector<ResultTensor>> &parts,
    const Inputs &inputs) {
  int64_t most = 0;
  for (int rank : grid.local())
    if (int64_t tokens = inputs.rowsOf(rank).count)
      most = std::max(most, parts[placeOf(rank)][index].shape[0] / tokens);
  if (grid.local().size() < size_t(grid.ranks())) {
    Status status = grid.communicator(grid.local().front())
                        ->allReduce(&most, 1, MOIRA_I64, Reduction::Max);
    if (!status.ok())
      return toError(status);
  }
  return std::max<int64_t>(most, 1);
}
