// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options that say how many ranks run a program, and how.

#ifndef MOIRA_TOOLS_SUPPORT_RANKOPTIONS_H
#define MOIRA_TOOLS_SUPPORT_RANKOPTIONS_H

#include "moira/Pipelines/Pipelines.h"
#include "support/ShadowChoice.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace moira::tools {

/// What the command line says of ranks, checked as far as possible without
/// files.
struct RankOptions {
  int ranks = 0; ///< 0: as many as the launcher started, or the bundle's
  int ranksPerNode = 0;
  int32_t degree = 1;
  int32_t exchange = 0; ///< 0 linear, 1 hierarchical
  bool virtualClock = false;
  std::string topology; ///< file; empty: none
  /// File of what compute takes on the virtual clock; empty: CPU time.
  std::string clockCalibration;
  std::string trace; ///< file; empty: none
  double timeoutSeconds = 60;
  std::string slotTable; ///< file or "permuted:SEED"; empty: in order
  ShadowChoice shadows;
  int64_t rebalance = 0; ///< steps between moves of experts; 0: none
  std::string communicator = "auto";
  std::vector<int64_t> tokens; ///< by rank; empty: split evenly
  /// Of the program that is compiled: what `pipeline` takes over.
  int64_t copies = 1;
  int64_t spareSlots = 0;
  int64_t hiddenBlocks = 0; ///< 0: as many as the ranks need
  mlir::moe::Schedule schedule = mlir::moe::Schedule::Equal;
  /// Whether --r and --schedule were given: a program with several variants
  /// has one for them.
  bool givesCopies = false, givesSchedule = false;
  /// The first option given that only a compilation can follow; empty: none.
  std::string compiledOption;
};

/// The command line's part. A struct, so that options are registered when main
/// asks for them.
struct RankCommandLine {
  explicit RankCommandLine(llvm::cl::OptionCategory &category);

  llvm::Error read(RankOptions &options) const;

  llvm::cl::opt<std::string> ranks, ranksPerNode, copies, degree, exchange,
      schedule, clock, topology, clockCalibration, trace, timeout, slotTable,
      shadows, rebalance, spareSlots, hiddenBlocks, communicator;
};

/// Reads "5,0,7,3".
llvm::Expected<std::vector<int64_t>> parseTokenList(llvm::StringRef text);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_RANKOPTIONS_H
