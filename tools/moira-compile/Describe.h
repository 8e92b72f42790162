// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_COMPILE_DESCRIBE_H
#define MOIRA_TOOLS_MOIRA_COMPILE_DESCRIBE_H

#include "cost/Calibration.h"
#include "session/BundleFile.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

namespace moira::tools {

/// Prints what a bundle holds, for people. Times are predicted for the
/// calibrated machine, or an assumed one.
llvm::Error describe(const runtime::BundleContents &contents,
                     llvm::StringRef name,
                     const std::optional<runtime::Calibration> &calibration,
                     llvm::raw_ostream &stream);

/// Prints the manifest, indented, with a member "sections" that has the sizes
/// in bytes of the bundle's parts, and in variants for several ranks a member
/// "predicted" with the rows of each rank, seconds and bytes.
llvm::Error describeJson(const runtime::BundleContents &contents,
                         const std::optional<runtime::Calibration> &calibration,
                         llvm::raw_ostream &stream);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_COMPILE_DESCRIBE_H
