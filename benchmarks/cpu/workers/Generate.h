// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the data file of a case: inputs, weights, and the result that a plain
// computation gives for them.

#ifndef MOIRA_BENCHMARKS_CPU_GENERATE_H
#define MOIRA_BENCHMARKS_CPU_GENERATE_H

#include "Case.h"

namespace moira::bench {

/// Writes `what.file`. Returns what went wrong, or nothing.
std::string generate(const Case &what);

} // namespace moira::bench

#endif // MOIRA_BENCHMARKS_CPU_GENERATE_H
