// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the manifest of a program for a GPU says of its kernels.

#ifndef MOIRA_RUNTIME_SESSION_DEVICESPEC_H
#define MOIRA_RUNTIME_SESSION_DEVICESPEC_H

#include <cstdint>
#include <string>
#include <vector>

namespace moira::runtime {

/// A part of the bundle's GPU code.
struct CodeRange {
  int64_t offset = 0, bytes = 0; ///< no bytes: it is not there
};

/// Kernels that are loaded together.
struct ImageSpec {
  std::string name;
  std::string arch;     ///< "sm_80", "sm_90a"
  std::string emulated; ///< symbol of a moira_emu_module; empty: none
  CodeRange ptx, cubin;
};

struct KernelSpec {
  std::string name;
  int32_t image = 0;
  int32_t threads = 1;             ///< of a block
  int64_t shared = 0;              ///< bytes of dynamic shared memory
  std::vector<int64_t> parameters; ///< bytes of each
};

struct DeviceSpec {
  uint32_t abi = 0; ///< MOIRA_DEVICE_ABI_VERSION
  std::vector<ImageSpec> images;
  std::vector<KernelSpec> kernels; ///< by the number that launches have
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_DEVICESPEC_H
