// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GroupedCommon.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

int64_t GPUSchedule::threads() const {
  return style == GPUStyle::CpAsync ? warpsM * warpsN * 32 : (warpsM + 1) * 128;
}

/// Bytes of the tiles of one stage: all operands have 16-bit elements.
static int64_t stageBytes(const GroupedKernel &kernel) {
  const GPUSchedule &s = kernel.schedule;
  return 2 * s.tileK * (s.tileM + kernel.weights * s.tileN);
}

int64_t GroupedKernel::sharedBytes() const {
  int64_t bytes = schedule.stages * stageBytes(*this);
  // A full and an empty mbarrier per stage.
  return schedule.style == GPUStyle::CpAsync ? bytes
                                             : bytes + 16 * schedule.stages;
}

KernelBoxes moe::getBoxes(const GroupedKernel &kernel) {
  const GPUSchedule &s = kernel.schedule;
  KernelBoxes boxes{{s.tileK, s.tileM}, {s.tileK, s.tileN}};
  if (kernel.transposed) {
    boxes.weights[0] = 64;
    boxes.weights[1] = s.tileK;
  }
  return boxes;
}

static bool isPowerOfTwo(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

LogicalResult moe::checkKernel(const GroupedKernel &kernel,
                               function_ref<InFlightDiagnostic()> report) {
  const GPUSchedule &s = kernel.schedule;
  if (!kernel.element.isBF16() && !kernel.element.isF16())
    return report() << "expected rows and weights of bf16 or f16, got "
                    << kernel.element;
  if (!kernel.result.isBF16() && !kernel.result.isF16() &&
      !kernel.result.isF32())
    return report() << "expected a result of bf16, f16 or f32, got "
                    << kernel.result;
  if (s.stages < 2 || s.stages > 16)
    return report() << "expected 2 to 16 stages, got " << s.stages;
  if (kernel.weights < 1 || (kernel.contraction && kernel.weights != 1))
    return report() << "expected one sum in mode contraction, got "
                    << kernel.weights;
  // The window of the smallest GPU of the style, less what the system takes.
  int64_t limit = s.style == GPUStyle::CpAsync ? 163 << 10 : 227 << 10;
  if (kernel.sharedBytes() > limit)
    return report() << "expected at most " << limit
                    << " bytes of shared memory, got " << kernel.sharedBytes();
  if (s.style == GPUStyle::CpAsync) {
    if ((s.tileK != 32 && s.tileK != 64) || !isPowerOfTwo(s.tileM) ||
        !isPowerOfTwo(s.tileN) || s.tileM < 16 || s.tileN < 32)
      return report() << "expected a tile of powers of two from 16x32, 32 deep "
                         "or 64, got "
                      << s.tileM << "x" << s.tileN << "x" << s.tileK;
    bool transposedA = kernel.contraction;
    bool transposedB = kernel.contraction || kernel.transposed;
    if ((transposedA && s.tileM < 64) || (transposedB && s.tileN < 64))
      return report() << "expected at least 64 along what is contiguous, got "
                      << s.tileM << "x" << s.tileN;
    if (!isPowerOfTwo(s.warpsM) || !isPowerOfTwo(s.warpsN) ||
        s.threads() > 1024 || s.tileM % (16 * s.warpsM) ||
        s.tileN % (16 * s.warpsN))
      return report() << "expected warps with tiles of multiples of 16, got "
                      << s.warpsM << "x" << s.warpsN << " of " << s.tileM << "x"
                      << s.tileN;
    int64_t least = std::min(s.tileM, s.tileN) * s.tileK / 8;
    if (least % s.threads())
      return report() << "expected at most " << least << " threads, got "
                      << s.threads();
    return success();
  }
  if (kernel.contraction || kernel.gather)
    return report() << "expected mode rows without gather for bulk copies, got "
                       "another kernel";
  if (s.tileK != 64 || s.tileM != 64 * s.warpsM || s.warpsM < 1 ||
      s.warpsM > 2 || s.tileN % 8 || s.tileN < 8 || s.tileN > 256 ||
      (kernel.transposed && s.tileN % 64))
    return report() << "expected a tile of 64 rows per warpgroup, up to 256 "
                       "columns, 64 deep, got "
                    << s.tileM << "x" << s.tileN << "x" << s.tileK;
  if (kernel.weights * s.tileN > 256)
    return report() << "expected at most 256 columns over all weights, got "
                    << kernel.weights * s.tileN;
  if (kernel.k % 8 || (kernel.transposed && kernel.n % 8))
    return report() << "expected rows of multiples of 16 bytes for bulk "
                       "copies, got "
                    << (kernel.k % 8 ? kernel.k : kernel.n) << " elements";
  return success();
}

LLVM::LLVMFuncOp moe::buildGroupedKernel(gpu::GPUModuleOp module,
                                         const GroupedKernel &kernel) {
  return kernel.schedule.style == GPUStyle::CpAsync
             ? buildCpAsyncKernel(module, kernel)
             : buildWarpgroupKernel(module, kernel);
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

std::unique_ptr<KernelBuilder>
mlir::moe::detail::beginKernel(gpu::GPUModuleOp module,
                               const GroupedKernel &kernel,
                               KernelOperands &operands) {
  MLIRContext *context = module.getContext();
  Type global = LLVM::LLVMPointerType::get(
      context, unsigned(NVVM::NVVMMemorySpace::Global));
  bool bulk = kernel.schedule.style == GPUStyle::Warpgroup;
  int64_t maps = bulk ? 1 + kernel.weights : 0;
  int64_t rows = bulk ? 0 : kernel.contraction ? 2 : 1;
  int64_t weights = bulk || kernel.contraction ? 0 : kernel.weights;

  SmallVector<Type> types(maps, LLVM::LLVMPointerType::get(context));
  SmallVector<bool> byValue(maps, true);
  auto pointers = [&](int64_t count) { types.append(count, global); };
  pointers(rows + 1 + weights + kernel.bias.size() + kernel.gather +
           kernel.vectors.size() + kernel.elements.size() +
           kernel.scalars.size() + 1);
  types.push_back(IntegerType::get(context, 32));
  byValue.resize(types.size(), false);

  auto b = std::make_unique<KernelBuilder>(module, kernel.name, types, byValue,
                                           kernel.schedule.threads());
  unsigned next = 0;
  auto take = [&](SmallVector<Value> &to, size_t count) {
    for (size_t i = 0; i < count; ++i)
      to.push_back(b->argument(next++));
  };
  take(operands.maps, maps);
  take(operands.rows, rows);
  operands.sizes = b->argument(next++);
  take(operands.weights, weights);
  take(operands.bias, kernel.bias.size());
  if (kernel.gather)
    operands.gather = b->argument(next++);
  take(operands.vectors, kernel.vectors.size());
  take(operands.elements, kernel.elements.size());
  take(operands.scalars, kernel.scalars.size());
  operands.result = b->argument(next++);
  operands.stride = b->argument(next++);
  return b;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

SmallVector<Value> mlir::moe::detail::forEachTile(
    KernelBuilder &b, const GroupedKernel &kernel,
    const KernelOperands &operands, ValueRange carried,
    function_ref<SmallVector<Value>(const Tile &, ValueRange)> body) {
  const GPUSchedule &s = kernel.schedule;
  int64_t columns = kernel.contraction ? kernel.k : kernel.n;
  int64_t tilesN = llvm::divideCeil(columns, s.tileN);
  int64_t tilesM = llvm::divideCeil(kernel.n, s.tileM);
  Value experts = b.number(kernel.experts);
  auto sizeOf = [&](Value expert) {
    return b.load(b.at(operands.sizes, b.mul(b.widen(expert), 4)), b.i32);
  };
  Value grid = b.blocks();

  // tile, expert, first tile of the expert, first row of the expert.
  SmallVector<Value> start{b.block(), b.number(0), b.number(0), b.number(0)};
  start.append(carried.begin(), carried.end());
  SmallVector<Value> end = b.loopWhile(
      start,
      [&](ValueRange now) -> SmallVector<Value> {
        SmallVector<Value> place = b.loopWhile(
            now.slice(1, 3),
            [&](ValueRange at) -> SmallVector<Value> {
              Value expert = at[0], base = at[1], row = at[2];
              Value exists = b.compare(Predicate::ult, expert, experts);
              SmallVector<Value> next = b.choose(
                  exists, {b.i1, b.i32, b.i32},
                  [&]() -> SmallVector<Value> {
                    Value size = sizeOf(expert);
                    Value tiles = kernel.contraction
                                      ? b.number(tilesM * tilesN)
                                      : b.mul(b.ceilDiv(size, s.tileM), tilesN);
                    Value after = b.add(base, tiles);
                    return {b.compare(Predicate::uge, now[0], after), after,
                            b.add(row, size)};
                  },
                  [&]() -> SmallVector<Value> {
                    return {b.zero(b.i1), base, row};
                  });
              Value goesOn = next[0];
              return {goesOn, b.select(goesOn, b.add(expert, 1), expert),
                      b.select(goesOn, next[1], base),
                      b.select(goesOn, next[2], row)};
            },
            [](ValueRange at) { return SmallVector<Value>(at); });
        SmallVector<Value> values{b.compare(Predicate::ult, place[0], experts),
                                  now[0]};
        values.append(place);
        llvm::append_range(values, now.drop_front(4));
        return values;
      },
      [&](ValueRange now) -> SmallVector<Value> {
        Value local = b.sub(now[0], now[2]);
        Tile tile;
        tile.expert = now[1];
        Value first =
            kernel.padded ? b.mul(tile.expert, operands.stride) : Value(now[3]);
        tile.endRow = b.add(first, sizeOf(tile.expert));
        Value down = b.mul(b.div(local, tilesN), s.tileM);
        tile.column = b.mul(b.rem(local, tilesN), s.tileN);
        tile.resultRow = down;
        tile.firstRow = kernel.contraction ? first : b.add(first, down);
        SmallVector<Value> next{b.add(now[0], grid), now[1], now[2], now[3]};
        next.append(body(tile, now.drop_front(4)));
        return next;
      });
  return SmallVector<Value>(ArrayRef<Value>(end).drop_front(4));
}
