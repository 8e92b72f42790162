// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks of a run, as threads of this process or as processes.

#ifndef MOIRA_TOOLS_SUPPORT_GRID_H
#define MOIRA_TOOLS_SUPPORT_GRID_H

#include "support/RankOptions.h"

#include "bootstrap/Environment.h"
#include "collective/Communicator.h"
#include "statistics/Trace.h"

#include "llvm/ADT/ArrayRef.h"

#include <functional>
#include <memory>

namespace moira::tools {

/// Where this process stands: what a launcher and --communicator say.
struct Launch {
  runtime::Environment environment;
  /// Whether each rank is a process of its own.
  bool processes = false;

  static llvm::Expected<Launch> read(const RankOptions &options);
  /// Ranks to compile a program for.
  int ranks(const RankOptions &options) const {
    return processes ? environment.ranks : std::max(1, options.ranks);
  }
};

class Grid {
public:
  /// Connects all ranks of a program. Collective among processes.
  static llvm::Expected<std::unique_ptr<Grid>>
  create(const Launch &launch, const RankOptions &options, int ranks);
  ~Grid();

  int ranks() const { return rankCount; }
  /// The ranks of this process, ascending.
  llvm::ArrayRef<int> local() const { return own; }
  /// Whether this process speaks for all: the one with rank 0.
  bool isFirst() const { return own.front() == 0; }
  /// Null for one rank.
  std::shared_ptr<runtime::Communicator> communicator(int rank) const {
    return communicators.empty() ? nullptr : communicators[rank - own.front()];
  }
  const char *transport() const;
  /// Whether times are those of a described cluster.
  bool isVirtual() const { return virtualClock; }
  /// Ends what a rank waits for. For signal handlers, in a grid that has
  /// communicators.
  void interrupt(int rank) const noexcept {
    communicators[rank - own.front()]->interrupt();
  }

  using Action = std::function<Status(int rank)>;
  /// Calls `action` for the ranks of this process, each on a thread of its own,
  /// and returns when all have returned: the first failure by rank.
  Status run(const Action &action) const;
  /// The same, after which all ranks of all processes have one outcome.
  Status agree(const Action &action) const;
  /// The name of a file that each process writes its own of: one that has not
  /// all ranks puts its first rank before the extension.
  std::string fileOf(llvm::StringRef path) const;
  /// Writes what the ranks of this process did when, where that was asked for.
  llvm::Error writeTrace(llvm::StringRef path) const;

  Grid(const Grid &) = delete;
  Grid &operator=(const Grid &) = delete;

private:
  Grid() = default;

  int rankCount = 1;
  bool virtualClock = false;
  std::vector<int> own;
  std::vector<std::shared_ptr<runtime::TraceRecorder>> traces; ///< or empty
  std::vector<std::shared_ptr<runtime::Communicator>> communicators;
};

/// While it lives, SIGINT and SIGTERM end the operation of a grid that waits,
/// or its next one, with an error on all ranks. A second signal ends the
/// process. One at a time.
class InterruptGuard {
public:
  explicit InterruptGuard(const Grid &grid);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
  InterruptGuard &operator=(const InterruptGuard &) = delete;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_GRID_H
