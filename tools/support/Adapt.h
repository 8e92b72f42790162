// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of runs whose plans follow their loads, and what they make
// sessions do (docs/selection.md, "From the command line").

#ifndef MOIRA_TOOLS_SUPPORT_ADAPT_H
#define MOIRA_TOOLS_SUPPORT_ADAPT_H

#include "support/Grid.h"

#include "session/Adaptation.h"
#include "session/Session.h"
#include "session/StatisticsJson.h"

#include "llvm/Support/CommandLine.h"

namespace moira::tools {

/// What the command line says, checked as far as possible without files.
struct AdaptChoices {
  bool adapt = false; ///< plans are decided, or made again from a log
  runtime::SelectionMode mode = runtime::SelectionMode::Fixed;
  int lag = 1;
  bool explain = false, deterministic = false;
  std::string calibration, flightLog, replay, learned; ///< files; empty: none
  std::optional<uint64_t> random; ///< any plan in each step
  std::string statistics;         ///< file; empty: none
};

/// The command line's part. A struct, so that options are registered when main
/// asks for them.
struct AdaptCommandLine {
  explicit AdaptCommandLine(llvm::cl::OptionCategory &category);

  /// `ranks`: what has been read of the other options.
  llvm::Error read(AdaptChoices &choices, const RankOptions &ranks) const;

  llvm::cl::opt<std::string> adapt, lag, calibration, flightLog, replay,
      learned, random, statistics;
  llvm::cl::opt<bool> explain, deterministic;
};

/// Reads the file of --calibration.
llvm::Expected<runtime::Calibration> readCalibration(const std::string &path);

using Sessions = llvm::ArrayRef<std::unique_ptr<runtime::Session>>;

/// Makes the sessions of this process's ranks decide. Where a candidate is
/// fixed, it is the one that `ranks` and `variant` (or else "") describe.
llvm::Error startAdapting(const Grid &grid, Sessions sessions,
                          const std::string &entry, const RankOptions &ranks,
                          const std::string &variant,
                          const AdaptChoices &choices);
/// Where any plan is right: forces one, the same on all ranks, for a step.
Status forceRandom(runtime::Session &session, const std::string &entry,
                   uint64_t seed, int64_t step);
/// Writes what was learned, where a file was named.
llvm::Error saveLearned(const Grid &grid, Sessions sessions,
                        const std::string &entry, const AdaptChoices &choices);
/// Why the last step of a session ran with its plans.
llvm::Expected<std::string> explainText(const runtime::Session &session,
                                        const std::string &entry);

/// The file that this process's ranks write their steps to; null where none was
/// named. A process that has not all ranks puts its own into the file's name.
llvm::Expected<std::shared_ptr<runtime::JsonLinesFile>>
openStatistics(const Grid &grid, const AdaptChoices &choices);
/// A session's sinks.
std::vector<std::shared_ptr<runtime::StatisticsSink>>
sinksOf(const std::shared_ptr<runtime::JsonLinesFile> &file,
        const runtime::Manifest &manifest, int rank);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_ADAPT_H
