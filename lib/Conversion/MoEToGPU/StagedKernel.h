// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the styles of sm_80 share: every thread copies its share of a stage by
// cp.async, and warps multiply what stands in shared memory. Tiles stand there
// as rows whose 16-byte pieces are exchanged (swizzled), so that eight rows at
// one piece lie in different banks.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_STAGEDKERNEL_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_STAGEDKERNEL_H

#include "GroupedCommon.h"

namespace mlir::moe::detail {

/// One operand's tile of one stage, and which part of it this thread copies.
struct StagedOperand {
  /// Rows of the tile in shared memory, and elements of a row.
  int64_t rows = 0, width = 0;
  /// Whether rows of the tile are steps of the contraction.
  bool isTransposed = false;
  int64_t pitch = 0;     ///< elements between rows in global memory
  int64_t place = 0;     ///< bytes from the stage's start
  int64_t copyBytes = 0; ///< of one copy: pieces begin at multiples of it
  /// Where the expert's (or group's) matrix begins: one for all segments of
  /// the contraction, or one each.
  SmallVector<Value> bases;
  /// Per pass: bytes from there at the first step; whether the row exists
  /// (null: it does). Bytes of the piece that exist where steps do not matter.
  SmallVector<Value> offsets, exists;
  Value pieceBytes;
};

/// Builds a kernel but for the products of a stage, which a style adds.
class StagedKernel {
public:
  StagedKernel(gpu::GPUModuleOp module, const GroupedKernel &kernel);
  virtual ~StagedKernel() = default;
  LLVM::LLVMFuncOp build();

protected:
  /// Adds the products of a stage to the sums of this thread.
  virtual SmallVector<Value> multiply(Value stage, ValueRange sums) = 0;

  /// Bytes from a row's start at which a piece of it stands.
  Value swizzle(int64_t rowBytes, Value row, Value piece);
  /// Place in shared memory of a row's piece.
  Value placeOf(const StagedOperand &operand, Value stage, Value row,
                Value piece);
  int64_t rowTiles() const { return s.tileM / s.warpsM / 16; }
  int64_t columnTiles() const { return s.tileN / s.warpsN / 8; }
  int64_t sumCount() const {
    return rowTiles() * columnTiles() * 4 * kernel.sums();
  }
  int64_t sumIndex(int64_t w, int64_t i, int64_t j, int64_t v) const {
    return ((w * rowTiles() + i) * columnTiles() + j) * 4 + v;
  }

  const GroupedKernel &kernel;
  const GPUSchedule &s;
  KernelOperands operands;
  std::unique_ptr<KernelBuilder> builder;
  KernelBuilder &b;
  /// Bytes of an element, and elements of a piece of 16 bytes.
  const int64_t bytes, pieceElements;
  Value shared, thread, lane, warpRow, warpColumn;
  StagedOperand a;
  SmallVector<StagedOperand> weights; ///< one per sum

private:
  /// A step of the contraction: which segment (null: the only one), and the
  /// step in it.
  struct Step {
    Value segment, local;
  };
  Step stepOf(Value step);

  void place(StagedOperand &operand, ArrayRef<int64_t> multiples);
  void placeOperands();
  void aim(StagedOperand &operand, function_ref<Value(Value)> offsetOf,
           function_ref<Value(Value)> rowExists, Value column, int64_t limit);
  void aimGroup(StagedOperand &operand, Value rows, const Tile &tile,
                Value column);
  void aimRows(const Tile &tile);
  void aimWeights(StagedOperand &operand, const Tile &tile, int64_t weight);
  Value forwardRows(const Step &step);
  Value forwardWeights(const Step &step);
  void copyStage(Value step, Value stage);
  void copyTile(const StagedOperand &operand, const Step &step, Value forward,
                Value stage);
  void copyPiece(Value to, Value from, Value bytes, int64_t copyBytes);
  SmallVector<Value> multiplySteps(Value first, Value count, ValueRange sums);
  void emitTile(const Tile &tile);

  int64_t stageBytes = 0;
  /// Of the contraction: tiles of all segments and of one, and elements of one.
  Value steps, segmentSteps, segmentEnd;
  bool hasStepEdge = false;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_STAGEDKERNEL_H
