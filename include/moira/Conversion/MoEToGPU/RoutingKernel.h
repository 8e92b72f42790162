// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels around the grouped products (docs/gpu.md): the router, who stands in
// which row, and rows on their way. All run on any GPU from sm_80 on, with
// kRoutingThreads per block, and any number of blocks.

#ifndef MOIRA_CONVERSION_MOETOGPU_ROUTINGKERNEL_H
#define MOIRA_CONVERSION_MOETOGPU_ROUTINGKERNEL_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::moe {

/// Threads per block, and the warps of them. A warp has a token, or an expert.
constexpr int64_t kRoutingThreads = 128, kRoutingWarps = 4;

/// Experts and choices that the router's kernel takes.
constexpr int64_t kMaxGateExperts = 1024, kMaxGateChoices = 32;

struct GateKernel {
  std::string name;
  RouterAttr router;
  Type logits; ///< f32, bf16 or f16
  int64_t experts = 1, choices = 1;
  bool bias = false;

  int64_t sharedBytes() const { return kRoutingWarps * experts * 8; }
};

/// k(logits, [bias], ids, weights, i32 tokens): moe.gate by token.
LLVM::LLVMFuncOp buildGateKernel(gpu::GPUModuleOp module,
                                 const GateKernel &kernel);

struct AssignKernel {
  std::string name;
  Order order = Order::ChoiceMajor; ///< or TokenMajor
  int64_t experts = 1, choices = 1;
  bool padded = false;
};

/// k(ids, counts, i32 tokens, i32 capacity): how many pairs each expert has, at
/// most `capacity` of them: moe.count, and the sizes of moe.assign.
LLVM::LLVMFuncOp buildCountKernel(gpu::GPUModuleOp module,
                                  const AssignKernel &kernel);

/// k(ids, sizes, slots, i32 tokens, i32 capacity): the slots of moe.assign,
/// from the sizes of the kernel before. Slots of unused choices are -1.
LLVM::LLVMFuncOp buildAssignKernel(gpu::GPUModuleOp module,
                                   const AssignKernel &kernel);

struct MovementKernel {
  std::string name;
  Type element; ///< f32, bf16 or f16
  int64_t features = 1, choices = 1;
  bool weights = false; ///< f32
};

/// k(x, slots, [weights], rows, i32 tokens, i32 bound): moe.dispatch.
LLVM::LLVMFuncOp buildDispatchKernel(gpu::GPUModuleOp module,
                                     const MovementKernel &kernel);

/// k(rows, slots, [weights], y, i32 tokens, i32 bound): moe.combine, each
/// element one chain of fused multiply-adds in choice order, rounded once.
LLVM::LLVMFuncOp buildCombineKernel(gpu::GPUModuleOp module,
                                    const MovementKernel &kernel);

/// k(sources, i32 bound): -1 for all rows, and
/// k(slots, sources, i32 pairs, i32 bound, i32 choices): moe.sources.
LLVM::LLVMFuncOp buildClearKernel(gpu::GPUModuleOp module, StringRef name);
LLVM::LLVMFuncOp buildSourcesKernel(gpu::GPUModuleOp module, StringRef name);

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_MOETOGPU_ROUTINGKERNEL_H
