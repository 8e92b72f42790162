// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of a program's variants a run takes.

#ifndef MOIRA_TOOLS_MOIRA_RUN_VARIANTCHOICE_H
#define MOIRA_TOOLS_MOIRA_RUN_VARIANTCHOICE_H

#include "Options.h"

#include "session/Manifest.h"

namespace moira::tools {

/// The variant that --variant, or --r and --schedule, name for steps of at most
/// `rows` rows on a rank; empty: the session chooses by rows. The error lists
/// the variants that there are.
llvm::Expected<std::string> chooseVariant(const runtime::EntrySpec &entry,
                                          const RunOptions &options,
                                          int64_t rows);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_VARIANTCHOICE_H
