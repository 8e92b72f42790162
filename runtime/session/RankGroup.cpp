// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/RankGroup.h"

#include "collective/Connect.h"
#include "collective/InProcess.h"
#include "collective/VirtualClock.h"

using namespace moira;
using namespace moira::runtime;

static CommunicatorOptions settingsOf(const RankGroupOptions &options) {
  CommunicatorOptions settings;
  settings.timeoutSeconds = options.timeoutSeconds;
  settings.ranksPerNode = options.ranksPerNode;
  if (settings.ranksPerNode == 0 && options.topology)
    settings.ranksPerNode = options.topology->ranksPerNode();
  return settings;
}

Result<std::shared_ptr<RankGroup>>
RankGroup::make(std::unique_ptr<Transport> end,
                const CommunicatorOptions &options) {
  Result<std::unique_ptr<Communicator>> made =
      Communicator::create(std::move(end), options);
  if (!made.ok())
    return made.status();
  return std::shared_ptr<RankGroup>(new RankGroup(std::move(*made)));
}

/// More threads than this is a mistake in an argument.
static constexpr int maxThreads = 4096;

static Status checkTopology(const RankGroupOptions &options, int ranks) {
  if (!options.topology || options.topology->ranks() == ranks)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("topology: expected ", ranks, " ranks, got ",
                       options.topology->ranks()));
}

Result<std::vector<std::shared_ptr<RankGroup>>>
RankGroup::threads(int ranks, const RankGroupOptions &options) {
  if (ranks < 1 || ranks > maxThreads)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 1 to ", maxThreads, " ranks, got ", ranks));
  MOIRA_RETURN_IF_ERROR(checkTopology(options, ranks));
  std::vector<std::shared_ptr<RankGroup>> groups;
  if (ranks == 1 && !options.virtualClock) {
    groups.push_back(std::shared_ptr<RankGroup>(new RankGroup(nullptr)));
    return groups;
  }
  CommunicatorOptions settings = settingsOf(options);
  std::shared_ptr<VirtualNetwork> network;
  if (options.virtualClock)
    network = std::make_shared<VirtualNetwork>(
        options.topology ? *options.topology : Topology::usual(ranks));
  for (std::unique_ptr<Transport> &end : makeInProcess(ranks)) {
    if (network)
      settings.clock = std::make_shared<VirtualClock>(network, /*factor=*/1);
    Result<std::shared_ptr<RankGroup>> group = make(std::move(end), settings);
    if (!group.ok())
      return group.status();
    groups.push_back(std::move(*group));
  }
  return groups;
}

Result<std::shared_ptr<RankGroup>>
RankGroup::connect(const Environment &environment,
                   const RankGroupOptions &options) {
  if (options.virtualClock)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected ranks that are threads of one process for the "
                  "virtual clock, got processes");
  MOIRA_RETURN_IF_ERROR(checkTopology(options, environment.ranks));
  if (environment.ranks == 1)
    return std::shared_ptr<RankGroup>(new RankGroup(nullptr));
  ConnectOptions connect;
  connect.seconds = options.timeoutSeconds;
  connect.transport = options.transport;
  Result<std::unique_ptr<Transport>> end = connectRanks(environment, connect);
  if (!end.ok())
    return end.status();
  return make(std::move(*end), settingsOf(options));
}
