// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the manifest that says how layers are spread over ranks and what
// their costs depend on.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTLAYERS_H
#define MOIRA_RUNTIME_SESSION_MANIFESTLAYERS_H

#include "session/Manifest.h"
#include "session/ManifestReader.h"

namespace moira::runtime {

/// Reads and checks a layer of an entry that `ranks` ranks run.
LayerSpec readLayer(const Reader &json, int32_t ranks);
Json layerToJson(const LayerSpec &layer);

/// Checks what layers and variants say of each other and of parameters.
void checkLayers(const Reader &entries, const Manifest &manifest);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTLAYERS_H
