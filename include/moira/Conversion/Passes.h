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

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "moira/Conversion/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_PASSES_H
