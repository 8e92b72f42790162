// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_OUTPUTS_H
#define MOIRA_TOOLS_MOIRA_RUN_OUTPUTS_H

#include "session/FileTensors.h"
#include "session/Session.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

namespace moira::tools {

/// Checks, before anything runs, that results of these types can be written to
/// `path`.
llvm::Error checkOutput(llvm::StringRef path,
                        llvm::ArrayRef<runtime::TensorSpec> specs);

/// Writes the results, whole or not at all: one to .npy, any number to
/// .safetensors, where a result without a name is called "result0" and so on.
/// `more` may be null.
llvm::Error writeOutput(llvm::StringRef path,
                        llvm::ArrayRef<runtime::TensorSpec> specs,
                        llvm::ArrayRef<runtime::ResultTensor> results,
                        const runtime::FileTensors *more);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_OUTPUTS_H
