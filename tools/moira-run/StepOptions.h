// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// The options of a run whose steps differ.

#ifndef MOIRA_TOOLS_MOIRA_RUN_STEPOPTIONS_H
#define MOIRA_TOOLS_MOIRA_RUN_STEPOPTIONS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moira::tools {

struct StepOptions {
  int64_t steps = 0; ///< 0: all steps are the same
  /// A preset of LoadTrace ("zipf:1.5") or a .npy file; empty: gates choose.
  std::string loads;
  bool isFile = false;
  uint64_t seed = 0;  ///< of a preset
  int64_t spread = 1; ///< steps for each of the file's
  /// Tokens of all ranks, drawn anew in each step.
  std::optional<std::pair<int64_t, int64_t>> tokens;
  /// Scalar inputs with the values that they may have.
  struct Varied {
    std::string name;
    std::vector<double> values;
  };
  std::vector<Varied> varied;

  /// Steps that each draw of tokens and numbers holds for.
  int64_t hold = 1;
  bool comparePlans = false; ///< also time every fixed plan
  std::string picture;       ///< .svg; empty: none

  bool active() const { return steps > 0; }
  /// The option that asks for steps that differ; empty: none.
  llvm::StringRef asked() const;
};

/// The command line's part. A struct, so that options are registered when main
/// asks for them.
struct StepCommandLine {
  explicit StepCommandLine(llvm::cl::OptionCategory &category);

  llvm::Error read(StepOptions &options) const;

  llvm::cl::opt<std::string> steps, loads, hold, picture;
  llvm::cl::opt<bool> comparePlans;
  llvm::cl::list<std::string> vary;
};

/// Reads "log-uniform:16-4096"; nothing where the text is of another kind.
llvm::Expected<std::optional<std::pair<int64_t, int64_t>>>
parseTokenRange(llvm::StringRef text);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_STEPOPTIONS_H
