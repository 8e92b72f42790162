// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_SUPPORT_PROGRESS_H
#define MOIRA_TOOLS_SUPPORT_PROGRESS_H

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace moira::tools {

/// A bar on stderr while long work runs; nothing where stderr is no terminal or
/// the work is short. One thread at a time.
class Progress {
public:
  Progress();
  ~Progress() { finish(); }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Starts a piece of work, of unknown size until the first update.
  void start(llvm::StringRef label);
  void update(int64_t done, int64_t all);
  /// Removes the bar.
  void finish();

private:
  void draw(const std::string &line);

  const bool isTerminal;
  std::string label;
  std::chrono::steady_clock::time_point started, drawn;
  bool visible = false;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_PROGRESS_H
