// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the conversion rooms.

#ifndef MOIRA_CONVERSION_PASSES_H
#define MOIRA_CONVERSION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::gpu {
class GPUModuleOp;
} // namespace mlir::gpu

namespace mlir::moe {

/// Attributes of a module at the end of phase `target`: what the program says
/// about itself (docs/bundle.md), and the code of its GPU modules, one after
/// the other.
inline constexpr llvm::StringLiteral kManifestAttrName = "moira.manifest";
inline constexpr llvm::StringLiteral kGPUCodeAttrName = "moira.gpu_code";
/// A number of the module that is added to those of its kernels: 0, until
/// modules are put together (lib/JIT).
inline constexpr llvm::StringLiteral kKernelBaseName = "moira_kernel_base";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "moira/Conversion/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_PASSES_H
