// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels for moe.grouped_matmul, one builder per style of pipeline
// (docs/gpu.md). A kernel is an llvm.func of a gpu.module, in the scf, arith,
// math, LLVM and NVVM dialects, for `moe-lower-gpu-module`.

#ifndef MOIRA_CONVERSION_MOETOGPU_GROUPEDKERNEL_H
#define MOIRA_CONVERSION_MOETOGPU_GROUPEDKERNEL_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::moe {

enum class GPUStyle {
  CpAsync,  ///< cp.async, ldmatrix, mma.sync: sm_80 and up
  Warpgroup ///< bulk tensor copies, mbarriers, wgmma: sm_90a
};

/// Tile and pipeline of a kernel.
struct GPUSchedule {
  GPUStyle style = GPUStyle::CpAsync;
  /// Rows, columns (of each weight) and depth of a tile.
  int64_t tileM = 128, tileN = 128, tileK = 32;
  int64_t stages = 4;
  /// Warps along rows and columns; with Warpgroup consumer warpgroups along
  /// rows, and one more that copies.
  int64_t warpsM = 2, warpsN = 2;

  int64_t threads() const;
};

/// What a kernel computes: a moe.grouped_matmul whose shapes but the number of
/// rows are static.
struct GroupedKernel {
  std::string name;
  Type element; ///< of rows and weights: bf16 or f16
  Type result;  ///< bf16, f16 or f32
  int64_t experts = 1, n = 1, k = 1;
  int64_t weights = 1;
  /// Weights `[E, K, N]` instead of `[E, N, K]`.
  bool transposed = false;
  /// Mode `contraction`: result `[E, N, K]` from rows `[R, N]` and `[R, K]`.
  bool contraction = false;
  bool padded = false, gather = false;
  /// Element types of the operands.
  SmallVector<Type> bias, vectors, elements, scalars;
  /// Takes what the op's region takes; null: rounds the one sum.
  Block *epilogue = nullptr;
  GPUSchedule schedule;

  /// Bytes of dynamic shared memory.
  int64_t sharedBytes() const;
};

/// The parameters of a kernel, in order: with Warpgroup first the tensor maps
/// of the rows `[R, K]` (or `[E, P, K]`) and of each weight, by value; then
/// pointers to the rows (both, in mode contraction), sizes, weights, bias,
/// gather, vectors, elements, scalars and the result; then the i32 rows of a
/// padded group (0: ragged). With Warpgroup the pointers to rows and weights
/// are not there.

/// Whether the style can do the kernel; else why not.
LogicalResult checkKernel(const GroupedKernel &kernel,
                          function_ref<InFlightDiagnostic()> report);

/// Builds the kernel into `module`, which checkKernel has accepted.
LLVM::LLVMFuncOp buildGroupedKernel(gpu::GPUModuleOp module,
                                    const GroupedKernel &kernel);

/// Boxes of the tensor maps that a Warpgroup kernel expects: elements along the
/// two inner dimensions of rows and weights.
struct KernelBoxes {
  int64_t rows[2], weights[2];
};
KernelBoxes getBoxes(const GroupedKernel &kernel);

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_MOETOGPU_GROUPEDKERNEL_H
