// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Grid.h"

#include "collective/Connect.h"
#include "collective/VirtualClock.h"
#include "io/AtomicFile.h"
#include "support/Adapt.h"
#include "support/CommandLine.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

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
  // Threads of one process may have a GPU each.
  bool isThreads =
      options.communicator == "nccl" && environment->launcher == Launcher::None;
  launch.processes =
      environment->ranks > 1 || (options.communicator != "auto" && !isThreads);
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
  ConnectOptions connect;
  connect.seconds = options.timeoutSeconds;
  if (options.communicator != "auto")
    connect.transport = options.communicator;
  if (!launch.processes)
    return connectThreads(ranks, connect);
  Result<std::unique_ptr<Transport>> transport =
      connectRanks(launch.environment, connect);
  if (!transport.ok())
    return transport.status();
  std::vector<std::unique_ptr<Transport>> ends;
  ends.push_back(std::move(*transport));
  return ends;
}

/// The network of --clock virtual.
static llvm::Expected<std::shared_ptr<VirtualNetwork>>
makeNetwork(const Launch &launch, const RankOptions &options, int ranks) {
  if (launch.processes)
    return llvm::createStringError(
        "--clock: expected ranks that are threads of one process for the "
        "virtual clock, got processes");
  if (options.topology.empty())
    return std::make_shared<VirtualNetwork>(Topology::usual(ranks));
  Result<Topology> topology = Topology::read(options.topology);
  if (!topology.ok())
    return toError(topology.status());
  if (topology->ranks() != ranks)
    return llvm::createStringError(options.topology + ": expected " +
                                   llvm::Twine(ranks) + " ranks, got " +
                                   llvm::Twine(topology->ranks()));
  return std::make_shared<VirtualNetwork>(std::move(*topology));
}

llvm::Expected<std::unique_ptr<Grid>>
Grid::create(const Launch &launch, const RankOptions &options, int ranks) {
  std::unique_ptr<Grid> grid(new Grid());
  grid->rankCount = ranks;
  if (ranks == 1 && !launch.processes) {
    grid->own.push_back(0);
    if (!options.trace.empty() || options.virtualClock)
      return llvm::createStringError(
          llvm::Twine(options.trace.empty() ? "--clock" : "--trace") +
          ": expected several ranks, got one");
    return grid;
  }
  CommunicatorOptions settings;
  settings.timeoutSeconds = options.timeoutSeconds;
  settings.ranksPerNode = options.ranksPerNode;
  std::shared_ptr<VirtualNetwork> network;
  std::shared_ptr<const Calibration> calibration;
  if (options.virtualClock) {
    auto made = makeNetwork(launch, options, ranks);
    if (!made)
      return made.takeError();
    network = std::move(*made);
    grid->virtualClock = true;
    if (!options.clockCalibration.empty()) {
      auto costs = readCalibration(options.clockCalibration);
      if (!costs)
        return costs.takeError();
      calibration = std::make_shared<const Calibration>(std::move(*costs));
    }
    if (settings.ranksPerNode == 0 && !options.topology.empty())
      settings.ranksPerNode = network->description().ranksPerNode();
  }
  auto ends = connect(launch, options, ranks);
  if (!ends.ok())
    return toError(ends.status());
  for (std::unique_ptr<Transport> &end : *ends) {
    grid->own.push_back(end->rank());
    if (network)
      settings.clock =
          calibration ? std::make_shared<VirtualClock>(network, calibration)
                      : std::make_shared<VirtualClock>(network, /*factor=*/1);
    if (!options.trace.empty()) {
      settings.trace = std::make_shared<TraceRecorder>(end->rank());
      grid->traces.push_back(settings.trace);
    }
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

std::string Grid::fileOf(llvm::StringRef path) const {
  if (own.size() == size_t(rankCount))
    return path.str();
  llvm::StringRef extension = llvm::sys::path::extension(path);
  return (path.drop_back(extension.size()) + "." + llvm::Twine(own.front()) +
          extension)
      .str();
}

llvm::Error Grid::writeTrace(llvm::StringRef path) const {
  if (traces.empty())
    return llvm::Error::success();
  std::vector<TraceEvents> events;
  for (const auto &trace : traces)
    events.push_back(trace->events());
  std::string text = toChromeTrace(events);
  return toError(
      io::writeFile(fileOf(path), text.data(), text.size()).within("--trace"));
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
