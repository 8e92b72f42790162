// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that make gradients: factories and `registerMoiraAutodiffPasses`.

#ifndef MOIRA_AUTODIFF_PASSES_H
#define MOIRA_AUTODIFF_PASSES_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::moe {

#define GEN_PASS_DECL
#include "moira/Autodiff/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "moira/Autodiff/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_AUTODIFF_PASSES_H
