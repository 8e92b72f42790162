// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Lowering of moe.grouped_matmul in buffer form to loops over register tiles.

#ifndef MOIRA_CONVERSION_MOETOCPU_GROUPEDMATMUL_H
#define MOIRA_CONVERSION_MOETOCPU_GROUPEDMATMUL_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::moe {

/// What the register tile depends on. Nothing here names a processor.
struct CPUTileOptions {
  /// Width of a vector register in bits.
  unsigned vectorBits = 512;
  /// Number of vector registers.
  unsigned vectorRegisters = 32;
  /// Whether there is a dot product of pairs of bf16.
  bool dotBF16 = false;

  /// Rows of a full register tile.
  int64_t rowTile() const { return 6; }
  /// Vectors per row of a register tile, over all weights: as many accumulators
  /// as leave room for the weights of one step and a broadcast row element.
  int64_t vectorsPerRow() const { return vectorRegisters >= 32 ? 4 : 2; }
  /// Columns of a panel that is made for one work item: 256 bytes of sums.
  int64_t scratchWidth(FloatType accumulator) const {
    return 2048 / accumulator.getIntOrFloatBitWidth();
  }
};

/// Lowers grouped matmuls over panels, in both directions, and the contraction
/// over ragged rows to an scf.parallel over (block of rows, range of panels),
/// each running register tiles; what is left, such as weights in `nk` or `kn`
/// and dynamic shapes, to plain loops.
void populateGroupedMatmulToCPUPatterns(RewritePatternSet &patterns,
                                        const CPUTileOptions &options);

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_MOETOCPU_GROUPEDMATMUL_H
