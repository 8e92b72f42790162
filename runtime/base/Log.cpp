// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Log.h"

#include <cstdio>

using namespace moira;
using namespace moira::runtime;

void Log::print(LogLevel level, const std::string &message) const {
  if (!enabled(level))
    return;
  static constexpr const char *names[] = {"", "warning", "info", "debug"};
  std::string line =
      std::string("moira: ") + names[static_cast<int>(level)] + ": " + message;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}
