// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TileKernel.h"

#include "DotProduct.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

TileFormat TileFormat::get(FloatType element, FloatType accumulator,
                           int64_t weights, int64_t width, bool pairs,
                           const CPUTileOptions &options) {
  TileFormat format;
  format.element = element;
  format.accumulator = accumulator;
  format.weights = weights;
  format.width = width;
  format.pairs = pairs;
  format.rows = options.rowTile;
  format.lanes =
      std::min<int64_t>(options.vectorBits / accumulator.getWidth(), width);
  format.vectors = std::max<int64_t>(options.getVectorsPerRow() / weights, 1);
  while (width % (format.vectors * format.lanes) != 0)
    --format.vectors;
  return format;
}

Type TileFormat::stageElement() const {
  if (!pairs)
    return accumulator;
  return IntegerType::get(element.getContext(),
                          2 * element.getIntOrFloatBitWidth());
}

static MemRefType flatType(Type element) {
  return MemRefType::get({ShapedType::kDynamic}, element);
}

Value mlir::moe::detail::flatten(LoopBuilder &b, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (type.getRank() > 1) {
    ReassociationIndices all =
        llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    memref = b.make<memref::CollapseShapeOp>(
        memref, ArrayRef<ReassociationIndices>(all));
  }
  auto flat = flatType(type.getElementType());
  if (memref.getType() == flat)
    return memref;
  return b.make<memref::CastOp>(flat, memref);
}

/// Into the second-level cache: the first has too few places for lines under
/// way to keep memory busy.
void mlir::moe::detail::emitPrefetches(LoopBuilder &b, ValueRange memrefs,
                                       Value offset, Value stride, Value from,
                                       Value to, Value shift, Value run) {
  b.loop(from, to, [&](Value chunk) {
    Value begin = offset;
    if (shift) {
      Value number = b.make<arith::ShRUIOp>(chunk, shift);
      chunk = b.sub(chunk, b.make<arith::ShLIOp>(number, shift));
      begin = b.add(begin, b.mul(number, run));
    }
    for (Value memref : memrefs) {
      int64_t bytes =
          cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
      Value first = b.add(begin, b.mul(chunk, stride));
      for (int64_t line = 0; line < kPrefetchBytes; line += kCacheLine)
        memref::PrefetchOp::create(
            b.builder, b.loc, memref,
            ValueRange{b.add(first, b.index(line / bytes))},
            /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
    }
  });
}

/// Keeps LLVM from unrolling a loop that is unrolled as far as it pays.
static void disableUnrolling(scf::ForOp loop) {
  MLIRContext *context = loop.getContext();
  auto unroll = LLVM::LoopUnrollAttr::get(
      context, /*disable=*/BoolAttr::get(context, true), {}, {}, {}, {}, {},
      {});
  loop->setAttr("llvm.loop_annotation",
                LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, unroll, {},
                                              {}, {}, {}, {}, {}, {}, {}, {},
                                              {}, {}));
}

namespace {

/// Fills the kernel's function.
class KernelBuilder {
public:
  KernelBuilder(LoopBuilder &b, const TileFormat &format, TileCall call)
      : b(b), format(format), call(std::move(call)) {}

  void emit();

private:
  using Values = SmallVector<Value>;

  /// A tile of `count` rows from row `first` and column `column` on.
  void emitTile(int64_t count, Value first, Value column, Value prefetched);
  Values emitSteps(Values sums, ArrayRef<Value> rows, Value column,
                   Value prefetched);
  void emitStep(MutableArrayRef<Value> sums, ArrayRef<Value> rows, Value column,
                Value step, int64_t unrolled);
  Value loadFactor(Value row, Value step, int64_t unrolled);
  VectorType sumType() {
    return VectorType::get({format.lanes}, format.accumulator);
  }
  Value plus(Value base, int64_t offset) {
    return offset == 0 ? base : b.add(base, b.index(offset));
  }

  LoopBuilder &b;
  const TileFormat &format;
  TileCall call;
  /// Chunks to prefetch per turn of the innermost loop: fixed point, 16 bits.
  Value rate;
};

} // namespace

/// The left factor of a step in all lanes.
Value KernelBuilder::loadFactor(Value row, Value step, int64_t unrolled) {
  Value scalar = b.load(call.stage, plus(b.add(row, step), unrolled));
  return b.make<vector::BroadcastOp>(
      VectorType::get({format.lanes}, scalar.getType()), scalar);
}

void KernelBuilder::emitStep(MutableArrayRef<Value> sums, ArrayRef<Value> rows,
                             Value column, Value step, int64_t unrolled) {
  int64_t factors = format.pairs ? 2 : 1;
  auto type = VectorType::get({format.lanes * factors}, format.element);
  Value at =
      b.add(call.panelOffset, b.add(b.mul(step, b.index(format.stepElements())),
                                    b.mul(column, b.index(factors))));
  Values columns;
  for (Value panel : call.panels)
    for (int64_t v = 0; v < format.vectors; ++v) {
      Value value = b.make<vector::LoadOp>(
          type, panel,
          ValueRange{plus(at, unrolled * format.stepElements() +
                                  v * format.lanes * factors)});
      columns.push_back(format.pairs ? value
                                     : b.toReal(format.accumulator, value));
    }
  int64_t perRow = columns.size();
  for (auto [r, row] : llvm::enumerate(rows)) {
    Value factor = loadFactor(row, step, unrolled);
    for (int64_t c = 0; c < perRow; ++c) {
      Value &sum = sums[r * perRow + c];
      // vector.fma would become an operation that may round twice.
      sum = format.pairs ? emitPairDot(b, sum, factor, columns[c])
                         : b.make<math::FmaOp>(factor, columns[c], sum);
    }
  }
}

KernelBuilder::Values KernelBuilder::emitSteps(Values sums,
                                               ArrayRef<Value> rows,
                                               Value column, Value prefetched) {
  Value zero = b.index(0), whole = call.steps;
  if (format.ragged)
    whole =
        b.sub(call.steps,
              b.make<arith::RemUIOp>(call.steps, b.index(TileFormat::kUnroll)));
  Values carried = sums;
  carried.push_back(prefetched);
  auto turns = scf::ForOp::create(b.builder, b.loc, zero, whole,
                                  b.index(TileFormat::kUnroll), carried);
  {
    OpBuilder::InsertionGuard guard(b.builder);
    b.builder.setInsertionPointToEnd(turns.getBody());
    Values next(turns.getRegionIterArgs());
    Value before = next.pop_back_val(), after = b.add(before, rate);
    auto whole = [&](Value fixed) {
      return b.make<arith::ShRUIOp>(fixed, b.index(16));
    };
    emitPrefetches(b, call.ahead, call.aheadOffset, call.aheadStride,
                   whole(before), whole(after), call.aheadShift, call.aheadRun);
    for (int64_t u = 0; u < TileFormat::kUnroll; ++u)
      emitStep(next, rows, column, turns.getInductionVar(), u);
    next.push_back(after);
    scf::YieldOp::create(b.builder, b.loc, next);
  }
  disableUnrolling(turns);
  sums.assign(turns.getResults().begin(), std::prev(turns.getResults().end()));
  if (!format.ragged)
    return sums;
  auto rest =
      scf::ForOp::create(b.builder, b.loc, whole, call.steps, b.index(1), sums);
  OpBuilder::InsertionGuard guard(b.builder);
  b.builder.setInsertionPointToEnd(rest.getBody());
  Values next(rest.getRegionIterArgs());
  emitStep(next, rows, column, rest.getInductionVar(), 0);
  scf::YieldOp::create(b.builder, b.loc, next);
  disableUnrolling(rest);
  return Values(rest.getResults());
}

void KernelBuilder::emitTile(int64_t count, Value first, Value column,
                             Value prefetched) {
  Values rows;
  for (int64_t r = 0; r < count; ++r)
    rows.push_back(b.add(call.stageOffset, b.mul(plus(first, r), call.stride)));
  // Accumulators by row, weight and vector.
  SmallVector<Value> places;
  for (int64_t r = 0; r < count; ++r) {
    Value row = b.add(call.sumsOffset,
                      b.mul(plus(first, r), b.index(format.rowSums())));
    for (int64_t w = 0; w < format.weights; ++w)
      for (int64_t v = 0; v < format.vectors; ++v)
        places.push_back(
            b.add(row, plus(column, w * format.width + v * format.lanes)));
  }
  Values sums = b.choose(
      call.fresh,
      [&] {
        Value zero =
            b.constant(cast<TypedAttr>(b.builder.getZeroAttr(sumType())));
        return Values(places.size(), zero);
      },
      [&] {
        Values loaded;
        for (Value place : places)
          loaded.push_back(
              b.make<vector::LoadOp>(sumType(), call.sums, ValueRange{place}));
        return loaded;
      });
  sums = emitSteps(std::move(sums), rows, column, prefetched);
  for (auto [sum, place] : llvm::zip_equal(sums, places))
    vector::StoreOp::create(b.builder, b.loc, sum, call.sums,
                            ValueRange{place});
}

void KernelBuilder::emit() {
  // Balanced tiles: none is much smaller than the others.
  Value zero = b.index(0), one = b.index(1);
  Value tiles = b.make<arith::CeilDivUIOp>(call.rows, b.index(format.rows));
  Value base = b.div(call.rows, tiles);
  Value longer = b.sub(call.rows, b.mul(base, tiles));
  // The prefetches are spread evenly over all turns of all tiles.
  Value turns = b.maximum(b.div(call.steps, b.index(TileFormat::kUnroll)), one);
  int64_t columns = format.width / format.columns();
  Value all = b.mul(b.mul(tiles, turns), b.index(columns));
  Value fixed = b.make<arith::ShLIOp>(call.aheadChunks, b.index(16));
  rate = b.make<arith::CeilDivUIOp>(fixed, all);
  Value perTile = b.mul(turns, rate);

  // The columns of a tile's rows one after the other: their stage stays near.
  auto emitTiles = [&](int64_t count, Value first, Value before) {
    if (columns == 1)
      return emitTile(count, first, zero, before);
    b.loop(columns, [&](Value i) {
      emitTile(count, first, b.mul(i, b.index(format.columns())),
               b.add(before, b.mul(i, perTile)));
    });
  };
  b.loop(zero, tiles, [&](Value t) {
    Value extra = b.compare(arith::CmpIPredicate::ult, t, longer);
    Value rows = b.add(
        base, b.make<arith::IndexCastUIOp>(b.builder.getIndexType(), extra));
    Value first = b.add(b.mul(t, base), b.minimum(t, longer));
    Value before = b.mul(t, b.mul(perTile, b.index(columns)));
    SmallVector<int64_t> cases =
        llvm::to_vector(llvm::seq<int64_t>(1, format.rows));
    auto choice = scf::IndexSwitchOp::create(b.builder, b.loc, TypeRange{},
                                             rows, cases, cases.size());
    auto fill = [&](Region &region, int64_t count) {
      OpBuilder::InsertionGuard guard(b.builder);
      b.builder.createBlock(&region);
      emitTiles(count, first, before);
      scf::YieldOp::create(b.builder, b.loc);
    };
    for (auto [region, count] : llvm::zip_equal(choice.getCaseRegions(), cases))
      fill(region, count);
    fill(choice.getDefaultRegion(), format.rows);
  });
}

static std::string kernelName(const TileFormat &format, const TileCall &call) {
  std::string name;
  llvm::raw_string_ostream stream(name);
  stream << "moira_tiles_" << format.element;
  if (format.accumulator != format.element)
    stream << "_" << format.accumulator;
  stream << "_" << format.weights << "x" << format.width;
  if (format.pairs)
    stream << "_pairs";
  if (format.ragged)
    stream << "_ragged";
  // Panels may be made from another type.
  Type source = getElementTypeOrSelf(call.ahead.front().getType());
  if (source != getElementTypeOrSelf(call.panels.front().getType()))
    stream << "_from_" << source;
  return name;
}

/// The operands of a call in the order of the function's arguments.
static SmallVector<Value> listOperands(const TileCall &call) {
  SmallVector<Value> operands{call.stage, call.stageOffset, call.stride,
                              call.rows};
  llvm::append_range(operands, call.panels);
  operands.append(
      {call.panelOffset, call.steps, call.sums, call.sumsOffset, call.fresh});
  llvm::append_range(operands, call.ahead);
  operands.append({call.aheadOffset, call.aheadChunks, call.aheadStride,
                   call.aheadShift, call.aheadRun});
  return operands;
}

static TileCall fromArguments(Block::BlockArgListType arguments,
                              int64_t weights) {
  TileCall call;
  auto *next = arguments.begin();
  auto take = [&] { return Value(*next++); };
  call.stage = take();
  call.stageOffset = take();
  call.stride = take();
  call.rows = take();
  for (int64_t w = 0; w < weights; ++w)
    call.panels.push_back(take());
  call.panelOffset = take();
  call.steps = take();
  call.sums = take();
  call.sumsOffset = take();
  call.fresh = take();
  for (int64_t w = 0; w < weights; ++w)
    call.ahead.push_back(take());
  call.aheadOffset = take();
  call.aheadChunks = take();
  call.aheadStride = take();
  call.aheadShift = take();
  call.aheadRun = take();
  return call;
}

void mlir::moe::detail::emitTileCall(LoopBuilder &b, Operation *op,
                                     const TileFormat &format,
                                     const TileCall &call) {
  SmallVector<Value> operands = listOperands(call);
  auto type = b.builder.getFunctionType(TypeRange(ValueRange(operands)), {});
  func::FuncOp kernel = getOrAddFunction(
      b.builder, op, kernelName(format, call), type,
      [&](func::FuncOp function) {
        // Its code is the larger part of the module; calls are rare.
        function->setAttr("passthrough",
                          b.builder.getStrArrayAttr({"noinline"}));
        b.builder.setInsertionPointToStart(function.addEntryBlock());
        LoopBuilder inner(b.builder, op->getLoc());
        KernelBuilder(inner, format,
                      fromArguments(function.getArguments(), format.weights))
            .emit();
        func::ReturnOp::create(b.builder, op->getLoc());
      });
  func::CallOp::create(b.builder, b.loc, kernel, operands);
}
