// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One implementation under measurement, and the loop that serves the
// coordinator: one JSON object per line on stdin, one answer per line on
// stdout. docs/benchmarks.md has the messages.

#ifndef MOIRA_BENCHMARKS_CPU_SERVE_H
#define MOIRA_BENCHMARKS_CPU_SERVE_H

#include "Case.h"

#include <string>
#include <utility>
#include <vector>

namespace moira::bench {

/// Where a mode leaves its result, row major.
struct Output {
  void *data = nullptr;
  bool isBf16 = false;
};

using Facts = std::vector<std::pair<std::string, double>>;

class Implementation {
public:
  virtual ~Implementation() = default;

  /// The version and kernel in use, for people.
  virtual std::string version() = 0;
  /// Makes ready to run `what`, whose data is in `file` (closed where the case
  /// has none). Fills `modes` with the ways to run it; returns why there are
  /// none, or nothing.
  virtual std::string prepare(const Case &what, const DataFile &file,
                              std::vector<std::string> &modes) = 0;
  /// Runs once; this and nothing else is timed.
  virtual void run(int mode) = 0;
  virtual Output output(int mode) = 0;
  /// Gives back all memory of the case.
  virtual void release() = 0;

  /// Work of one run of a mode where it isn't the case's: a limit's.
  virtual double work(int) { return 0; }
  /// Facts of `prepare` and of the last run: seconds, bytes.
  virtual Facts facts() { return {}; }
};

/// Serves until the end of stdin or "quit". Returns the exit code.
int serve(Implementation &implementation);

/// Largest error of a result over its row's largest value in the reference.
double largestError(const Case &what, const Output &result,
                    const float *reference);

} // namespace moira::bench

#endif // MOIRA_BENCHMARKS_CPU_SERVE_H
