// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the builders of grouped kernels share: which tile is next, where
// operands stand, and what becomes of the sums.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDCOMMON_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDCOMMON_H

#include "KernelBuilder.h"

#include "moira/Conversion/MoEToGPU/GroupedKernel.h"

namespace mlir::moe::detail {

/// The parameters of a kernel by what they are.
struct KernelOperands {
  SmallVector<Value> maps;    ///< rows, weights
  SmallVector<Value> rows;    ///< none with Warpgroup
  SmallVector<Value> weights; ///< none with Warpgroup
  Value sizes, gather, stride;
  SmallVector<Value> bias, vectors, elements, scalars, results;
};

/// Makes the function with its parameters.
std::unique_ptr<KernelBuilder> beginKernel(gpu::GPUModuleOp module,
                                           const GroupedKernel &kernel,
                                           KernelOperands &operands);

/// A tile of the result: in mode rows `firstRow` is its first row and
/// `endRow` the end of its group; in mode contraction they bound the group.
/// `column` and, in mode contraction, `resultRow` are the tile's place. Of a
/// block of columns (GroupedKernel::columnBlocks) `columnInBlock` is the tile's
/// place, `block` its number, and `endColumn` where it ends.
struct Tile {
  Value expert, firstRow, endRow, column, resultRow;
  Value block, columnInBlock, endColumn;
};

/// Emits the loop over the tiles of this block: tile blocks t, t + blocks, ...
/// of all groups, found by scanning `sizes` on. `carried` goes through all
/// tiles.
SmallVector<Value>
forEachTile(KernelBuilder &b, const GroupedKernel &kernel,
            const KernelOperands &operands, ValueRange carried,
            function_ref<SmallVector<Value>(const Tile &, ValueRange)> body);

/// The sums of a thread, laid out as mma.sync m16n8 and wgmma m64 lay them out:
/// sum(w, i, j, v) of weight w, in 16 rows i and 8 columns j.
struct Fragment {
  int64_t rowTiles = 1, columnTiles = 1;
  /// First row of each 16 rows (relative to the tile), this thread's lane
  /// included; first column of the 8, likewise.
  SmallVector<Value> rows;
  Value column;
  function_ref<Value(int64_t weight, int64_t i, int64_t j, int64_t v)> sum;
};

/// Emits bias or 0 for each sum: starts[w][j][v % 2], the same for all rows.
SmallVector<SmallVector<SmallVector<Value>>>
emitStarts(KernelBuilder &b, const GroupedKernel &kernel,
           const KernelOperands &operands, const Tile &tile, Value column,
           int64_t columnTiles);

/// Emits the epilogue and the stores.
void emitResults(KernelBuilder &b, const GroupedKernel &kernel,
                 const KernelOperands &operands, const Tile &tile,
                 const Fragment &fragment);

/// Adds the results of chains as `#moe.hidden` says: in pairs while their
/// number is even, then in order. At most `depth(chains)` are held.
class ChainFolder {
public:
  ChainFolder(KernelBuilder &b, int64_t chains);
  static int64_t depth(int64_t chains);
  /// The sums of the next chain.
  void add(ArrayRef<Value> sums);
  /// After the last one.
  SmallVector<Value> take();

private:
  struct Part {
    int64_t level;
    SmallVector<Value> sums;
  };
  KernelBuilder &b;
  int64_t levels;
  SmallVector<Part> parts;
};

LLVM::LLVMFuncOp buildCpAsyncKernel(gpu::GPUModuleOp module,
                                    const GroupedKernel &kernel);
LLVM::LLVMFuncOp buildSimtKernel(gpu::GPUModuleOp module,
                                 const GroupedKernel &kernel);
LLVM::LLVMFuncOp buildWarpgroupKernel(gpu::GPUModuleOp module,
                                      const GroupedKernel &kernel);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDCOMMON_H
