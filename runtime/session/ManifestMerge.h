// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One manifest of several, for compilers that make variants apart.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTMERGE_H
#define MOIRA_RUNTIME_SESSION_MANIFESTMERGE_H

#include "session/Manifest.h"

namespace moira::runtime {

/// Adds the variants of `other` to the entries of `grid`, which must have the
/// same inputs, results, layers and parameters: a session has one set of
/// weights, whatever runs. Residuals may differ; variants then list their own.
/// Entries of optimizers and pack functions stay those of `grid`. Fails with
/// MOIRA_INVALID_ARGUMENT, which names the first difference; `grid` is then as
/// it was.
Status mergeVariants(Manifest &grid, const Manifest &other);

/// A bundle's manifest with another `qualified` for variants of an entry of the
/// grid for `ranks` ranks, and of its way back where `backward` is set. Fails
/// as Manifest::parse does.
Result<std::string>
qualifyVariants(std::string_view json, int32_t ranks, const std::string &entry,
                bool backward,
                const std::vector<std::pair<std::string, std::string>> &levels);

/// A bundle's manifest with more notes.
Result<std::string> addNotes(std::string_view json,
                             const std::vector<std::string> &notes);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTMERGE_H
