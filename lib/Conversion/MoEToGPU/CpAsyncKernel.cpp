// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The style of sm_80: every thread copies its share of a stage by cp.async,
// warps read it by ldmatrix and multiply by mma.sync. Tiles stand in shared
// memory as rows whose 16-byte pieces are exchanged (swizzled), so that eight
// rows at one column lie in different banks.

#include "GroupedCommon.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// One operand's tile of one stage, and which part of it this thread copies.
struct Copies {
  /// Rows of the tile in shared memory, and elements of a row.
  int64_t rows = 0, width = 0;
  /// Whether rows of the tile are steps of the contraction.
  bool isTransposed = false;
  int64_t pitch = 0;     ///< elements between rows in global memory
  int64_t place = 0;     ///< bytes from the stage's start
  int64_t copyBytes = 0; ///< of one copy: rows begin at multiples of it
  int64_t limit = 0;     ///< elements of a row in global memory
  /// Per pass: address at the first step; whether the row exists (else null);
  /// bytes of the piece that exist where steps do not matter.
  SmallVector<Value> addresses, exists;
  Value pieceBytes;
};

class CpAsyncKernel {
public:
  CpAsyncKernel(gpu::GPUModuleOp module, const GroupedKernel &kernel)
      : kernel(kernel), s(kernel.schedule),
        builder(beginKernel(module, kernel, operands)), b(*builder) {}
  LLVM::LLVMFuncOp build();

private:
  void place(Copies &copies);
  void aimA(Copies &copies, const Tile &tile);
  void aimB(Copies &copies, const Tile &tile, int64_t weight);
  void aim(Copies &copies, Value base, function_ref<Value(int64_t)> sourceRow,
           function_ref<Value(int64_t)> rowExists, Value firstColumn);
  void copyStage(Value step, Value stage);
  void copyTile(const Copies &copies, Value step, Value stage);
  void copyPiece(Value to, Value from, Value bytes, int64_t copyBytes);
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  Value swizzle(int64_t width, Value row, Value piece);
  void emitTile(const Tile &tile);

  int64_t rowTiles() const { return s.tileM / s.warpsM / 16; }
  int64_t columnTiles() const { return s.tileN / s.warpsN / 8; }
  int64_t sumCount() const {
    return rowTiles() * columnTiles() * 4 * kernel.weights;
  }
  int64_t sumIndex(int64_t w, int64_t i, int64_t j, int64_t v) const {
    return ((w * rowTiles() + i) * columnTiles() + j) * 4 + v;
  }

  const GroupedKernel &kernel;
  const GPUSchedule &s;
  KernelOperands operands;
  std::unique_ptr<KernelBuilder> builder;
  KernelBuilder &b;
  Value shared, thread, lane, warpRow, warpColumn;
  Copies a;
  SmallVector<Copies> weights;
  int64_t stageBytes = 0;
  Value steps;   ///< of the contraction, in tiles
  Value endStep; ///< of the contraction, in elements
  bool hasStepEdge = false;
};

} // namespace

/// Exchanges the pieces of a row so that any eight neighbouring rows have a
/// piece in different banks.
Value CpAsyncKernel::swizzle(int64_t width, Value row, Value piece) {
  // Rows of 64 bytes share a line of all banks by two.
  Value pattern = width == 32 ? b.rem(b.div(row, 2), 4) : b.rem(row, 8);
  return b.bitXor(piece, pattern);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void CpAsyncKernel::place(Copies &copies) {
  copies.place = stageBytes;
  stageBytes += copies.rows * copies.width * 2;
  int64_t bytes = copies.pitch * 2;
  copies.copyBytes = bytes % 16 == 0  ? 16
                     : bytes % 8 == 0 ? 8
                     : bytes % 4 == 0 ? 4
                                      : 2;
}

void CpAsyncKernel::aim(Copies &copies, Value base,
                        function_ref<Value(int64_t)> sourceRow,
                        function_ref<Value(int64_t)> rowExists,
                        Value firstColumn) {
  int64_t pieces = copies.width / 8, rowsPerPass = s.threads() / pieces;
  Value row = b.div(thread, pieces), piece = b.rem(thread, pieces);
  Value column = b.add(firstColumn, b.mul(piece, 8));
  copies.addresses.clear();
  copies.exists.clear();
  copies.pieceBytes = Value();
  if (copies.isTransposed && copies.limit % copies.width)
    copies.pieceBytes = b.minimum(
        b.maximum(b.mul(b.sub(b.number(copies.limit), column), 2), b.number(0)),
        b.number(16));
  for (int64_t first = 0; first < copies.rows; first += rowsPerPass) {
    // Nothing is read where a row does not exist, but its address is formed.
    Value source = sourceRow(first);
    source = b.add(source ? b.mul(source, copies.pitch)
                          : b.mul(b.widen(b.add(row, first)), copies.pitch),
                   b.widen(column));
    copies.addresses.push_back(b.at(base, b.mul(source, 2)));
    copies.exists.push_back(rowExists(first));
  }
}

void CpAsyncKernel::aimA(Copies &copies, const Tile &tile) {
  Value row = b.div(thread, copies.width / 8);
  if (copies.isTransposed)
    return aim(
        copies, operands.rows[0],
        [&](int64_t first) {
          return b.widen(b.add(b.add(tile.firstRow, row), first));
        },
        [](int64_t) { return Value(); }, tile.resultRow);
  auto rowAt = [&](int64_t first) {
    return b.add(b.add(tile.firstRow, row), first);
  };
  aim(
      copies, operands.rows[0],
      [&](int64_t first) -> Value {
        Value at = rowAt(first);
        if (!kernel.gather)
          return b.widen(at);
        Value source =
            b.choose(
                 b.compare(Predicate::slt, at, tile.endRow), {b.i32},
                 [&]() -> SmallVector<Value> {
                   return {b.load(b.at(operands.gather, b.mul(b.widen(at), 4)),
                                  b.i32)};
                 },
                 [&]() -> SmallVector<Value> { return {b.number(0)}; })
                .front();
        return b.widen(b.maximum(source, b.number(0)));
      },
      [&](int64_t first) {
        return b.compare(Predicate::slt, rowAt(first), tile.endRow);
      },
      b.number(0));
}

void CpAsyncKernel::aimB(Copies &copies, const Tile &tile, int64_t weight) {
  Value row = b.div(thread, copies.width / 8);
  if (kernel.contraction)
    return aim(
        copies, operands.rows[1],
        [&](int64_t first) {
          return b.widen(b.add(b.add(tile.firstRow, row), first));
        },
        [](int64_t) { return Value(); }, tile.column);
  Value base = b.at(operands.weights[weight],
                    b.mul(b.widen(tile.expert), kernel.n * kernel.k * 2));
  if (copies.isTransposed)
    return aim(
        copies, base, [](int64_t) { return Value(); },
        [](int64_t) { return Value(); }, tile.column);
  auto rowAt = [&](int64_t first) {
    return b.add(b.add(tile.column, row), first);
  };
  aim(
      copies, base, [&](int64_t first) { return b.widen(rowAt(first)); },
      [&](int64_t first) {
        return kernel.n % s.tileN
                   ? b.compare(Predicate::slt, rowAt(first), kernel.n)
                   : Value();
      },
      b.number(0));
}

/// Copies 16 bytes, of which only the first `bytes` (null: all) exist.
void CpAsyncKernel::copyPiece(Value to, Value from, Value bytes,
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

void CpAsyncKernel::copyTile(const Copies &copies, Value step, Value stage) {
  int64_t pieces = copies.width / 8, rowsPerPass = s.threads() / pieces;
  Value row = b.div(thread, pieces), piece = b.rem(thread, pieces);
  Value base = b.add(b.mul(stage, stageBytes), copies.place);
  Value zero = b.number(0), all = b.number(16);
  // Bytes from the first step's address.
  Value forward = b.mul(b.widen(step),
                        s.tileK * 2 * (copies.isTransposed ? copies.pitch : 1));
  Value pieceBytes = copies.pieceBytes;
  if (!copies.isTransposed && hasStepEdge) {
    Value column = b.add(b.mul(step, s.tileK), b.mul(piece, 8));
    pieceBytes =
        b.minimum(b.maximum(b.mul(b.sub(endStep, column), 2), zero), all);
  }
  for (auto [pass, address] : llvm::enumerate(copies.addresses)) {
    Value inTile = b.add(row, pass * rowsPerPass);
    Value exists = copies.exists[pass];
    if (copies.isTransposed && hasStepEdge)
      exists = b.compare(Predicate::slt, b.add(b.mul(step, s.tileK), inTile),
                         endStep);
    Value bytes = pieceBytes;
    if (exists)
      bytes = b.select(exists, bytes ? bytes : all, zero);
    Value offset = b.add(b.mul(inTile, copies.width * 2),
                         b.mul(swizzle(copies.width, inTile, piece), 16));
    copyPiece(b.at(shared, b.add(base, offset)), b.at(address, forward), bytes,
              copies.copyBytes);
  }
}

void CpAsyncKernel::copyStage(Value step, Value stage) {
  b.when(b.compare(Predicate::slt, step, steps), [&] {
    copyTile(a, step, stage);
    for (const Copies &copies : weights)
      copyTile(copies, step, stage);
  });
  b.makeHere<NVVM::CpAsyncCommitGroupOp>(__FILE__, __LINE__);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

SmallVector<Value> CpAsyncKernel::multiply(Value stage, ValueRange start) {
  MLIRContext *context = b.builder.getContext();
  SmallVector<Value> sums(start);
  auto four =
      LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, b.i32));
  auto fourSums =
      LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, b.f32));
  auto shape = NVVM::LdStMatrixShapeAttr::get(context, 8, 8);
  bool isHalf = kernel.element.isF16();
  auto pair = VectorType::get({2}, kernel.element);
  auto type = isHalf ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  std::array<NVVM::MMATypes, 2> types{type, type};
  std::array<NVVM::MMALayout, 2> layouts{NVVM::MMALayout::row,
                                         NVVM::MMALayout::col};

  auto load = [&](Value offset, bool transposed) {
    Value loaded = b.makeHere<NVVM::LdMatrixOp>(
        __FILE__, __LINE__, four, b.at(shared, offset), uint32_t(4),
        transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row, shape,
        NVVM::LdStMatrixEltType::B16);
    SmallVector<Value> registers;
    for (int64_t i = 0; i < 4; ++i) {
      Value one = b.make<LLVM::ExtractValueOp>(loaded, i);
      // Upstream's op wants pairs of f16, and integers for bf16.
      registers.push_back(isHalf ? b.make<LLVM::BitcastOp>(pair, one) : one);
    }
    return registers;
  };
  // Which row and piece of a tile this lane names: `first` is the tile's place
  // along rows (or columns) of the result, `high` tells the half of lanes that
  // stands for the next eight of them.
  auto offsetOf = [&](const Copies &copies, Value base, Value first,
                      int64_t step, Value highRow, Value highStep) {
    Value low = b.rem(lane, 8);
    Value row, piece;
    if (!copies.isTransposed) {
      row = b.add(first, b.add(low, b.mul(highRow, 8)));
      piece = b.add(highStep, step / 8);
    } else {
      row = b.add(b.add(low, b.mul(highStep, 8)), step);
      piece = b.add(b.div(first, 8), highRow);
    }
    return b.add(b.add(base, copies.place),
                 b.add(b.mul(row, copies.width * 2),
                       b.mul(swizzle(copies.width, row, piece), 16)));
  };

  Value base = b.mul(stage, stageBytes);
  Value bit3 = b.rem(b.div(lane, 8), 2), bit4 = b.div(lane, 16);
  for (int64_t step = 0; step < s.tileK; step += 16) {
    SmallVector<SmallVector<Value>> left;
    for (int64_t i = 0; i < rowTiles(); ++i)
      left.push_back(load(offsetOf(a, base, b.add(warpRow, 16 * i), step,
                                   /*highRow=*/bit3, /*highStep=*/bit4),
                          a.isTransposed));
    for (auto [w, copies] : llvm::enumerate(weights))
      for (int64_t j = 0; j < columnTiles(); j += 2) {
        SmallVector<Value> right =
            load(offsetOf(copies, base, b.add(warpColumn, 8 * j), step,
                          /*highRow=*/bit4, /*highStep=*/bit3),
                 copies.isTransposed);
        for (int64_t i = 0; i < rowTiles(); ++i)
          for (int64_t half = 0; half < 2; ++half) {
            int64_t first = sumIndex(w, i, j + half, 0);
            Value product = b.makeHere<NVVM::MmaOp>(
                __FILE__, __LINE__, fourSums, left[i],
                ArrayRef<Value>(right).slice(2 * half, 2),
                ArrayRef<Value>(sums).slice(first, 4),
                ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt, types,
                layouts);
            for (int64_t v = 0; v < 4; ++v)
              sums[first + v] = b.make<LLVM::ExtractValueOp>(product, v);
          }
      }
  }
  return sums;
}

void CpAsyncKernel::emitTile(const Tile &tile) {
  // 1. The last tile's stages are read by all warps before they are copied
  // over.
  b.barrier();
  if (kernel.contraction) {
    endStep = b.sub(tile.endRow, tile.firstRow);
    steps = b.ceilDiv(endStep, s.tileK);
    hasStepEdge = true;
  } else {
    endStep = b.number(kernel.k);
    steps = b.number(llvm::divideCeil(kernel.k, s.tileK));
    hasStepEdge = kernel.k % s.tileK != 0;
  }
  aimA(a, tile);
  for (auto [w, copies] : llvm::enumerate(weights))
    aimB(copies, tile, w);

  // 2. Copies run ahead by all stages but one.
  for (int64_t stage = 0; stage < s.stages - 1; ++stage)
    copyStage(b.number(stage), b.number(stage));
  Value column = b.add(warpColumn, b.mul(b.rem(lane, 4), 2));
  auto starts = emitStarts(b, kernel, operands, tile, column, columnTiles());
  SmallVector<Value> sums(sumCount());
  for (int64_t w = 0; w < kernel.weights; ++w)
    for (int64_t i = 0; i < rowTiles(); ++i)
      for (int64_t j = 0; j < columnTiles(); ++j)
        for (int64_t v = 0; v < 4; ++v)
          sums[sumIndex(w, i, j, v)] = starts[w][j][v % 2];
  sums = b.loop(steps, sums, [&](Value step, ValueRange now) {
    uint32_t left = s.stages - 2;
    b.makeHere<NVVM::CpAsyncWaitGroupOp>(__FILE__, __LINE__, left);
    b.barrier();
    Value ahead = b.add(step, s.stages - 1);
    copyStage(ahead, b.rem(ahead, s.stages));
    return multiply(b.rem(step, s.stages), now);
  });

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

LLVM::LLVMFuncOp CpAsyncKernel::build() {
  shared = b.dynamicShared();
  thread = b.thread();
  lane = b.rem(thread, 32);
  Value warp = b.div(thread, 32);
  warpRow = b.mul(b.div(warp, s.warpsN), s.tileM / s.warpsM);
  warpColumn = b.mul(b.rem(warp, s.warpsN), s.tileN / s.warpsN);

  a.isTransposed = kernel.contraction;
  a.rows = a.isTransposed ? s.tileK : s.tileM;
  a.width = a.isTransposed ? s.tileM : s.tileK;
  a.pitch = a.limit = a.isTransposed ? kernel.n : kernel.k;
  place(a);
  weights.resize(kernel.weights);
  for (Copies &copies : weights) {
    copies.isTransposed = kernel.contraction || kernel.transposed;
    copies.rows = copies.isTransposed ? s.tileK : s.tileN;
    copies.width = copies.isTransposed ? s.tileN : s.tileK;
    copies.pitch = copies.limit = kernel.transposed ? kernel.n : kernel.k;
    place(copies);
  }
  forEachTile(b, kernel, operands, {}, [&](const Tile &tile, ValueRange) {
    emitTile(tile);
    return SmallVector<Value>();
  });
  b.finish();
  return b.function;
}

LLVM::LLVMFuncOp
mlir::moe::detail::buildCpAsyncKernel(gpu::GPUModuleOp module,
                                      const GroupedKernel &kernel) {
  return CpAsyncKernel(module, kernel).build();
}
