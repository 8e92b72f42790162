// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Entries and rows of the parameter table, one by one.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTPARTS_H
#define MOIRA_RUNTIME_SESSION_MANIFESTPARTS_H

#include "session/Manifest.h"
#include "session/ManifestReader.h"

namespace moira::runtime {

/// Reads and checks what can be checked of an entry alone.
EntrySpec readEntry(const Reader &json);
Json entryToJson(const EntrySpec &entry);

ParameterSpec readParameter(const Reader &json);
Json parameterToJson(const ParameterSpec &parameter);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTPARTS_H
