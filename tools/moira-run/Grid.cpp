// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Grid.h"

#include "collective/Connect.h"
#include "collective/InProcess.h"
#include "support/CommandLine.h"

#include <atomic>
#include <csignal>
#include <thread>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

llvm::Expected<Launch> Launch::read(const RankOptions &options) {
  Launch launch;
  if (options.communicator == "inprocess")
    return launch;
  Result<Environment> environment = Environment::read();
  if (!environment.ok())
    return toError(environment.status());
  launch.environment = *environment;
  launch.processes = environment->ranks > 1 || options.communicator != "auto";
  if (launch.processes && environment->launcher == Launcher::None)
    return llvm::createStringError(
        "--communicator: expected ranks that mpirun, srun or torchrun started "
        "for '" +
        options.communicator + "', got a single process");
  if (launch.processes && options.ranks > 0 &&
      options.ranks != environment->ranks)
    return llvm::createStringError(
        "--ranks: expected the " + llvm::Twine(environment->ranks) +
        " processes that " + launcherName(environment->launcher) +
        " started, got " + llvm::Twine(options.ranks));
  return launch;
}

//===----------------------------------------------------------------------===//
// Making one
//===----------------------------------------------------------------------===//

/// This process's ends of the connections.
static Result<std::vector<std::unique_ptr<Transport>>>
connect(const Launch &launch, const RankOptions &options, int ranks) {
  if (!launch.processes)
    return makeInProcess(ranks);
  ConnectOptions connect;
  connect.seconds = options.timeoutSeconds;
  if (options.communicator != "auto")
    connect.transport = options.communicator;
  Result<std::unique_ptr<Transport>> transport =
      connectRanks(launch.environment, connect);
  if (!transport.ok())
    return transport.status();
  std::vector<std::unique_ptr<Transport>> ends;
  ends.push_back(std::move(*transport));
  return ends;
}

llvm::Expected<std::unique_ptr<Grid>>
Grid::create(const Launch &launch, const RankOptions &options, int ranks) {
  std::unique_ptr<Grid> grid(new Grid());
  grid->rankCount = ranks;
  if (ranks == 1 && !launch.processes) {
    grid->own.push_back(0);
    return grid;
  }
  auto ends = connect(launch, options, ranks);
  if (!ends.ok())
    return toError(ends.status());
  CommunicatorOptions settings;
  settings.timeoutSeconds = options.timeoutSeconds;
  settings.ranksPerNode = options.ranksPerNode;
  for (std::unique_ptr<Transport> &end : *ends) {
    grid->own.push_back(end->rank());
    auto made = Communicator::create(std::move(end), settings);
    if (!made.ok())
      return toError(made.status());
    grid->communicators.push_back(std::move(*made));
  }
  return grid;
}

Grid::~Grid() = default;

const char *Grid::transport() const {
  return communicators.empty() ? "none" : communicators[0]->transportName();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Status Grid::run(const Action &action) const {
  if (own.size() == 1)
    return action(own[0]);
  std::vector<Status> outcomes(own.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < own.size(); ++i)
    threads.emplace_back([&, i] { outcomes[i] = action(own[i]); });
  for (std::thread &thread : threads)
    thread.join();
  for (Status &outcome : outcomes)
    if (!outcome.ok())
      return outcome;
  return Status();
}

Status Grid::agree(const Action &action) const {
  if (communicators.empty())
    return action(own[0]);
  return run([&](int rank) {
    Communicator &group = *communicator(rank);
    MOIRA_RETURN_IF_ERROR(group.beginStep());
    return group.endStep(action(rank));
  });
}

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

/// The grid that a signal ends: a handler has no argument for it.
static std::atomic<const Grid *> interruptible{nullptr};

static void interrupt(int signal) {
  if (const Grid *grid = interruptible.load())
    for (int rank : grid->local())
      grid->interrupt(rank);
  std::signal(signal, SIG_DFL);
}

InterruptGuard::InterruptGuard(const Grid &grid) {
  // One rank waits for nobody: the signal may end it at once.
  if (!grid.communicator(grid.local().front()))
    return;
  interruptible = &grid;
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
}

InterruptGuard::~InterruptGuard() {
  if (!interruptible.exchange(nullptr))
    return;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}
