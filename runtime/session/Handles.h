// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C API's handles, for code that makes programs by other means than
// bundles (a JIT) and hands them out through moira/runtime.h.

#ifndef MOIRA_RUNTIME_SESSION_HANDLES_H
#define MOIRA_RUNTIME_SESSION_HANDLES_H

#include "moira/runtime.h"
#include "session/Program.h"
#include "session/Session.h"

namespace moira::runtime {

/// A handle for moira_bundle_close and the functions that take a bundle.
moira_bundle *wrapProgram(std::shared_ptr<const Program> program);

/// The session behind a handle; owned by the handle.
Session &unwrap(moira_session *session);

/// Sets the calling thread's error message and returns the code, for
/// functions that behave like those of moira/runtime.h.
int32_t reportStatus(const Status &status);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_HANDLES_H
