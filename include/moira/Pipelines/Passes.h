// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass that checks the contracts between phases.

#ifndef MOIRA_PIPELINES_PASSES_H
#define MOIRA_PIPELINES_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::moe {

#define GEN_PASS_DECL
#include "moira/Pipelines/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "moira/Pipelines/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_PIPELINES_PASSES_H
