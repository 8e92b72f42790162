// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_REPORT_H
#define MOIRA_TOOLS_MOIRA_RUN_REPORT_H

#include "Qualify.h"
#include "RankSessions.h"
#include "Verify.h"

#include "llvm/Support/JSON.h"

#include <optional>
#include <vector>

namespace moira::tools {

/// What a run did, for a table or JSON.
struct Report {
  std::string program, entry, variant, cpu, origin;
  std::string device;              ///< "emulated sm_80"; empty: the processor
  std::vector<std::string> inputs; ///< "x: bf16[256, 2048], random"
  std::string weights;             ///< "random" or a path
  uint64_t seed = 0;
  int threads = 0;
  int64_t rows = 0;

  double startSeconds = 0;   ///< from the start of main to the first step
  double compileSeconds = 0; ///< of that; 0 for a bundle
  double weightSeconds = 0;  ///< of that
  double firstSeconds = 0;
  std::vector<double> repeats;
  /// With a way back: its part of each time; the first one's comes first.
  std::vector<double> backward;

  llvm::json::Array steps;        ///< of steps that differ: StepTable::toJson
  llvm::json::Array plans;        ///< that fixed_seconds of these are of
  runtime::StepRow step;          ///< of the last run
  runtime::PartSeconds seconds{}; ///< of all timed runs, by part
  double flops = 0;               ///< of one run
  runtime::MemoryFigures memory;
  int64_t weightBytes = 0;
  std::optional<Verification> verification;

  std::vector<VariantRun> qualified; ///< with --qualify

  /// Why the last step ran with its plans, for people and as JSON; empty:
  /// nobody asked.
  std::string explanation, explanationJson;
  std::vector<RankFigures> ranks; ///< of the last run, by rank
  RankOptions grid;
  std::string schedule, transport;
  std::optional<runtime::LayerPlacement> placement; ///< of the first layer

  /// The time that rates are computed from: the median of the repeats, or the
  /// first run.
  double time() const;
  /// The same of the way back, and of the rest; only where there is one.
  double backwardTime() const;
  double forwardTime() const { return time() - backwardTime(); }
  void print(llvm::raw_ostream &stream) const;
  void printJson(llvm::raw_ostream &stream) const;
};

/// The table of ranks, where there are several, and its JSON.
void printRanks(const Report &report, llvm::raw_ostream &stream);
llvm::json::Object ranksToJson(const Report &report);

/// Floating-point operations of a step with these loads.
double countFlops(const runtime::EntrySpec &entry,
                  const runtime::StepRow &step);

/// Adds the seconds of a step to `seconds`.
void addParts(const runtime::StepRow &step, runtime::PartSeconds &seconds);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_REPORT_H
