// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the moe dialect: factories and `registerMoEPasses`.

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_H
#define MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::moe {

#define GEN_PASS_DECL
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_H
