// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels for moe.grouped_matmul, one builder per style of pipeline
// (docs/gpu.md). A kernel is an llvm.func of a gpu.module, in the scf, arith,
// math, LLVM and NVVM dialects, for `moe-lower-gpu-module`.

#ifndef MOIRA_CONVERSION_MOETOGPU_GROUPEDKERNEL_H
#define MOIRA_CONVERSION_MOETOGPU_GROUPEDKERNEL_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/MoE/IR/PanelForm.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::moe {

enum class GPUStyle {
  CpAsync,   ///< cp.async, ldmatrix, mma.sync: sm_80 and up
  Warpgroup, ///< bulk tensor copies, mbarriers, wgmma: sm_90a
  Simt       ///< cp.async, multiply-adds of f32: sm_80 and up
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
  Type element; ///< of rows and weights: bf16 or f16; f32 with Simt
  SmallVector<Type> results; ///< of each, bf16, f16 or f32
  int64_t experts = 1, n = 1, k = 1;
  int64_t weights = 1;
  /// One sum over the products of all weights, each with rows of its own.
  bool chained = false;
  WeightLayout layout = WeightLayout::NK;
  /// Columns of a panel, where the layout has panels.
  int64_t panelWidth = 0;
  /// Blocks of N that panels are packed in, and blocks of K that are summed as
  /// chains of their own (#moe.hidden). One of them is 1, and
  /// chained products have one.
  int64_t columnBlocks = 1, chains = 1;
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
  /// Bytes of an element of rows and weights.
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }
  /// Accumulators of an element of the result.
  int64_t sums() const { return chained ? 1 : weights; }
  /// Parts of the contraction that follow each other: products of a chain, or
  /// chains; and the length of one.
  int64_t segments() const { return chained ? weights : chains; }
  int64_t segmentLength() const { return chained ? k : k / chains; }
  /// Columns of the result, and of one block of them: a tile is of one block.
  int64_t columns() const { return contraction ? k : n; }
  int64_t blockColumns() const { return columns() / columnBlocks; }
  bool hasPanels() const { return panelWidth > 0; }
  /// Whether columns of weights are contiguous, not steps of the contraction.
  bool hasColumnsInside() const {
    return layout == WeightLayout::KN || layout == WeightLayout::Panels;
  }
};

/// The parameters of a kernel, in order: with Warpgroup first the tensor maps
/// of the rows `[R, K]` (or `[E, P, K]`; both, in mode contraction) and of each
/// weight, by value; then pointers to the rows (all of them), sizes, weights,
/// bias, gather, vectors, elements, scalars and the results; then the i32 rows
/// of a padded group (0: ragged). With Warpgroup the pointers to rows and
/// weights are not there.

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
