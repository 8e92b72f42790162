// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_SUPPORT_SLOTTABLE_H
#define MOIRA_TOOLS_SUPPORT_SLOTTABLE_H

#include "session/Manifest.h"

#include "llvm/Support/Error.h"

namespace moira::tools {

/// The table of --slot-table, [ranks, slots] as in moira_plan, for the layers
/// of an entry, which must have one placement. `text` is a file, a JSON list
/// with a list of units for each rank, or "permuted:SEED": all places in a
/// random order. Empty for an empty text.
llvm::Expected<std::vector<int32_t>>
makeSlotTable(llvm::StringRef text, const runtime::EntrySpec &entry);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_SLOTTABLE_H
