// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPU modules of the NVVM dialect to PTX, and what NVIDIA's assembler says of
// it.

#ifndef MOIRA_TARGET_PTX_H
#define MOIRA_TARGET_PTX_H

#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <string>
#include <vector>

namespace mlir::gpu {
class GPUModuleOp;
} // namespace mlir::gpu

namespace moira {

/// A GPU to compile for: "sm_80", "sm_90a".
struct GPUTarget {
  std::string chip = "sm_80";
  unsigned optLevel = 3;
};

/// Translates a GPU module in the LLVM and NVVM dialects (what
/// `moe-lower-gpu-module` leaves) to PTX text. The module is not changed.
/// Errors come as MLIR diagnostics too.
llvm::Expected<std::string> translateToPTX(mlir::gpu::GPUModuleOp module,
                                           const GPUTarget &target);

/// What ptxas tells of one kernel.
struct KernelResources {
  std::string kernel;
  int64_t registers = 0;
  int64_t stackBytes = 0, spillStores = 0, spillLoads = 0; ///< bytes
  int64_t sharedBytes = 0;                                 ///< static
  int64_t barriers = 0;
};

struct Assembly {
  std::unique_ptr<llvm::MemoryBuffer> cubin;
  std::vector<KernelResources> kernels;
  /// What ptxas warned of, such as products of warpgroups that it had to run
  /// one after the other.
  std::vector<std::string> warnings;
};

/// The assembler: $MOIRA_PTXAS, one on PATH, or that of /usr/local/cuda; ""
/// when there is none.
std::string findPtxas();
/// Its path and what it says of its version: kernels that it makes may differ
/// where this does. "" when there is none.
std::string describePtxas();

/// Assembles PTX. Fails when there is no ptxas, and with its first error.
llvm::Expected<Assembly> assemblePTX(llvm::StringRef ptx,
                                     const GPUTarget &target);

/// Reads the lines that `ptxas -v` writes. Exposed for tests.
void parsePtxasOutput(llvm::StringRef text, Assembly &assembly);

} // namespace moira

#endif // MOIRA_TARGET_PTX_H
