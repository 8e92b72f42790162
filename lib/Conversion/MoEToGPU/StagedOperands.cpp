// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Where the operands of a staged kernel stand, in shared and in global memory.

#include "StagedKernel.h"

#include <numeric>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

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
