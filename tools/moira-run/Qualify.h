// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checking all variants of a program on the machine that runs them
// (docs/variants.md, "Qualification").

#ifndef MOIRA_TOOLS_MOIRA_RUN_QUALIFY_H
#define MOIRA_TOOLS_MOIRA_RUN_QUALIFY_H

#include "Verify.h"

#include "llvm/Support/JSON.h"

#include <optional>

namespace moira::tools {

/// What a variant gave.
struct VariantRun {
  std::string variant, numerics;
  double seconds = 0; ///< of its step
  std::vector<runtime::ResultTensor> results;
  std::optional<Gradients> gradients;
  /// Compared with the oracle; nothing where the results are the bits of the
  /// first variant of its class that was.
  std::optional<Verification> verification;
  bool passed = false;
};

/// Compares what all variants gave: the first of each numerics class with the
/// oracle, others with its bits, or with the oracle where they differ or where
/// there are gradients, which add over ranks in an order of their own.
llvm::Error qualify(const LoadedProgram &program, const RunOptions &options,
                    const Inputs &inputs, std::vector<VariantRun> &runs,
                    Progress &progress);

/// A line for each variant, or a list.
void printQualified(llvm::ArrayRef<VariantRun> runs, llvm::raw_ostream &stream);
llvm::json::Array qualifiedToJson(llvm::ArrayRef<VariantRun> runs);

/// Writes into the bundle which variants have passed ("target"), and which have
/// not ("none").
llvm::Error writeQualified(const RunOptions &options,
                           const runtime::EntrySpec &entry,
                           llvm::ArrayRef<VariantRun> runs);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_QUALIFY_H
