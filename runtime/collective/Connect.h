// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From what a launcher says to a transport.

#ifndef MOIRA_RUNTIME_COLLECTIVE_CONNECT_H
#define MOIRA_RUNTIME_COLLECTIVE_CONNECT_H

#include "bootstrap/Environment.h"
#include "collective/Transport.h"

#include <memory>
#include <vector>

namespace moira::runtime {

struct ConnectOptions {
  /// "mpi" or "tcp". "": MOIRA_TRANSPORT, else what suits the launcher: mpi
  /// under mpirun, else tcp. "nccl": messages in device memory, over the GPU
  /// whose number is the local rank, with the launcher's for control.
  std::string transport;
  /// The file of the plug-in; "": MOIRA_MPI_PLUGIN, else where Plugin.h looks.
  std::string plugin;
  /// Seconds that a rank waits for the others to start.
  double seconds = 60;
};

/// This process's end of the connections among the ranks of `environment`.
/// Collective. A process that was just started is one rank.
Result<std::unique_ptr<Transport>>
connectRanks(const Environment &environment,
             const ConnectOptions &options = {});

/// The ends of ranks that are threads of this process: messages in memory of
/// the host, or, where `options` names the transport "nccl", over the GPUs of
/// the ranks' numbers.
Result<std::vector<std::unique_ptr<Transport>>>
connectThreads(int ranks, const ConnectOptions &options = {});

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_CONNECT_H
