// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's place in a group, shared by the sessions that run with it.

#ifndef MOIRA_RUNTIME_SESSION_RANKGROUP_H
#define MOIRA_RUNTIME_SESSION_RANKGROUP_H

#include "bootstrap/Environment.h"
#include "collective/Communicator.h"
#include "cost/Topology.h"

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace moira::runtime {

struct RankGroupOptions {
  int ranksPerNode = 0;       ///< 0: as the topology says
  double timeoutSeconds = 60; ///< to meet, and for one operation to wait
  std::string transport;      ///< of processes, as ConnectOptions says
  bool virtualClock = false;  ///< only for threads
  /// The cluster of the virtual clock; none: Topology::usual.
  std::optional<Topology> topology;
};

/// Of one communicator one session at a time runs a step: who runs one holds
/// `turn`.
class RankGroup {
public:
  /// Ranks that are threads, by rank.
  static Result<std::vector<std::shared_ptr<RankGroup>>>
  threads(int ranks, const RankGroupOptions &options);
  /// This process's rank. Collective.
  static Result<std::shared_ptr<RankGroup>>
  connect(const Environment &environment, const RankGroupOptions &options);

  int rank() const { return link ? link->rank() : 0; }
  int ranks() const { return link ? link->ranks() : 1; }
  const char *transport() const {
    return link ? link->transportName() : "none";
  }
  bool isVirtual() const { return link && link->clock(); }
  /// Null for one rank.
  const std::shared_ptr<Communicator> &communicator() const { return link; }

  /// Runs `action` as a step of its own, which has one outcome on all ranks:
  /// they fail too where `mine` is a failure. One rank has nothing to run.
  template <typename Action>
  Status agree(const Status &mine, const Action &action) {
    std::lock_guard<std::mutex> lock(turn);
    if (!link)
      return mine;
    MOIRA_RETURN_IF_ERROR(link->beginStep());
    Status outcome = mine;
    try {
      if (mine.ok())
        outcome = action(*link);
    } catch (const std::exception &error) {
      // The others wait for the end of the step.
      outcome = Status(MOIRA_OUT_OF_MEMORY, error.what());
    }
    return link->endStep(outcome);
  }

  std::mutex turn;

private:
  explicit RankGroup(std::shared_ptr<Communicator> link)
      : link(std::move(link)) {}
  static Result<std::shared_ptr<RankGroup>>
  make(std::unique_ptr<Transport> end, const CommunicatorOptions &options);

  const std::shared_ptr<Communicator> link;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_RANKGROUP_H
