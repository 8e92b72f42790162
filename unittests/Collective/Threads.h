// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are threads of the test.

#ifndef MOIRA_UNITTESTS_COLLECTIVE_THREADS_H
#define MOIRA_UNITTESTS_COLLECTIVE_THREADS_H

#include "collective/Communicator.h"
#include "collective/InProcess.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace moira::test {

/// Makes the transports of a number of ranks.
using TransportFactory =
    std::function<std::vector<std::unique_ptr<runtime::Transport>>(int)>;

using RankBody = std::function<Status(runtime::Communicator &)>;

/// Runs `body` on every rank and returns what they return, by rank. A rank's
/// communicator goes when its body returns.
inline std::vector<Status>
runRanks(int ranks, const runtime::CommunicatorOptions &options,
         const RankBody &body,
         const TransportFactory &factory = runtime::makeInProcess) {
  std::vector<std::unique_ptr<runtime::Transport>> ends = factory(ranks);
  std::vector<Status> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto made = runtime::Communicator::create(std::move(ends[rank]), options);
      outcomes[rank] = made.ok() ? body(**made) : made.status();
    });
  for (std::thread &thread : threads)
    thread.join();
  return outcomes;
}

/// The same; the test fails where a rank does.
inline void expectRanks(int ranks, const runtime::CommunicatorOptions &options,
                        const RankBody &body) {
  std::vector<Status> outcomes = runRanks(ranks, options, body);
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_TRUE(outcomes[rank].ok())
        << "rank " << rank << " of " << ranks << ": " << outcomes[rank].message;
}

} // namespace moira::test

#endif // MOIRA_UNITTESTS_COLLECTIVE_THREADS_H
