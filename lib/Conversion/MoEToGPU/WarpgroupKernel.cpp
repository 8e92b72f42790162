// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The style of sm_90a: one thread copies boxes of whole stages (TMA), two
// warpgroups multiply by wgmma straight from shared memory; mbarriers tell who
// may go on. A stage's full mbarrier completes when its bytes have come, its
// empty one when all consumers have released it.

#include "GroupedCommon.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// A wait gives up the processor for this long at most, in nanoseconds.
static constexpr int64_t waitTicks = 10000000;
/// Bytes of eight rows of a tile: the pattern of the swizzle repeats after it.
static constexpr int64_t patternBytes = 1024;
/// Registers per thread of copying and multiplying warpgroups.
static constexpr uint32_t copyRegisters = 40, productRegisters = 232;

namespace {

class WarpgroupKernel {
public:
  WarpgroupKernel(gpu::GPUModuleOp module, const GroupedKernel &kernel)
      : kernel(kernel), s(kernel.schedule),
        builder(beginKernel(module, kernel, operands)), b(*builder) {}
  LLVM::LLVMFuncOp build();

private:
  void initialize();
  void copy();
  void multiply();
  /// The steps of one tile; `count` is the number of steps before.
  void copyTile(const Tile &tile, Value count);
  void multiplyTile(const Tile &tile, Value count);
  SmallVector<Value> multiplyStage(Value stage, ValueRange sums);
  /// Of mode contraction: zeros where a step has rows of another group.
  void clearTail(Value stage, Value present);
  /// Steps of a tile: in mode contraction those of the group.
  Value stepsOf(const Tile &tile) {
    if (!kernel.contraction)
      return b.number(steps);
    return b.ceilDiv(b.sub(tile.endRow, tile.firstRow), s.tileK);
  }
  /// Whether columns of weights are contiguous, not steps.
  bool hasColumnsInside() const {
    return kernel.contraction || kernel.hasColumnsInside();
  }

  Value mbarrier(Value stage, bool isEmpty) {
    return b.at(shared, b.add(b.mul(stage, 8),
                              mbarriers + (isEmpty ? 8 * s.stages : 0)));
  }
  void wait(Value mbarrier, Value parity, MOIRA_HERE) {
    b.makeHere<NVVM::MBarrierTryWaitParityOp>(file, line, mbarrier, parity,
                                              b.number(waitTicks));
  }
  void releaseStage(Value stage, MOIRA_HERE) {
    b.makeHere<NVVM::MBarrierArriveOp>(file, line, b.i64, mbarrier(stage, true),
                                       Value());
  }
  void copyBox(Value to, Value map, Value mbarrier, ArrayRef<Value> place,
               MOIRA_HERE);
  /// Panels of 64 of `width` columns: a row of a box has at most 128 bytes.
  void copyColumns(Value to, Value map, Value mbarrier, int64_t width,
                   Value column, ArrayRef<Value> rest) {
    for (int64_t first = 0; first < width; first += 64) {
      SmallVector<Value> place{b.add(column, first)};
      llvm::append_range(place, rest);
      copyBox(b.at(shared, b.add(to, first * s.tileK * 2)), map, mbarrier,
              place);
    }
  }
  /// A descriptor of the matrix at `offset` of shared memory.
  Value descriptor(Value offset, int64_t leading, int64_t stride);
  Value stageOf(Value count) { return b.rem(count, s.stages); }
  Value phaseOf(Value count) { return b.rem(b.div(count, s.stages), 2); }

  const GroupedKernel &kernel;
  const GPUSchedule &s;
  KernelOperands operands;
  std::unique_ptr<KernelBuilder> builder;
  KernelBuilder &b;
  Value shared, thread, consumer, consumerThread, sharedPlace;
  LLVM::LLVMStructType sumsType;
  int64_t rowBytes = 0, weightBytes = 0, mbarriers = 0, steps = 0;
};

} // namespace

void WarpgroupKernel::initialize() {
  b.when(b.compare(Predicate::eq, thread, 0), [&] {
    for (int64_t stage = 0; stage < s.stages; ++stage) {
      b.makeHere<NVVM::MBarrierInitOp>(__FILE__, __LINE__,
                                       mbarrier(b.number(stage), false),
                                       b.number(1), Value());
      b.makeHere<NVVM::MBarrierInitOp>(__FILE__, __LINE__,
                                       mbarrier(b.number(stage), true),
                                       b.number(s.warpsM), Value());
    }
    b.makeHere<NVVM::FenceMbarrierInitOp>(__FILE__, __LINE__);
  });
  b.barrier();
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void WarpgroupKernel::copyBox(Value to, Value map, Value mbarrier,
                              ArrayRef<Value> place, const char *file,
                              unsigned line) {
  auto cluster = LLVM::LLVMPointerType::get(
      b.builder.getContext(), unsigned(NVVM::NVVMMemorySpace::SharedCluster));
  b.makeHere<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(
      file, line, b.make<LLVM::AddrSpaceCastOp>(cluster, to).getResult(), map,
      place, mbarrier, ValueRange(), Value(), Value(), NVVM::TMALoadMode::TILE,
      false, NVVM::CTAGroupKindAttr(), Value());
}

void WarpgroupKernel::copyTile(const Tile &tile, Value count) {
  b.loop(stepsOf(tile), {}, [&](Value step, ValueRange) {
    Value now = b.add(count, step), stage = stageOf(now);
    wait(mbarrier(stage, true), b.bitXor(phaseOf(now), b.number(1)));
    Value full = mbarrier(stage, false);
    int64_t bytes = rowBytes + kernel.weights * weightBytes;
    b.makeHere<NVVM::MBarrierArriveExpectTxOp>(
        __FILE__, __LINE__, b.i64, full, b.number(bytes),
        NVVM::MemScopeKind::CTA, false, Value());
    Value first = b.mul(step, s.tileK);
    Value to = b.mul(stage, rowBytes);
    if (kernel.contraction) {
      first = b.add(tile.firstRow, first);
      copyColumns(to, operands.maps[0], full, s.tileM, tile.resultRow, {first});
    } else {
      copyBox(b.at(shared, to), operands.maps[0], full, {first, tile.firstRow});
    }
    for (int64_t w = 0; w < kernel.weights; ++w) {
      Value to = b.add(b.mul(stage, kernel.weights * weightBytes),
                       s.stages * rowBytes + w * weightBytes);
      Value map = operands.maps[1 + w];
      if (kernel.contraction)
        copyColumns(to, map, full, s.tileN, tile.column, {first});
      else if (hasColumnsInside())
        copyColumns(to, map, full, s.tileN, tile.column, {first, tile.expert});
      else
        copyBox(b.at(shared, to), map, full, {first, tile.column, tile.expert});
    }
    return SmallVector<Value>();
  });
}

void WarpgroupKernel::copy() {
  b.makeHere<NVVM::SetMaxRegisterOp>(__FILE__, __LINE__, copyRegisters,
                                     NVVM::SetMaxRegisterAction::decrease);
  b.when(b.compare(Predicate::eq, thread, 0), [&] {
    forEachTile(b, kernel, operands, {b.number(0)},
                [&](const Tile &tile, ValueRange count) -> SmallVector<Value> {
                  copyTile(tile, count[0]);
                  return {b.add(count[0], stepsOf(tile))};
                });
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value WarpgroupKernel::descriptor(Value offset, int64_t leading,
                                  int64_t stride) {
  Value address = b.add(sharedPlace, offset);
  Value start = b.bitAnd(b.shiftRight(address, 4), b.number(0x3fff));
  constexpr int64_t swizzle128 = int64_t(1) << 62;
  return b.bitOr(
      b.make<arith::ExtUIOp>(b.i64, start),
      b.wideNumber(leading / 16 << 16 | stride / 16 << 32 | swizzle128));
}

SmallVector<Value> WarpgroupKernel::multiplyStage(Value stage,
                                                  ValueRange start) {
  MLIRContext *context = b.builder.getContext();
  SmallVector<Value> sums(start);
  auto type =
      kernel.element.isF16() ? NVVM::WGMMATypes::f16 : NVVM::WGMMATypes::bf16;
  auto shape = NVVM::MMAShapeAttr::get(context, 64, int(s.tileN), 16);
  // Eight rows of k innermost stand together; the leading offset has no
  // meaning there. Panels of contiguous columns follow each other by it; a
  // warpgroup has one panel of rows.
  int64_t panel = s.tileK * 128;
  auto leading = [&](bool isByColumns) { return isByColumns ? panel : 16; };
  auto stepBytes = [](bool isByColumns) { return isByColumns ? 16 * 128 : 32; };
  auto layout = [](bool isRow) {
    return isRow ? NVVM::MMALayout::row : NVVM::MMALayout::col;
  };
  bool isLeftByColumns = kernel.contraction;
  bool isRightByColumns = hasColumnsInside();
  Value left = descriptor(b.add(b.mul(stage, rowBytes), b.mul(consumer, panel)),
                          leading(isLeftByColumns), patternBytes);
  for (int64_t w = 0; w < kernel.weights; ++w) {
    Value right = descriptor(b.add(b.mul(stage, kernel.weights * weightBytes),
                                   s.stages * rowBytes + w * weightBytes),
                             leading(isRightByColumns), patternBytes);
    for (int64_t step = 0; step < s.tileK / 16; ++step)
      sums[w] = b.makeHere<NVVM::WgmmaMmaAsyncOp>(
          __FILE__, __LINE__, sumsType, sums[w],
          b.add(left, step * stepBytes(isLeftByColumns) / 16),
          b.add(right, step * stepBytes(isRightByColumns) / 16), shape, type,
          type, NVVM::WGMMATypes::f32, NVVM::WGMMAScaleOut::one,
          NVVM::WGMMAScaleIn::one, NVVM::WGMMAScaleIn::one,
          layout(!isLeftByColumns), layout(isRightByColumns),
          NVVM::MMAIntOverflowAttr());
  }
  return sums;
}

void WarpgroupKernel::clearTail(Value stage, Value present) {
  // Rows of the tiles are steps here, of 128 bytes in each panel. Both
  // operands: a zero times what another group has may be NaN.
  int64_t threads = s.warpsM * 128, rowsPerPass = threads / 8;
  Value own = b.sub(thread, b.number(128));
  Value row = b.div(own, 8), piece = b.mul(b.rem(own, 8), 16);
  auto four = VectorType::get({4}, b.i32);
  Value left = b.mul(stage, rowBytes);
  Value right = b.add(b.mul(stage, weightBytes), s.stages * rowBytes);
  for (int64_t first = 0; first < s.tileK; first += rowsPerPass) {
    Value step = b.add(row, first);
    b.when(b.compare(Predicate::sge, step, present), [&] {
      Value offset = b.add(b.mul(step, 128), piece);
      auto clear = [&](Value tile, int64_t columns) {
        for (int64_t c = 0; c < columns; c += 64)
          b.store(b.zero(four),
                  b.at(shared, b.add(b.add(tile, offset), c * s.tileK * 2)));
      };
      clear(left, s.tileM);
      clear(right, s.tileN);
    });
  }
  // The matrix units of all warpgroups see the zeros of all threads.
  b.makeHere<NVVM::FenceProxyOp>(
      __FILE__, __LINE__, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(b.builder.getContext(),
                                 NVVM::SharedSpace::shared_cta));
  b.makeHere<NVVM::BarrierOp>(__FILE__, __LINE__, TypeRange(), b.number(1),
                              b.number(threads), NVVM::BarrierReductionAttr(),
                              Value());
}

void WarpgroupKernel::multiplyTile(const Tile &tile, Value count) {
  Value lane = b.rem(consumerThread, 32), warp = b.div(consumerThread, 32);
  Value isFirst = b.compare(Predicate::eq, consumerThread, 0);
  Value column = b.mul(b.rem(lane, 4), 2);
  int64_t columnTiles = s.tileN / 8;

  // 1. The sums start from bias or 0.
  auto starts = emitStarts(b, kernel, operands, tile, column, columnTiles);
  SmallVector<Value> sums;
  for (int64_t w = 0; w < kernel.weights; ++w) {
    Value all = b.make<LLVM::PoisonOp>(sumsType);
    for (int64_t j = 0; j < columnTiles; ++j)
      for (int64_t v = 0; v < 4; ++v)
        all = b.make<LLVM::InsertValueOp>(all, starts[w][j][v % 2], 4 * j + v);
    sums.push_back(all);
  }

  // 2. One step's products run while the next step's are given out; then the
  // stage of the former is free.
  Value all = stepsOf(tile);
  sums = b.loop(all, sums, [&](Value step, ValueRange before) {
    Value now = b.add(count, step), stage = stageOf(now);
    wait(mbarrier(stage, false), phaseOf(now));
    if (kernel.contraction) {
      Value present =
          b.sub(b.sub(tile.endRow, tile.firstRow), b.mul(step, s.tileK));
      b.when(b.compare(Predicate::slt, present, s.tileK),
             [&] { clearTail(stage, present); });
    }
    b.makeHere<NVVM::WgmmaFenceAlignedOp>(__FILE__, __LINE__);
    SmallVector<Value> after = multiplyStage(stage, before);
    b.makeHere<NVVM::WgmmaGroupSyncAlignedOp>(__FILE__, __LINE__);
    b.makeHere<NVVM::WgmmaWaitGroupSyncOp>(__FILE__, __LINE__, uint64_t(1));
    Value isDone = b.compare(Predicate::sgt, step, 0);
    Value done = stageOf(b.add(now, s.stages - 1));
    b.when(b.bitAnd(isDone, isFirst), [&] { releaseStage(done); });
    return after;
  });
  b.makeHere<NVVM::WgmmaWaitGroupSyncOp>(__FILE__, __LINE__, uint64_t(0));
  Value releases = isFirst;
  if (kernel.contraction)
    releases = b.bitAnd(isFirst, b.compare(Predicate::sgt, all, 0));
  b.when(releases, [&] {
    releaseStage(stageOf(b.add(b.add(count, all), s.stages - 1)));
  });

  // 3. Results.
  Fragment fragment;
  fragment.rowTiles = 1;
  fragment.columnTiles = columnTiles;
  fragment.rows.push_back(
      b.add(b.add(b.mul(consumer, 64), b.mul(warp, 16)), b.div(lane, 4)));
  fragment.column = column;
  auto sum = [&](int64_t w, int64_t, int64_t j, int64_t v) -> Value {
    return b.makeHere<LLVM::ExtractValueOp>(__FILE__, __LINE__, sums[w],
                                            4 * j + v);
  };
  fragment.sum = sum;
  emitResults(b, kernel, operands, tile, fragment);
}

void WarpgroupKernel::multiply() {
  b.makeHere<NVVM::SetMaxRegisterOp>(__FILE__, __LINE__, productRegisters,
                                     NVVM::SetMaxRegisterAction::increase);
  consumer = b.sub(b.div(thread, 128), b.number(1));
  consumerThread = b.rem(thread, 128);
  sharedPlace = b.make<LLVM::PtrToIntOp>(b.i32, shared);
  forEachTile(b, kernel, operands, {b.number(0)},
              [&](const Tile &tile, ValueRange count) -> SmallVector<Value> {
                multiplyTile(tile, count[0]);
                return {b.add(count[0], stepsOf(tile))};
              });
}

LLVM::LLVMFuncOp WarpgroupKernel::build() {
  MLIRContext *context = b.builder.getContext();
  rowBytes = s.tileM * s.tileK * 2;
  weightBytes = s.tileN * s.tileK * 2;
  mbarriers = s.stages * (rowBytes + kernel.weights * weightBytes);
  steps = llvm::divideCeil(kernel.k, s.tileK);
  sumsType = LLVM::LLVMStructType::getLiteral(
      context, SmallVector<Type>(s.tileN / 2, b.f32));

  shared = b.dynamicShared();
  thread = b.thread();
  initialize();
  auto copies = b.compare(Predicate::ult, thread, 128);
  b.choose(
      copies, {},
      [&]() -> SmallVector<Value> {
        copy();
        return {};
      },
      [&]() -> SmallVector<Value> {
        multiply();
        return {};
      });
  b.finish();
  return b.function;
}

LLVM::LLVMFuncOp
mlir::moe::detail::buildWarpgroupKernel(gpu::GPUModuleOp module,
                                        const GroupedKernel &kernel) {
  return WarpgroupKernel(module, kernel).build();
}
