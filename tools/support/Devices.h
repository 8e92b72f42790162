// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tools say of GPUs.

#ifndef MOIRA_TOOLS_SUPPORT_DEVICES_H
#define MOIRA_TOOLS_SUPPORT_DEVICES_H

#include "moira/Pipelines/Pipelines.h"
#include "support/CommandLine.h"

#include "device/Device.h"

#include <memory>

namespace moira::tools {

/// The options of a tool that runs programs.
struct DeviceCommandLine {
  explicit DeviceCommandLine(llvm::cl::OptionCategory &category);

  llvm::cl::opt<std::string> device, arch, check;
};

/// What steps run on.
struct DeviceChoice {
  std::string kind = "cpu"; ///< "cpu", "emulated", "cuda"
  std::string arch;         ///< "sm_80", "sm_90a"; empty for "cpu"
  emulator::Checks checks;

  bool isGPU() const { return kind != "cpu"; }
  /// How to compile for it.
  DeviceOptions options() const;
  /// Opens it; null for "cpu". The GPU of a process has the number `ordinal`.
  llvm::Expected<std::shared_ptr<runtime::Device>> open(int ordinal) const;
};

llvm::Expected<DeviceChoice> readDevice(const DeviceCommandLine &line);

/// The architecture that an option names.
llvm::Expected<std::string> readArch(llvm::StringRef option,
                                     llvm::StringRef text);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_DEVICES_H
