// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checking all variants of a program when it is compiled, on a twin with small
// tensors (docs/variants.md, "Qualification").

#ifndef MOIRA_TOOLS_SUPPORT_TWIN_H
#define MOIRA_TOOLS_SUPPORT_TWIN_H

#include "moira/JIT/Variants.h"

namespace moira::tools {

/// What became of the twin.
struct TwinOutcome {
  /// By grid, what `qualifyVariants` takes: variants whose results were the
  /// oracle's bits have the level "twin", others "none".
  struct Grid {
    int32_t ranks = 1;
    std::string entry;
    std::vector<std::pair<std::string, std::string>> levels;
  };
  std::vector<Grid> grids;
  /// Why grids, or all of them, were not checked, and what failed.
  std::vector<std::string> notes;
};

/// Compiles the twin of `module` (phase input; cloned) as `variants` says and
/// as its own oracle, and runs every variant on each grid, ranks as threads of
/// this process, with random weights and inputs. Programs with gradients, and
/// those whose inputs or results are more than rows of floats, have no twin
/// yet: a note says so. The error is one of running, not of a variant that
/// fails.
llvm::Expected<TwinOutcome> checkTwin(mlir::ModuleOp module,
                                      const JitOptions &options,
                                      const VariantOptions &variants);

/// The manifest of a merged module with what the twin has shown.
llvm::Expected<std::string> addOutcome(llvm::StringRef manifest,
                                       const TwinOutcome &outcome);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_TWIN_H
