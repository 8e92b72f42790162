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
  /// Operands of the op that there are. By expert only the first two.
  bool bias = false, mask = false, replay = false, sample = false;
  bool topK = false, threshold = false;

  /// Per warp a key and a value of each expert, and the groups' scores.
  int64_t sharedBytes() const {
    int64_t groups =
        router.getGroups() > router.getKeep() ? router.getGroups() : 0;
    return kRoutingWarps * (experts * 8 + groups * 4);
  }
};

/// k(logits, [bias], [mask], [replay], [sample], ids, weights, i32 tokens,
/// [i32 k], [f32 threshold]): moe.gate by token. The mask has a byte per token.
LLVM::LLVMFuncOp buildGateKernel(gpu::GPUModuleOp module,
                                 const GateKernel &kernel);

/// moe.gate by expert, three kernels in this order:
/// k(logits, [bias], [mask], ids, weights, i32 tokens),
/// k(ids, weights, i32 tokens, i32 capacity), and, where the router normalises
/// or scales, k(weights, i32 tokens). In between ids hold keys.
LLVM::LLVMFuncOp buildExpertScoresKernel(gpu::GPUModuleOp module,
                                         const GateKernel &kernel);
LLVM::LLVMFuncOp buildExpertChoiceKernel(gpu::GPUModuleOp module,
                                         const GateKernel &kernel);
LLVM::LLVMFuncOp buildExpertWeightsKernel(gpu::GPUModuleOp module,
                                          const GateKernel &kernel);

struct NoiseKernel {
  std::string name;
  Distribution distribution = Distribution::Normal;
  int64_t columns = 1, layer = 0;
};

/// k(out, i32 rows, i64 seed, i64 step, i64 first): moe.noise.
LLVM::LLVMFuncOp buildNoiseKernel(gpu::GPUModuleOp module,
                                  const NoiseKernel &kernel);

struct AssignKernel {
  std::string name;
  Order order = Order::ChoiceMajor;
  int64_t experts = 1, choices = 1;
  bool padded = false, blocks = false;

  /// Dynamic shared memory of the orders by priority; 0 for the others.
  int64_t sharedBytes() const;
};

/// k(ids, [blocks], counts, i32 tokens, i32 capacity, [i32 number of blocks]):
/// how many pairs each expert has, at most `capacity` of them per block:
/// moe.count, and the sizes of moe.assign.
LLVM::LLVMFuncOp buildCountKernel(gpu::GPUModuleOp module,
                                  const AssignKernel &kernel);

/// k(ids, [priority], [blocks], sizes, slots, [scratch], i32 tokens,
/// i32 capacity, [i32 number of blocks]): the slots of moe.assign, from the
/// sizes of the kernel before. Slots of unused choices are -1. The orders by
/// priority sort, in a scratch memory of two i64 for each pair.
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
