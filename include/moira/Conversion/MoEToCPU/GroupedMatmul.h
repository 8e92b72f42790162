// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Lowering of moe.grouped_matmul in buffer form to loops over register tiles.

#ifndef MOIRA_CONVERSION_MOETOCPU_GROUPEDMATMUL_H
#define MOIRA_CONVERSION_MOETOCPU_GROUPEDMATMUL_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/PatternMatch.h"

#include <algorithm>

namespace mlir::moe {

/// What tiles and blocks depend on. Nothing here names a processor.
struct CPUTileOptions {
  /// Width of a vector register in bits.
  unsigned vectorBits = 512;
  /// Number of vector registers.
  unsigned vectorRegisters = 32;
  /// Whether there is a dot product of pairs of bf16.
  bool dotBF16 = false;
  /// Rows of a full register tile, and its vectors per row over all weights (0:
  /// 4 with 32 registers, else 2): as many accumulators as leave room for the
  /// weights of one step and a broadcast row element.
  unsigned rowTile = 6;
  unsigned vectorsPerRow = 0;
  /// Bytes of the cache that one core has to itself (the second level). A block
  /// of a panel, the next one, and the staged rows fit it together.
  int64_t cacheBytes = int64_t{1} << 20;
  /// Up to so many rows memory is the limit, not arithmetic.
  unsigned streamRows = 7;
  /// The level of cache that the next block is fetched to while this one is
  /// used, 1 or 2: the one whose fetches the processor loses less often.
  unsigned prefetchLevel = 2;

  int64_t getVectorsPerRow() const {
    return vectorsPerRow ? vectorsPerRow : vectorRegisters >= 32 ? 4 : 2;
  }
  /// Columns of f32 in a vector, and in a row of a tile.
  int64_t lanes() const { return vectorBits / 32; }
  int64_t tileColumns() const { return lanes() * getVectorsPerRow(); }
  /// Bytes of a block of panels where arithmetic is the limit; the next block
  /// is prefetched meanwhile.
  int64_t blockBytes() const { return cacheBytes / 8; }
  /// The same where memory nearly is: up to `nearRows()` rows. Blocks that are
  /// fetched to the first-level cache stay there for the few tiles that use
  /// them.
  int64_t nearBlockBytes() const { return cacheBytes / 32; }
  int64_t nearRows() const { return prefetchLevel == 1 ? 20 : 0; }
  /// Bytes of a copied block of a panel. What it is made of comes from rows
  /// that may be a multiple of a way of the cache apart: so few of them that
  /// they fit half of the ways of the sets that they share.
  int64_t copyBytes() const { return cacheBytes / 32; }
  /// Of a transposed one, which stays in the first-level cache with what it is
  /// made of.
  int64_t transposeBytes() const { return cacheBytes / 64; }
  /// Bytes of staged rows.
  int64_t stageBytes() const { return cacheBytes * 3 / 8; }
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
