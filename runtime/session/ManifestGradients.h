// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the manifest that training needs: gradients, residuals, and where
// elements of packed parameters stand.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTGRADIENTS_H
#define MOIRA_RUNTIME_SESSION_MANIFESTGRADIENTS_H

#include "session/Manifest.h"
#include "session/ManifestReader.h"

namespace moira::runtime {

GradientSpec readGradient(const Reader &json);
Json gradientToJson(const GradientSpec &gradient);

/// Reads and checks `packing` of a parameter whose other fields are known.
PackingSpec readPacking(const Reader &json, const ParameterSpec &parameter);
Json packingToJson(const PackingSpec &packing);

/// Checks what entries say of each other and of parameters: that a way back
/// takes what its entry leaves, and gives gradients of what there is.
void checkGradients(const Reader &entries, const Manifest &manifest);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTGRADIENTS_H
