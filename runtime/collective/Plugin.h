// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transports in shared libraries of their own, so that the runtime needs none
// of the libraries that they need.

#ifndef MOIRA_RUNTIME_COLLECTIVE_PLUGIN_H
#define MOIRA_RUNTIME_COLLECTIVE_PLUGIN_H

#include "collective/Transport.h"

#include <memory>

namespace moira::runtime {

/// Raised with every change of Transport.h: a plug-in of another one is
/// refused.
inline constexpr uint32_t transportInterface = 1;

/// What `moira_open_transport` fills.
struct PluginAnswer {
  Transport *transport = nullptr; ///< the caller's, to be deleted
  Status status;
};

/// The one function that a plug-in exports, as `moira_open_transport`.
using PluginEntry = void (*)(uint32_t interface, PluginAnswer *answer);

/// Loads libmoira_`name`.so and opens its transport. Looks at `path` if that is
/// not empty, then beside the runtime (or the program that contains it), in
/// ../lib from there, and where the system looks. The library stays loaded.
/// MOIRA_UNAVAILABLE where there is none, with the loader's reasons.
Result<std::unique_ptr<Transport>> openPlugin(const std::string &name,
                                              const std::string &path = "");

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_PLUGIN_H
