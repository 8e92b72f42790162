// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The program of a case, as text.

#ifndef MOIRA_BENCHMARKS_CPU_PROGRAM_H
#define MOIRA_BENCHMARKS_CPU_PROGRAM_H

#include "Case.h"

namespace moira::bench {

/// A module with one entry, "main". Its parameters have the names of the data
/// file's tensors.
std::string programText(const Case &what);

/// Fills an input that the data file does not have.
void fillInput(const Case &what, const std::string &name, char *data,
               int64_t bytes);

} // namespace moira::bench

#endif // MOIRA_BENCHMARKS_CPU_PROGRAM_H
