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
  Value loadFactor(Value at);
  void storeSums(ArrayRef<Value> sums, ArrayRef<Value> places);
  void storeResults(ArrayRef<Value> sums, int64_t count, Value first,
                    Value column);
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

/// A left factor in all lanes.
Value KernelBuilder::loadFactor(Value at) {
  Value scalar = b.load(call.stage, at);
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
  Value ofStep;
  if (format.stepsFirst)
    ofStep = b.mul(plus(step, unrolled), call.stride);
  int64_t perRow = columns.size();
  for (auto [r, row] : llvm::enumerate(rows)) {
    Value factor = loadFactor(
        ofStep ? plus(b.add(rows.front(), ofStep), static_cast<int64_t>(r))
               : plus(b.add(row, step), unrolled));
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
                   whole(before), whole(after), call.aheadShift, call.aheadRun,
                   format.fetchesNear);
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
  for (int64_t r = 0; r < count; ++r) {
    Value row = plus(first, r);
    rows.push_back(b.add(call.stageOffset,
                         format.stepsFirst ? row : b.mul(row, call.stride)));
  }
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
  if (!format.result)
    return storeSums(sums, places);
  b.when(
      call.result.isComplete, [&] { storeResults(sums, count, first, column); },
      [&] { storeSums(sums, places); });
}

void KernelBuilder::storeSums(ArrayRef<Value> sums, ArrayRef<Value> places) {
  for (auto [sum, place] : llvm::zip_equal(sums, places))
    vector::StoreOp::create(b.builder, b.loc, sum, call.sums,
                            ValueRange{place});
}

/// The pairs of an element of the upper half, first, and one of the lower.
static Value emitPairsOfHalves(LoopBuilder &b, Value value) {
  int64_t half = cast<VectorType>(value.getType()).getNumElements() / 2;
  SmallVector<int64_t> mask;
  for (int64_t i = 0; i < half; ++i)
    mask.append({half + i, i});
  return b.make<vector::ShuffleOp>(value, value, mask);
}

/// Memory takes the results of a tile while the next one is computed.
void KernelBuilder::storeResults(ArrayRef<Value> sums, int64_t count,
                                 Value first, Value column) {
  const TileResult &result = call.result;
  int64_t factors = format.resultRows;
  Values offsets;
  Value one = b.index(1);
  Value mask = b.sub(b.make<arith::ShLIOp>(one, result.runShift), one);
  for (int64_t v = 0; v < format.vectors; ++v) {
    Value at = plus(column, v * format.lanes);
    Value run = b.make<arith::ShRUIOp>(at, result.runShift);
    Value inside = b.make<arith::AndIOp>(at, mask);
    offsets.push_back(
        b.add(b.mul(run, result.runStride), b.mul(inside, b.index(factors))));
  }
  // Rows that share one of the results, or two vectors of a row.
  int64_t step = format.roundsTwo() && factors == 1 ? 2 : 1;
  auto makeVector = [&](int64_t r, int64_t v) {
    Value first = sums[r * format.vectors + v];
    if (factors * step == 1)
      return b.toReal(format.result, first);
    int64_t other =
        factors > 1 ? (r + 1) * format.vectors + v : r * format.vectors + v + 1;
    if (format.roundsTwo()) {
      Value both = emitRoundSums(b, first, sums[other]);
      return factors > 1 ? emitPairsOfHalves(b, both) : both;
    }
    Value later = b.toReal(format.result, sums[other]);
    return b.make<vector::InterleaveOp>(later, b.toReal(format.result, first));
  };
  Value start = b.add(result.offset,
                      b.mul(b.div(first, b.index(factors)), result.stride));
  auto store = [&](bool past) {
    for (int64_t r = 0; r < count; r += factors) {
      Value row = b.add(start, b.mul(b.index(r / factors), result.stride));
      for (int64_t v = 0; v < format.vectors; v += step) {
        Value value = makeVector(r, v), at = b.add(row, offsets[v]);
        if (past)
          b.streamLanes(value, {result.memref, {}}, at);
        else
          b.storeLanes(value, {result.memref, {}}, at,
                       format.lanes * factors * step);
      }
    }
  };
  b.when(result.streams, [&] { store(true); }, [&] { store(false); });
}

void KernelBuilder::emit() {
  // Balanced tiles: none is much smaller than the others. Rows that share a row
  // of the results stay together.
  Value zero = b.index(0), one = b.index(1);
  int64_t together = format.result ? format.resultRows : 1;
  Value units = b.div(call.rows, b.index(together));
  Value tiles =
      b.make<arith::CeilDivUIOp>(units, b.index(format.rows / together));
  Value base = b.div(units, tiles);
  Value longer = b.sub(units, b.mul(base, tiles));
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
    Value first =
        b.mul(b.add(b.mul(t, base), b.minimum(t, longer)), b.index(together));
    Value before = b.mul(t, b.mul(perTile, b.index(columns)));
    SmallVector<int64_t> cases =
        llvm::to_vector(llvm::seq<int64_t>(1, format.rows / together));
    auto choice = scf::IndexSwitchOp::create(b.builder, b.loc, TypeRange{},
                                             rows, cases, cases.size());
    auto fill = [&](Region &region, int64_t count) {
      OpBuilder::InsertionGuard guard(b.builder);
      b.builder.createBlock(&region);
      emitTiles(count * together, first, before);
      scf::YieldOp::create(b.builder, b.loc);
    };
    for (auto [region, count] : llvm::zip_equal(choice.getCaseRegions(), cases))
      fill(region, count);
    fill(choice.getDefaultRegion(), format.rows / together);
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
  if (format.stepsFirst)
    stream << "_steps";
  if (format.result)
    stream << "_to_" << format.result
           << (format.resultRows > 1 ? "_pairs" : "");
  // Panels may be made from another type.
  Type source = getElementTypeOrSelf(call.ahead.front().getType());
  if (source != getElementTypeOrSelf(call.panels.front().getType()))
    stream << "_from_" << source;
  return name;
}

/// The operands of a call in the order of the function's arguments.
static SmallVector<Value> listOperands(const TileFormat &format,
                                       const TileCall &call) {
  SmallVector<Value> operands{call.stage, call.stageOffset, call.stride,
                              call.rows};
  llvm::append_range(operands, call.panels);
  operands.append(
      {call.panelOffset, call.steps, call.sums, call.sumsOffset, call.fresh});
  llvm::append_range(operands, call.ahead);
  operands.append({call.aheadOffset, call.aheadChunks, call.aheadStride,
                   call.aheadShift, call.aheadRun});
  const TileResult &result = call.result;
  if (format.result)
    operands.append({result.memref, result.offset, result.stride,
                     result.runShift, result.runStride, result.isComplete,
                     result.streams});
  return operands;
}

static TileCall fromArguments(Block::BlockArgListType arguments,
                              const TileFormat &format) {
  int64_t weights = format.weights;
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
  if (!format.result)
    return call;
  for (Value *value :
       {&call.result.memref, &call.result.offset, &call.result.stride,
        &call.result.runShift, &call.result.runStride, &call.result.isComplete,
        &call.result.streams})
    *value = take();
  return call;
}

void mlir::moe::detail::emitTileCall(LoopBuilder &b, Operation *op,
                                     const TileFormat &format,
                                     const TileCall &call) {
  SmallVector<Value> operands = listOperands(format, call);
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
                      fromArguments(function.getArguments(), format))
            .emit();
        func::ReturnOp::create(b.builder, op->getLoc());
      });
  func::CallOp::create(b.builder, b.loc, kernel, operands);
}
