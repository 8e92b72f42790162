// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_RUNTIME_STATISTICS_CLOCK_H
#define MOIRA_RUNTIME_STATISTICS_CLOCK_H

namespace moira::runtime {

/// Where times of steps come from.
class Clock {
public:
  virtual ~Clock() = default;
  /// Never goes back. Called by the thread of the step.
  virtual double seconds() = 0;
};

/// Seconds of the machine's monotonic clock.
double realSeconds();

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_STATISTICS_CLOCK_H
