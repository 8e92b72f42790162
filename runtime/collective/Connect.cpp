// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Connect.h"

#include "collective/InProcess.h"
#include "collective/Plugin.h"
#include "collective/nccl/Nccl.h"
#include "collective/tcp/TcpTransport.h"

#include <cstdlib>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static std::string variable(const char *name, const std::string &otherwise) {
  const char *text = getenv(name);
  return text && *text ? text : otherwise;
}

static Result<std::unique_ptr<Transport>>
connectMpi(const Environment &environment, const ConnectOptions &options) {
  std::string file = options.plugin;
  if (file.empty())
    file = variable("MOIRA_MPI_PLUGIN", "");
  Result<std::unique_ptr<Transport>> opened = openPlugin("mpi", file);
  if (!opened.ok())
    return opened;
  // A process that MPI was not asked to start is a world of its own to MPI.
  if ((*opened)->ranks() != environment.ranks ||
      (*opened)->rank() != environment.rank)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat(launcherName(environment.launcher), " says rank ",
                         environment.rank, " of ", environment.ranks,
                         ", but MPI says rank ", (*opened)->rank(), " of ",
                         (*opened)->ranks()));
  return opened;
}

static Result<std::unique_ptr<Transport>>
connectTcp(const Environment &environment, const ConnectOptions &options) {
  if (environment.ranks == 1)
    return std::move(makeInProcess(1)[0]); // nobody to connect to
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::open(environment, options.seconds);
  if (!store.ok())
    return store.status();
  TcpOptions tcp;
  tcp.connectSeconds = options.seconds;
  Result<std::unique_ptr<TcpTransport>> opened =
      TcpTransport::open(**store, tcp);
  if (!opened.ok())
    return opened.status();
  return std::unique_ptr<Transport>(std::move(*opened));
}

Result<std::vector<std::unique_ptr<Transport>>>
moira::runtime::connectThreads(int ranks, const ConnectOptions &options) {
  std::vector<std::unique_ptr<Transport>> ends = makeInProcess(ranks);
  if (options.transport != "nccl")
    return ends;
  // NCCL begins where all ranks are there, so each has a thread.
  std::vector<Status> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      NcclOptions nccl;
      nccl.device = rank;
      nccl.connectSeconds = options.seconds;
      auto opened = openNccl(std::move(ends[rank]), nccl);
      if (opened.ok())
        ends[rank] = std::move(*opened);
      outcomes[rank] = opened.status();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &outcome : outcomes)
    if (!outcome.ok())
      return outcome;
  return ends;
}

Result<std::unique_ptr<Transport>>
moira::runtime::connectRanks(const Environment &environment,
                             const ConnectOptions &options) {
  std::string name = options.transport;
  if (name.empty())
    name = variable("MOIRA_TRANSPORT", "");
  const std::string usual =
      environment.launcher == Launcher::Mpi ? "mpi" : "tcp";
  if (name.empty())
    name = usual;
  if (name == "mpi")
    return connectMpi(environment, options);
  if (name == "tcp")
    return connectTcp(environment, options);
  if (name != "nccl")
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected the transport 'mpi', 'tcp' or 'nccl', got '",
                         name, "'"));
  ConnectOptions inHost = options;
  inHost.transport = usual;
  Result<std::unique_ptr<Transport>> control =
      connectRanks(environment, inHost);
  if (!control.ok())
    return control;
  NcclOptions nccl;
  nccl.device = environment.localRank;
  nccl.connectSeconds = options.seconds;
  return openNccl(std::move(*control), nccl);
}
