// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StagedKernel.h"

#include <numeric>

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
// Where operands stand
//===----------------------------------------------------------------------===//

/// Pieces begin at sums of `multiples` elements.
void StagedKernel::place(StagedOperand &operand, ArrayRef<int64_t> multiples) {
  operand.place = stageBytes;
  stageBytes += operand.rows * operand.width * bytes;
  int64_t common = pieceElements;
  for (int64_t multiple : multiples)
    common = std::gcd(common, multiple);
  operand.copyBytes = common * bytes;
}

void StagedKernel::placeOperands() {
  a.isTransposed = kernel.contraction;
  a.rows = a.isTransposed ? s.tileK : s.tileM;
  a.width = a.isTransposed ? s.tileM : s.tileK;
  a.pitch = a.isTransposed ? kernel.n : kernel.k;
  place(a, {a.pitch, kernel.k / kernel.chains});
  weights.resize(kernel.sums());
  for (StagedOperand &operand : weights) {
    operand.isTransposed = kernel.contraction || kernel.hasColumnsInside();
    operand.rows = operand.isTransposed ? s.tileK : s.tileN;
    operand.width = operand.isTransposed ? s.tileN : s.tileK;
    operand.pitch = kernel.hasPanels()                  ? kernel.panelWidth
                    : kernel.layout == WeightLayout::KN ? kernel.n
                                                        : kernel.k;
    bool hasSteps = !operand.isTransposed && !kernel.hasPanels();
    place(operand,
          {operand.pitch, hasSteps ? kernel.k / kernel.chains : operand.pitch});
  }
}

/// Where this thread's pieces of a tile come from: `offsetOf` gives the
/// elements before the piece that begins a row of the tile. `column` is that of
/// the piece, of `limit` that exist, where columns are contiguous.
void StagedKernel::aim(StagedOperand &operand,
                       function_ref<Value(Value)> offsetOf,
                       function_ref<Value(Value)> rowExists, Value column,
                       int64_t limit) {
  int64_t pieces = operand.width / pieceElements;
  int64_t rowsPerPass = s.threads() / pieces;
  Value row = b.div(thread, pieces);
  operand.offsets.clear();
  operand.exists.clear();
  operand.pieceBytes = Value();
  if (operand.isTransposed && limit % operand.width)
    operand.pieceBytes = b.minimum(
        b.maximum(b.mul(b.sub(b.number(limit), column), bytes), b.number(0)),
        b.number(16));
  for (int64_t first = 0; first < operand.rows; first += rowsPerPass) {
    // Nothing is read where a row does not exist, but its address is formed.
    Value inTile = b.add(row, first);
    operand.offsets.push_back(b.mul(offsetOf(inTile), bytes));
    operand.exists.push_back(rowExists(inTile));
  }
}

static Value always(Value) { return Value(); }

/// Mode contraction: rows of a group are the steps.
void StagedKernel::aimGroup(StagedOperand &operand, Value rows,
                            const Tile &tile, Value first) {
  Value piece = b.rem(thread, operand.width / pieceElements);
  Value column = b.add(first, b.mul(piece, pieceElements));
  operand.bases = {rows};
  aim(
      operand,
      [&](Value row) {
        Value at = b.widen(b.add(tile.firstRow, row));
        return b.add(b.mul(at, operand.pitch), b.widen(column));
      },
      always, column, operand.pitch);
}

void StagedKernel::aimRows(const Tile &tile) {
  if (kernel.contraction)
    return aimGroup(a, operands.rows[0], tile, tile.resultRow);
  Value piece = b.rem(thread, a.width / pieceElements);
  Value step = b.widen(b.mul(piece, pieceElements));
  a.bases = operands.rows;
  auto exists = [&](Value row) {
    return b.compare(Predicate::slt, b.add(tile.firstRow, row), tile.endRow);
  };
  aim(
      a,
      [&](Value row) {
        Value source = b.add(tile.firstRow, row);
        if (kernel.gather) {
          Value at = source;
          source =
              b.choose(
                   exists(row), {b.i32},
                   [&]() -> SmallVector<Value> {
                     return {b.load(
                         b.at(operands.gather, b.mul(b.widen(at), 4)), b.i32)};
                   },
                   [&]() -> SmallVector<Value> { return {b.number(0)}; })
                  .front();
          source = b.maximum(source, b.number(0));
        }
        return b.add(b.mul(b.widen(source), a.pitch), step);
      },
      exists, Value(), 0);
}

/// The element of a weight at the segment's first step, and of panels in the
/// tile's block of columns.
void StagedKernel::aimWeights(StagedOperand &operand, const Tile &tile,
                              int64_t weight) {
  if (kernel.contraction)
    return aimGroup(operand, operands.rows[1], tile, tile.column);
  int64_t width = kernel.panelWidth, columns = kernel.blockColumns();
  int64_t depth = kernel.segmentLength();
  int64_t blockPanels = width ? llvm::divideCeil(columns, width) : 0;
  int64_t stepPanels = width ? llvm::divideCeil(depth, width) : 0;
  int64_t size = kernel.n * kernel.k;
  if (kernel.layout == WeightLayout::Panels)
    size = kernel.columnBlocks * blockPanels * width * kernel.k;
  else if (kernel.layout == WeightLayout::TransposedPanels)
    size = kernel.chains * stepPanels * width * kernel.n;
  Value matrix = b.mul(b.widen(tile.expert), size * bytes);
  operand.bases.clear();
  for (int64_t w = 0; w < (kernel.chained ? kernel.weights : 1); ++w)
    operand.bases.push_back(b.at(operands.weights[weight + w], matrix));
  Value piece = b.rem(thread, operand.width / pieceElements);
  Value inTile = b.mul(piece, pieceElements);

  if (operand.isTransposed) {
    Value column = b.add(tile.columnInBlock, inTile);
    Value start = b.widen(column);
    if (width) {
      // Panels of a block follow each other, blocks too.
      Value panel = b.add(b.mul(tile.block, blockPanels), b.div(column, width));
      start = b.add(b.mul(b.widen(panel), depth * width),
                    b.widen(b.rem(column, width)));
    }
    return aim(
        operand,
        [&](Value row) {
          return b.add(b.mul(b.widen(row), operand.pitch), start);
        },
        always, column, width ? blockPanels * width : columns);
  }
  // Rows of the tile are columns of the result. Where steps are in panels,
  // forwardWeights has the place of the piece.
  Value start = width ? b.mul(b.widen(tile.block), stepPanels * width * columns)
                      : b.widen(inTile);
  aim(
      operand,
      [&](Value row) {
        Value column = b.widen(b.add(tile.columnInBlock, row));
        return b.add(b.mul(column, operand.pitch), start);
      },
      [&](Value row) {
        return columns % s.tileN
                   ? b.compare(Predicate::slt, b.add(tile.columnInBlock, row),
                               columns)
                   : Value();
      },
      Value(), 0);
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
