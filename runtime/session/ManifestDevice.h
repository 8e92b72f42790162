// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the manifest that a GPU needs.

#ifndef MOIRA_RUNTIME_SESSION_MANIFESTDEVICE_H
#define MOIRA_RUNTIME_SESSION_MANIFESTDEVICE_H

#include "session/DeviceSpec.h"
#include "session/ManifestReader.h"

namespace moira::runtime {

/// Reads and checks `device`: kernels name images that there are.
DeviceSpec readDevice(const Reader &json);
Json deviceToJson(const DeviceSpec &device);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFESTDEVICE_H
