// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_OPTIONS_H
#define MOIRA_TOOLS_MOIRA_RUN_OPTIONS_H

#include "StepOptions.h"
#include "support/Adapt.h"
#include "support/Devices.h"
#include "support/RankOptions.h"

#include "base/Log.h"
#include "moira/JIT/Variants.h"
#include "moira/jit.h"

#include <optional>
#include <string>
#include <vector>

namespace moira::tools {

inline constexpr llvm::StringLiteral runToolName = "moira-run";

/// What the command line asks for, checked as far as possible without files.
struct RunOptions {
  std::string program; ///< FILE.mlir or FILE.moira
  bool isBundle = false;
  std::string source; ///< of a bundle, for --verify
  std::string entry;  ///< empty: the only one

  std::vector<std::string> inputs; ///< FILE, NAME=FILE or NAME=NUMBER
  std::string weights;             ///< empty: random
  std::string output;              ///< empty: none
  uint64_t seed = 0;
  /// Every dynamic dim without a file; of all ranks together.
  std::optional<int64_t> tokens;
  RankOptions grid;
  StepOptions steps;
  AdaptChoices adapt;
  std::string calibrate; ///< file to measure for; empty: none

  bool grad = false; ///< forward and backward
  bool verify = false;
  int64_t verifyRows = 0; ///< 0: all
  int64_t repeat = 0;     ///< runs after the first
  bool json = false;
  std::string variant;  ///< empty: chosen by rows
  bool qualify = false; ///< run and verify every variant
  /// Variants to compile a program to; nothing: one form of it.
  std::optional<VariantOptions> variants;
  int threads = 0;
  int64_t memoryLimit = 0;
  DeviceChoice device;
  runtime::LogLevel logLevel = runtime::LogLevel::Quiet;
  JitOptions jit;
};

/// Reads the command line; the options are registered here.
llvm::Expected<RunOptions> parseOptions(int argc, char **argv);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_OPTIONS_H
