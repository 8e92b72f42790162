// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages for people, on stderr, off by default. Results and errors never go
// this way.

#ifndef MOIRA_RUNTIME_BASE_LOG_H
#define MOIRA_RUNTIME_BASE_LOG_H

#include <cstdint>
#include <string>

namespace moira::runtime {

enum class LogLevel : int32_t { Quiet = 0, Warning = 1, Info = 2, Debug = 3 };

/// Prints what its level lets through. A value: copy it freely.
class Log {
public:
  explicit Log(LogLevel level = LogLevel::Quiet) : threshold(level) {}

  bool enabled(LogLevel level) const {
    return level != LogLevel::Quiet && level <= threshold;
  }
  /// Writes one line, whole even when threads write at the same time.
  void print(LogLevel level, const std::string &message) const;

private:
  LogLevel threshold;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_LOG_H
