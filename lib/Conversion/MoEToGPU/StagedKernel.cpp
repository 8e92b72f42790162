// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StagedKernel.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

StagedKernel::StagedKernel(gpu::GPUModuleOp module, const GroupedKernel &kernel)
    : kernel(kernel), s(kernel.schedule),
      builder(beginKernel(module, kernel, operands)), b(*builder),
      bytes(kernel.elementBytes()), pieceElements(16 / bytes) {}

Value StagedKernel::swizzle(int64_t rowBytes, Value row, Value piece) {
  // Rows of 64 bytes share a line of all banks by two.
  Value pattern = rowBytes == 64 ? b.rem(b.div(row, 2), 4) : b.rem(row, 8);
  return b.mul(b.bitXor(piece, pattern), 16);
}

Value StagedKernel::placeOf(const StagedOperand &operand, Value stage,
                            Value row, Value piece) {
  Value base = b.add(b.mul(stage, stageBytes), operand.place);
  int64_t rowBytes = operand.width * bytes;
  return b.add(base,
               b.add(b.mul(row, rowBytes), swizzle(rowBytes, row, piece)));
}

StagedKernel::Step StagedKernel::stepOf(Value step) {
  if (kernel.segments() == 1)
    return {Value(), step};
  int64_t count = llvm::divideCeil(kernel.segmentLength(), s.tileK);
  return {b.div(step, count), b.rem(step, count)};
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Bytes from the first step's place to that of `step`, in rows.
Value StagedKernel::forwardRows(const Step &step) {
  int64_t unit = bytes * (a.isTransposed ? a.pitch : 1);
  Value forward = b.mul(b.widen(step.local), s.tileK * unit);
  // Products of a chain have rows of their own.
  if (step.segment && !kernel.chained)
    forward = b.add(
        forward, b.mul(b.widen(step.segment), kernel.segmentLength() * unit));
  return forward;
}

/// Likewise in weights, or in the second rows of mode contraction.
Value StagedKernel::forwardWeights(const Step &step) {
  const StagedOperand &operand = weights.front();
  int64_t depth = kernel.segmentLength(), width = kernel.panelWidth;
  bool hasSegments = step.segment && !kernel.chained;
  if (kernel.layout == WeightLayout::TransposedPanels) {
    // Steps are the columns of panels.
    Value piece = b.rem(thread, operand.width / pieceElements);
    Value k = b.add(b.mul(step.local, s.tileK), b.mul(piece, pieceElements));
    Value panel = b.div(k, width);
    if (hasSegments)
      panel = b.add(panel, b.mul(step.segment, llvm::divideCeil(depth, width)));
    Value elements = b.add(b.mul(b.widen(panel), kernel.blockColumns() * width),
                           b.widen(b.rem(k, width)));
    return b.mul(elements, bytes);
  }
  int64_t unit = bytes * (operand.isTransposed ? operand.pitch : 1);
  Value forward = b.mul(b.widen(step.local), s.tileK * unit);
  if (!hasSegments)
    return forward;
  int64_t segment = depth * unit;
  if (kernel.layout == WeightLayout::Panels)
    segment = llvm::divideCeil(kernel.n, width) * width * depth * bytes;
  return b.add(forward, b.mul(b.widen(step.segment), segment));
}

/// Copies 16 bytes, of which only the first `bytes` (null: all) exist.
void StagedKernel::copyPiece(Value to, Value from, Value bytes,
                             int64_t copyBytes) {
  if (copyBytes > 2) {
    auto cache = copyBytes == 16 ? NVVM::LoadCacheModifierKind::CG
                                 : NVVM::LoadCacheModifierKind::CA;
    for (int64_t at = 0; at < 16; at += copyBytes) {
      Value part = bytes;
      if (bytes && copyBytes < 16)
        part = b.minimum(b.maximum(b.add(bytes, -at), b.number(0)),
                         b.number(copyBytes));
      b.makeHere<NVVM::CpAsyncOp>(__FILE__, __LINE__, b.at(to, at),
                                  b.at(from, at), uint32_t(copyBytes), cache,
                                  part);
    }
    return;
  }
  // There is no asynchronous copy of two bytes.
  for (int64_t at = 0; at < 16; at += 2) {
    auto load = [&]() -> SmallVector<Value> {
      return {b.load(b.at(from, at), b.i16)};
    };
    Value value =
        bytes
            ? b.choose(b.compare(Predicate::sgt, bytes, at), {b.i16}, load,
                       [&]() -> SmallVector<Value> { return {b.zero(b.i16)}; })
                  .front()
            : load().front();
    b.store(value, b.at(to, at));
  }
}

void StagedKernel::copyTile(const StagedOperand &operand, const Step &step,
                            Value forward, Value stage) {
  int64_t pieces = operand.width / pieceElements;
  int64_t rowsPerPass = s.threads() / pieces;
  Value row = b.div(thread, pieces), piece = b.rem(thread, pieces);
  Value zero = b.number(0), all = b.number(16);
  Value base = operand.bases.front();
  for (auto [i, other] :
       llvm::enumerate(ArrayRef<Value>(operand.bases).drop_front()))
    base = b.select(b.compare(Predicate::eq, step.segment, int64_t(i) + 1),
                    other, base);
  Value pieceBytes = operand.pieceBytes;
  if (!operand.isTransposed && hasStepEdge) {
    Value column =
        b.add(b.mul(step.local, s.tileK), b.mul(piece, pieceElements));
    pieceBytes = b.minimum(
        b.maximum(b.mul(b.sub(segmentEnd, column), bytes), zero), all);
  }
  for (auto [pass, offset] : llvm::enumerate(operand.offsets)) {
    Value inTile = b.add(row, pass * rowsPerPass);
    Value exists = operand.exists[pass];
    if (operand.isTransposed && hasStepEdge)
      exists = b.compare(Predicate::slt,
                         b.add(b.mul(step.local, s.tileK), inTile), segmentEnd);
    Value present = pieceBytes;
    if (exists)
      present = b.select(exists, present ? present : all, zero);
    copyPiece(b.at(shared, placeOf(operand, stage, inTile, piece)),
              b.at(b.at(base, offset), forward), present, operand.copyBytes);
  }
}

void StagedKernel::copyStage(Value step, Value stage) {
  b.when(b.compare(Predicate::slt, step, steps), [&] {
    Step at = stepOf(step);
    copyTile(a, at, forwardRows(at), stage);
    Value forward = forwardWeights(at);
    for (const StagedOperand &operand : weights)
      copyTile(operand, at, forward, stage);
  });
  b.makeHere<NVVM::CpAsyncCommitGroupOp>(__FILE__, __LINE__);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Steps first, ..., first + count - 1, while copies run ahead.
SmallVector<Value> StagedKernel::multiplySteps(Value first, Value count,
                                               ValueRange sums) {
  return b.loop(count, sums, [&](Value inSegment, ValueRange now) {
    Value step = first ? b.add(first, inSegment) : inSegment;
    uint32_t left = s.stages - 2;
    b.makeHere<NVVM::CpAsyncWaitGroupOp>(__FILE__, __LINE__, left);
    b.barrier();
    Value ahead = b.add(step, s.stages - 1);
    copyStage(ahead, b.rem(ahead, s.stages));
    return multiply(b.rem(step, s.stages), now);
  });
}

void StagedKernel::emitTile(const Tile &tile) {
  // 1. The last tile's stages are read by all warps before they are copied
  // over.
  b.barrier();
  if (kernel.contraction) {
    segmentEnd = b.sub(tile.endRow, tile.firstRow);
    steps = segmentSteps = b.ceilDiv(segmentEnd, s.tileK);
    hasStepEdge = true;
  } else {
    int64_t length = kernel.segmentLength();
    int64_t count = llvm::divideCeil(length, s.tileK);
    segmentEnd = b.number(length);
    segmentSteps = b.number(count);
    steps = b.number(kernel.segments() * count);
    hasStepEdge = length % s.tileK != 0;
  }
  aimRows(tile);
  for (auto [w, operand] : llvm::enumerate(weights))
    aimWeights(operand, tile, w);

  // 2. Copies run ahead by all stages but one.
  for (int64_t stage = 0; stage < s.stages - 1; ++stage)
    copyStage(b.number(stage), b.number(stage));
  Value column = b.add(warpColumn, b.mul(b.rem(lane, 4), 2));
  auto starts = emitStarts(b, kernel, operands, tile, column, columnTiles());
  SmallVector<Value> sums(sumCount());
  for (int64_t w = 0; w < kernel.sums(); ++w)
    for (int64_t i = 0; i < rowTiles(); ++i)
      for (int64_t j = 0; j < columnTiles(); ++j)
        for (int64_t v = 0; v < 4; ++v)
          sums[sumIndex(w, i, j, v)] = starts[w][j][v % 2];
  if (kernel.chains == 1) {
    sums = multiplySteps(Value(), steps, sums);
  } else {
    // Each block of the contraction is a chain of its own.
    ChainFolder folder(b, kernel.chains);
    for (int64_t chain = 0; chain < kernel.chains; ++chain) {
      if (chain)
        sums.assign(sumCount(), b.zero(b.f32));
      Value first = b.mul(b.number(chain), segmentSteps);
      folder.add(multiplySteps(first, segmentSteps, sums));
    }
    sums = folder.take();
  }

  // 3. Results.
  Fragment fragment;
  fragment.rowTiles = rowTiles();
  fragment.columnTiles = columnTiles();
  for (int64_t i = 0; i < rowTiles(); ++i)
    fragment.rows.push_back(b.add(b.add(warpRow, 16 * i), b.div(lane, 4)));
  fragment.column = column;
  auto sum = [&](int64_t w, int64_t i, int64_t j, int64_t v) {
    return sums[sumIndex(w, i, j, v)];
  };
  fragment.sum = sum;
  emitResults(b, kernel, operands, tile, fragment);
}

LLVM::LLVMFuncOp StagedKernel::build() {
  shared = b.dynamicShared();
  thread = b.thread();
  lane = b.rem(thread, 32);
  Value warp = b.div(thread, 32);
  warpRow = b.mul(b.div(warp, s.warpsN), s.tileM / s.warpsM);
  warpColumn = b.mul(b.rem(warp, s.warpsN), s.tileN / s.warpsN);
  placeOperands();
  forEachTile(b, kernel, operands, {}, [&](const Tile &tile, ValueRange) {
    emitTile(tile);
    return SmallVector<Value>();
  });
  b.finish();
  return b.function;
}
