// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that make and keep variants of an entry: factories and
// `registerMoiraVariantsPasses`.

#ifndef MOIRA_VARIANTS_PASSES_H
#define MOIRA_VARIANTS_PASSES_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::moe {

#define GEN_PASS_DECL
#include "moira/Variants/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "moira/Variants/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_VARIANTS_PASSES_H
