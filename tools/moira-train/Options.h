// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_TRAIN_OPTIONS_H
#define MOIRA_TOOLS_MOIRA_TRAIN_OPTIONS_H

#include "support/Adapt.h"
#include "support/Devices.h"
#include "support/RankOptions.h"

#include "moira/JIT/Variants.h"
#include "moira/jit.h"
#include "session/Optimizer.h"

#include <optional>
#include <string>
#include <vector>

namespace moira::tools {

inline constexpr llvm::StringLiteral trainToolName = "moira-train";

/// The learning rate of a step.
struct LearningRate {
  double peak = 1e-3, least = 0;
  bool cosine = false;
  int64_t warmup = 0; ///< steps that it rises for
  int64_t steps = 0;  ///< of the whole run

  /// Rises evenly to `peak`, which step `warmup` has first; then stays, or
  /// falls to `least` as half a cosine does, which the step after the last one
  /// has.
  double at(int64_t step) const;
};

/// What the command line asks for, checked as far as possible without files.
struct TrainOptions {
  std::string program;           ///< FILE.mlir
  std::string entry;             ///< empty: the only one
  std::vector<std::string> text; ///< files, one after the other
  std::string batches;           ///< .npy, in place of text
  std::string weights;           ///< empty: random
  uint64_t seed = 0;

  int64_t steps = 100;
  int64_t batch = 16;     ///< sequences of a step, of all ranks
  int64_t sequence = 0;   ///< length; 0: the program says
  int64_t accumulate = 1; ///< batches that one update adds up
  runtime::UpdateOptions update;
  LearningRate rate;
  double clip = 0; ///< norm of all gradients; 0: not clipped

  int64_t evalEvery = 0;  ///< steps; 0: never
  double evalShare = 0.1; ///< of the text, at its end
  int64_t evalBatches = 8;

  std::string save;         ///< folder; empty: none
  int64_t saveEvery = 0;    ///< steps; 0: at the end
  bool shardedSave = false; ///< a file for each rank
  bool resume = false;
  std::string log, curve, loads; ///< files; empty: none

  bool switchPlans = false;
  RankOptions grid;
  AdaptChoices adapt;
  DeviceChoice device;
  /// Variants to compile to; nothing: one form of the program.
  std::optional<VariantOptions> variants;
  int threads = 0;
  int64_t memoryLimit = 0;
  bool quiet = false;
  JitOptions jit;
};

/// Reads the command line; the options are registered here.
llvm::Expected<TrainOptions> parseOptions(int argc, char **argv);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_TRAIN_OPTIONS_H
