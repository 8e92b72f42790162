// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/ranks.h.

#include "moira/ranks.h"

#include "collective/Reduction.h"
#include "session/CApiSupport.h"

using namespace moira;
using namespace moira::runtime;

static Result<RankGroupOptions> readOptions(const moira_ranks_options *given) {
  RankGroupOptions options;
  if (!given)
    return options;
  moira_ranks_options value{};
  MOIRA_RETURN_IF_ERROR(readStruct(given, value));
  options.ranksPerNode = value.ranks_per_node;
  if (value.timeout != 0)
    options.timeoutSeconds = value.timeout;
  if (value.transport)
    options.transport = value.transport;
  options.virtualClock = value.virtual_clock != 0;
  if (!value.topology)
    return options;
  Result<Topology> topology = Topology::parse(value.topology);
  if (!topology.ok())
    return topology.status();
  options.topology = std::move(*topology);
  return options;
}

int32_t moira_ranks_threads(int32_t count, const moira_ranks_options *options,
                            moira_ranks **ranks) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    Result<RankGroupOptions> read = readOptions(options);
    if (!read.ok())
      return read.status();
    Result<std::vector<std::shared_ptr<RankGroup>>> groups =
        RankGroup::threads(count, *read);
    if (!groups.ok())
      return groups.status();
    // All handles exist before the first is handed out.
    std::vector<std::unique_ptr<moira_ranks>> made;
    for (std::shared_ptr<RankGroup> &group : *groups)
      made.push_back(
          std::make_unique<moira_ranks>(moira_ranks{std::move(group)}));
    for (int32_t i = 0; i < count; ++i)
      ranks[i] = made[i].release();
    return Status();
  });
}

static Status connect(const Environment &environment,
                      const moira_ranks_options *options, moira_ranks **ranks) {
  Result<RankGroupOptions> read = readOptions(options);
  if (!read.ok())
    return read.status();
  Result<std::shared_ptr<RankGroup>> group =
      RankGroup::connect(environment, *read);
  if (!group.ok())
    return group.status();
  *ranks = new moira_ranks{std::move(*group)};
  return Status();
}

int32_t moira_ranks_launched(const moira_ranks_options *options,
                             moira_ranks **ranks) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    Result<Environment> environment = Environment::read();
    if (!environment.ok())
      return environment.status();
    return connect(*environment, options, ranks);
  });
}

static constexpr int32_t maxPort = 65535;

int32_t moira_ranks_connect(const moira_ranks_address *address,
                            const moira_ranks_options *options,
                            moira_ranks **ranks) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(address);
    MOIRA_REQUIRE(ranks);
    moira_ranks_address value{};
    MOIRA_RETURN_IF_ERROR(readStruct(address, value));
    if (value.ranks < 1 || value.rank < 0 || value.rank >= value.ranks)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a rank below the number of ranks, got ",
                           value.rank, " of ", value.ranks));
    if (value.port < 1 || value.port > maxPort)
      return Status(
          MOIRA_INVALID_ARGUMENT,
          concat("expected a port from 1 to ", maxPort, ", got ", value.port));
    Environment environment;
    environment.rank = environment.localRank = value.rank;
    environment.ranks = environment.localRanks = value.ranks;
    environment.masterAddress = value.host ? value.host : "127.0.0.1";
    environment.storePort = value.port;
    environment.job = value.job ? value.job : "";
    return connect(environment, options, ranks);
  });
}

void moira_ranks_destroy(moira_ranks *ranks) { delete ranks; }

int32_t moira_ranks_describe(const moira_ranks *ranks, moira_ranks_info *info) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    MOIRA_REQUIRE(info);
    moira_ranks_info value{};
    value.rank = ranks->group->rank();
    value.ranks = ranks->group->ranks();
    value.transport = ranks->group->transport();
    value.virtual_clock = ranks->group->isVirtual();
    return writeStruct(value, info);
  });
}

int32_t moira_ranks_barrier(moira_ranks *ranks) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    // All ranks agree at the end of a step: they meet there.
    return ranks->group->agree(Status(),
                               [](Communicator &) { return Status(); });
  });
}

/// Whether `data` can be read: nothing needs no address.
static Status checkData(const void *data, int64_t count) {
  if (count < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 0 or more to move, got ", count));
  return count > 0 && !data ? nullArgument("data") : Status();
}

int32_t moira_ranks_broadcast(moira_ranks *ranks, int32_t root, void *data,
                              int64_t bytes) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    Status mine = checkData(data, bytes);
    if (root < 0 || root >= ranks->group->ranks())
      mine = Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a root below ", ranks->group->ranks(),
                           ", got ", root));
    return ranks->group->agree(mine, [&](Communicator &link) {
      return link.broadcast(root, data, bytes);
    });
  });
}

int32_t moira_ranks_sum(moira_ranks *ranks, void *data, int64_t count,
                        int32_t dtype) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(ranks);
    Status mine = checkData(data, count);
    if (mine.ok())
      mine = checkReducible(dtype);
    return ranks->group->agree(mine, [&](Communicator &link) {
      return link.allReduce(data, count, dtype, Reduction::Sum);
    });
  });
}

void moira_ranks_interrupt(moira_ranks *ranks) {
  if (ranks && ranks->group->communicator())
    ranks->group->communicator()->interrupt();
}
