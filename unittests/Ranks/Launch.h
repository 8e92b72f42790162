// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts the processes of a test and sees to it that they end.

#ifndef MOIRA_UNITTESTS_RANKS_LAUNCH_H
#define MOIRA_UNITTESTS_RANKS_LAUNCH_H

#include <string>
#include <utility>
#include <vector>

namespace moira::runtime {

/// How a process ended, and all that it wrote.
struct Outcome {
  int status = -1;   ///< exit status; 128 + the signal that ended it
  bool late = false; ///< it was ended when the time was over
  double seconds = 0;
  std::string output; ///< of both streams
};

using Variables = std::vector<std::pair<std::string, std::string>>;

/// One program with variables beside the test's own, without the launcher's
/// variables that the test itself may have been started with.
struct Program {
  std::vector<std::string> arguments; ///< the first is the file
  Variables variables;
};

/// Runs programs side by side, for `seconds` at most. Processes that still run
/// then, or that have stopped, are killed. `enough`: ends the rest as soon as
/// all programs but this number have ended (a stopped one does not end).
std::vector<Outcome> runAll(const std::vector<Program> &programs,
                            double seconds, size_t mayStay = 0);

/// The programs of `ranks` ranks of one machine, with the variables that
/// torchrun sets.
std::vector<Program> torchrun(int ranks, int masterPort,
                              const std::vector<std::string> &arguments,
                              const Variables &more = {});

/// A port that is held, as torchrun's agent holds MASTER_PORT, and whose next
/// one is free.
class HeldPort {
public:
  HeldPort();
  ~HeldPort();
  int port = 0;

private:
  int socket = -1;
};

} // namespace moira::runtime

#endif // MOIRA_UNITTESTS_RANKS_LAUNCH_H
