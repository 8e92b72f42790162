// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that make one rank's program, and its unsharded counterpart:
// factories and `registerMoiraShardingPasses`.

#ifndef MOIRA_SHARDING_PASSES_H
#define MOIRA_SHARDING_PASSES_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::moe {

#define GEN_PASS_DECL
#include "moira/Sharding/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "moira/Sharding/Passes.h.inc"

} // namespace mlir::moe

#endif // MOIRA_SHARDING_PASSES_H
