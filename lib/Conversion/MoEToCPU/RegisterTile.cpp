// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RegisterTile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;

static constexpr int64_t kCacheLine = 64;

static Value constantIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

static Value addIndex(ImplicitLocOpBuilder &b, Value base, int64_t offset) {
  if (offset == 0)
    return base;
  return arith::AddIOp::create(b, base, constantIndex(b, offset));
}

/// Widens a value (scalar or vector) to the accumulator's element type.
static Value widen(ImplicitLocOpBuilder &b, Value value, Type accumulator) {
  Type type = value.getType();
  if (getElementTypeOrSelf(type) == accumulator)
    return value;
  Type wide = accumulator;
  if (auto vector = dyn_cast<VectorType>(type))
    wide = vector.clone(accumulator);
  return arith::ExtFOp::create(b, wide, value);
}

bool RegisterTile::needsStage() {
  return getElementTypeOrSelf(rows.getType()) != op.getAccumulatorType();
}

Value RegisterTile::load(ImplicitLocOpBuilder &b, Value memref, Value leading,
                         Value column, Value mask) {
  Type element = getElementTypeOrSelf(memref.getType());
  auto type = VectorType::get({lanes}, element);
  SmallVector<Value> indices{leading, column};
  if (!mask)
    return vector::LoadOp::create(b, type, memref, indices);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  return vector::MaskedLoadOp::create(b, type, memref, indices, mask, zero);
}

/// Which lanes of each vector stand for columns of the result.
SmallVector<Value> RegisterTile::emitMasks(ImplicitLocOpBuilder &b,
                                           Value column) {
  SmallVector<Value> masks;
  for (int64_t v = 0; v < vectorsPerWeight; ++v) {
    Value left = arith::SubIOp::create(b, constantIndex(b, op.getN()),
                                       addIndex(b, column, v * lanes));
    masks.push_back(vector::CreateMaskOp::create(
        b, VectorType::get({lanes}, b.getI1Type()), left));
  }
  return masks;
}

SmallVector<Value> RegisterTile::emitRowIndices(ImplicitLocOpBuilder &b,
                                                Value row, int64_t numRows) {
  SmallVector<Value> indices;
  for (int64_t r = 0; r < numRows; ++r) {
    Value index = addIndex(b, row, r);
    if (op.getGather()) {
      Value source = memref::LoadOp::create(b, op.getGather(), index);
      index = arith::IndexCastOp::create(b, b.getIndexType(), source);
      index = arith::MaxSIOp::create(b, index, constantIndex(b, 0));
    }
    indices.push_back(index);
  }
  return indices;
}

/// The start of every chain: the bias, or 0.
RegisterTile::Accumulators RegisterTile::emitInit(ImplicitLocOpBuilder &b,
                                                  const TilePosition &position,
                                                  int64_t numRows) {
  Type accumulator = op.getAccumulatorType();
  auto type = VectorType::get({lanes}, accumulator);
  int64_t weights = op.getWeights().size();
  Accumulators init(numRows * weights * vectorsPerWeight);
  SmallVector<Value> masks;
  if (!op.getBias().empty() && op.getN() % columns() != 0)
    masks = emitMasks(b, position.column);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  for (int64_t w = 0; w < weights; ++w)
    for (int64_t v = 0; v < vectorsPerWeight; ++v) {
      Value start = zero;
      if (!op.getBias().empty())
        start = widen(b,
                      load(b, op.getBias()[w], position.expert,
                           addIndex(b, position.column, v * lanes),
                           masks.empty() ? Value() : masks[v]),
                      accumulator);
      for (int64_t r = 0; r < numRows; ++r)
        init[index(r, w, v)] = start;
    }
  return init;
}

/// Loads the tile's accumulators from the block's `sums`, or stores `toStore`.
RegisterTile::Accumulators RegisterTile::moveSums(ImplicitLocOpBuilder &b,
                                                  const ContractionBlock &block,
                                                  int64_t numRows,
                                                  const Accumulators *toStore) {
  auto type = VectorType::get({lanes}, op.getAccumulatorType());
  int64_t perRow = op.getWeights().size() * vectorsPerWeight;
  Accumulators loaded;
  for (int64_t i = 0; i < numRows * perRow; ++i) {
    SmallVector<Value> indices{addIndex(b, block.sumsRow, i / perRow),
                               constantIndex(b, i % perRow * lanes)};
    if (toStore)
      vector::StoreOp::create(b, (*toStore)[i], block.sums, indices);
    else
      loaded.push_back(vector::LoadOp::create(b, type, block.sums, indices));
  }
  return loaded;
}

/// Widens the block's part of the rows into `stage`, once for all columns.
void RegisterTile::emitStage(ImplicitLocOpBuilder &b,
                             const ContractionBlock &block,
                             ArrayRef<Value> rowIndices) {
  Type accumulator = op.getAccumulatorType();
  Type element = getElementTypeOrSelf(rows.getType());
  auto type = VectorType::get({lanes}, element);
  auto stageRows = [&](ImplicitLocOpBuilder &b, Value k, bool vectors) {
    Value column = arith::SubIOp::create(b, k, block.begin);
    for (auto [r, row] : llvm::enumerate(rowIndices)) {
      SmallVector<Value> from{row, k};
      SmallVector<Value> to{constantIndex(b, r), column};
      if (vectors) {
        Value value = vector::LoadOp::create(b, type, rows, from);
        vector::StoreOp::create(b, widen(b, value, accumulator), block.stage,
                                to);
      } else {
        Value value = memref::LoadOp::create(b, rows, from);
        memref::StoreOp::create(b, widen(b, value, accumulator), block.stage,
                                to);
      }
    }
  };
  Value size = arith::SubIOp::create(b, block.end, block.begin);
  Value rest = arith::RemSIOp::create(b, size, constantIndex(b, lanes));
  Value whole = arith::SubIOp::create(b, block.end, rest);
  auto loop = [&](Value from, Value to, int64_t step, bool vectors) {
    scf::ForOp::create(
        b, from, to, constantIndex(b, step), ValueRange{},
        [&](OpBuilder &inner, Location loc, Value k, ValueRange) {
          ImplicitLocOpBuilder body(loc, inner);
          stageRows(body, k, vectors);
          scf::YieldOp::create(body);
        });
  };
  loop(block.begin, whole, lanes, /*vectors=*/true);
  if (op.getK() % lanes != 0)
    loop(whole, block.end, 1, /*vectors=*/false);
}

/// acc[r, w, v] = fma(rows[r, k], weights[w][e, panel, k, v], acc[r, w, v]).
void RegisterTile::emitStep(ImplicitLocOpBuilder &b,
                            const TilePosition &position,
                            const ContractionBlock &block,
                            ArrayRef<Value> rowIndices, Value k,
                            MutableArrayRef<Value> accumulators) {
  Type accumulator = op.getAccumulatorType();
  int64_t perRow = op.getWeights().size() * vectorsPerWeight;
  SmallVector<Value> columns;
  for (Value panel : op.getWeights()) {
    auto type = VectorType::get({lanes}, getElementTypeOrSelf(panel.getType()));
    for (int64_t v = 0; v < vectorsPerWeight; ++v) {
      SmallVector<Value> indices{position.expert, position.panel, k,
                                 addIndex(b, position.panelColumn, v * lanes)};
      columns.push_back(widen(
          b, vector::LoadOp::create(b, type, panel, indices), accumulator));
    }
  }
  auto wide = VectorType::get({lanes}, accumulator);
  Value stageColumn;
  if (block.stage)
    stageColumn = arith::SubIOp::create(b, k, block.begin);
  for (auto [r, row] : llvm::enumerate(rowIndices)) {
    Value element;
    if (block.stage)
      element = memref::LoadOp::create(
          b, block.stage, ValueRange{constantIndex(b, r), stageColumn});
    else
      element = memref::LoadOp::create(b, rows, ValueRange{row, k});
    Value broadcast = vector::BroadcastOp::create(b, wide, element);
    for (int64_t c = 0; c < perRow; ++c) {
      Value &target = accumulators[r * perRow + c];
      // vector.fma would become fmuladd, which may round twice.
      target = math::FmaOp::create(b, broadcast, columns[c], target);
    }
  }
}

/// Prefetches rows [from, to) after `prefetch.row` of the panels.
void RegisterTile::emitPrefetch(ImplicitLocOpBuilder &b,
                                const TilePosition &position,
                                const TilePrefetch &prefetch, Value from,
                                Value to) {
  Value last = constantIndex(b, op.getK() - 1);
  scf::ForOp::create(
      b, from, to, constantIndex(b, 1), ValueRange{},
      [&](OpBuilder &inner, Location loc, Value r, ValueRange) {
        ImplicitLocOpBuilder body(loc, inner);
        Value row = arith::MinSIOp::create(
            body, arith::AddIOp::create(body, prefetch.row, r), last);
        for (Value panel : op.getWeights()) {
          auto type = cast<MemRefType>(panel.getType());
          int64_t bytes = type.getElementTypeBitWidth() / 8;
          int64_t perLine = std::max<int64_t>(kCacheLine / bytes, 1);
          for (int64_t c = 0; c < type.getDimSize(3); c += perLine)
            memref::PrefetchOp::create(
                body, panel,
                ValueRange{position.expert, prefetch.panel, row,
                           constantIndex(body, c)},
                /*isWrite=*/false, /*localityHint=*/3, /*isDataCache=*/true);
        }
        scf::YieldOp::create(body);
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

RegisterTile::Accumulators RegisterTile::emitContraction(
    ImplicitLocOpBuilder &b, const TilePosition &position,
    const ContractionBlock &block, const std::optional<TilePrefetch> &prefetch,
    ArrayRef<Value> rowIndices, Accumulators init) {
  int64_t k = op.getK();
  Value whole = block.end;
  if (k % kUnroll != 0) {
    // Blocks begin at multiples of the unrolling: only the end is ragged.
    Value rest =
        arith::RemSIOp::create(b, block.end, constantIndex(b, kUnroll));
    whole = arith::SubIOp::create(b, block.end, rest);
  }
  Accumulators acc = std::move(init);
  if (k >= kUnroll) {
    Accumulators carried = acc;
    if (prefetch)
      carried.push_back(prefetch->start);
    auto loop = scf::ForOp::create(
        b, block.begin, whole, constantIndex(b, kUnroll), carried,
        [&](OpBuilder &inner, Location loc, Value iv, ValueRange args) {
          ImplicitLocOpBuilder body(loc, inner);
          Accumulators values(args);
          Value done;
          if (prefetch) {
            Value before = values.pop_back_val();
            done = arith::AddIOp::create(body, before, prefetch->rate);
            Value bits = constantIndex(body, 16);
            emitPrefetch(body, position, *prefetch,
                         arith::ShRUIOp::create(body, before, bits),
                         arith::ShRUIOp::create(body, done, bits));
          }
          for (int64_t u = 0; u < kUnroll; ++u)
            emitStep(body, position, block, rowIndices, addIndex(body, iv, u),
                     values);
          if (prefetch)
            values.push_back(done);
          scf::YieldOp::create(body, values);
        });
    disableUnrolling(loop);
    acc.assign(loop.getResults().begin(), loop.getResults().end());
    if (prefetch)
      acc.pop_back();
  }
  if (k % kUnroll != 0) {
    auto loop = scf::ForOp::create(
        b, whole, block.end, constantIndex(b, 1), acc,
        [&](OpBuilder &inner, Location loc, Value iv, ValueRange args) {
          ImplicitLocOpBuilder body(loc, inner);
          Accumulators values(args);
          emitStep(body, position, block, rowIndices, iv, values);
          scf::YieldOp::create(body, values);
        });
    disableUnrolling(loop);
    acc.assign(loop.getResults().begin(), loop.getResults().end());
  }
  return acc;
}

/// Clones the scalar epilogue on vectors: every op of it is elementwise.
static Value vectorizeEpilogue(ImplicitLocOpBuilder &b, Block &block,
                               ArrayRef<Value> arguments, int64_t lanes) {
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator()) {
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto type = VectorType::get({lanes}, constant.getType());
      auto value = DenseElementsAttr::get(type, constant.getValue());
      mapping.map(constant.getResult(),
                  arith::ConstantOp::create(b, value).getResult());
      continue;
    }
    OperationState state(op.getLoc(), op.getName());
    for (Value operand : op.getOperands())
      state.operands.push_back(mapping.lookup(operand));
    for (Type type : op.getResultTypes())
      state.types.push_back(VectorType::get({lanes}, type));
    state.attributes = op.getDiscardableAttrDictionary();
    state.propertiesAttr = op.getPropertiesAsAttribute();
    Operation *vectorized = b.create(state);
    mapping.map(op.getResults(), vectorized->getResults());
  }
  return mapping.lookup(block.getTerminator()->getOperand(0));
}

/// Stores the first lane if `column` is one of the result's. LLVM 22 turns a
/// masked store of one known lane of 16 bits, cut from 32, into a store of 32.
static void storeFirstLane(ImplicitLocOpBuilder &b, Value value, Value result,
                           Value row, Value column, int64_t n) {
  Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, column,
                                       constantIndex(b, n));
  scf::IfOp::create(b, inside, [&](OpBuilder &inner, Location loc) {
    Value first = vector::ExtractOp::create(inner, loc, value, 0);
    memref::StoreOp::create(inner, loc, first, result, ValueRange{row, column});
    scf::YieldOp::create(inner, loc);
  });
}

void RegisterTile::emitStores(ImplicitLocOpBuilder &b,
                              const TilePosition &position, int64_t numRows,
                              const Accumulators &accumulators,
                              ArrayRef<Value> masks) {
  int64_t weights = op.getWeights().size();
  for (int64_t v = 0; v < vectorsPerWeight; ++v) {
    Value column = addIndex(b, position.column, v * lanes);
    Value mask = masks.empty() ? Value() : masks[v];
    bool isSingle =
        mask && op.getN() % lanes == 1 && v == op.getN() % columns() / lanes;
    SmallVector<Value> vectors;
    for (Value operand : op.getVectors())
      vectors.push_back(load(b, operand, position.expert, column, mask));
    for (int64_t r = 0; r < numRows; ++r) {
      Value row = addIndex(b, position.row, r);
      SmallVector<Value> arguments;
      for (int64_t w = 0; w < weights; ++w)
        arguments.push_back(accumulators[index(r, w, v)]);
      llvm::append_range(arguments, vectors);
      for (Value operand : elements)
        arguments.push_back(load(b, operand, row, column, mask));
      for (Value operand : scalars) {
        Value scalar = memref::LoadOp::create(b, operand, row);
        arguments.push_back(vector::BroadcastOp::create(
            b, VectorType::get({lanes}, scalar.getType()), scalar));
      }
      Value value =
          vectorizeEpilogue(b, op.getEpilogue().front(), arguments, lanes);
      SmallVector<Value> indices{row, column};
      if (isSingle)
        storeFirstLane(b, value, result, row, column, op.getN());
      else if (mask)
        vector::MaskedStoreOp::create(b, result, indices, mask, value);
      else
        vector::StoreOp::create(b, value, result, indices);
    }
  }
}

/// Stores with masks only where the tile reaches beyond N.
void RegisterTile::emitEpilogue(ImplicitLocOpBuilder &b,
                                const TilePosition &position, int64_t numRows,
                                const Accumulators &accumulators) {
  int64_t n = op.getN();
  if (n % columns() == 0)
    return emitStores(b, position, numRows, accumulators, {});
  if (n < columns())
    return emitStores(b, position, numRows, accumulators,
                      emitMasks(b, position.column));
  Value end = addIndex(b, position.column, columns());
  Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, end,
                                       constantIndex(b, n));
  auto branch = [&](bool masked) {
    return [&, masked](OpBuilder &inner, Location loc) {
      ImplicitLocOpBuilder body(loc, inner);
      SmallVector<Value> masks;
      if (masked)
        masks = emitMasks(body, position.column);
      emitStores(body, position, numRows, accumulators, masks);
      scf::YieldOp::create(body);
    };
  };
  scf::IfOp::create(b, inside, branch(false), branch(true));
}

void RegisterTile::emit(ImplicitLocOpBuilder &b, const TilePosition &position,
                        const ContractionBlock &block,
                        const std::optional<TilePrefetch> &prefetch,
                        int64_t numRows) {
  SmallVector<Value> rowIndices = emitRowIndices(b, position.row, numRows);
  if (block.stage)
    emitStage(b, block, rowIndices);

  Accumulators init;
  if (!block.first) {
    init = emitInit(b, position, numRows);
  } else {
    auto choice = scf::IfOp::create(
        b, block.first,
        [&](OpBuilder &inner, Location loc) {
          ImplicitLocOpBuilder body(loc, inner);
          scf::YieldOp::create(body, emitInit(body, position, numRows));
        },
        [&](OpBuilder &inner, Location loc) {
          ImplicitLocOpBuilder body(loc, inner);
          scf::YieldOp::create(body, moveSums(body, block, numRows, nullptr));
        });
    init.assign(choice.getResults().begin(), choice.getResults().end());
  }

  Accumulators acc = emitContraction(b, position, block, prefetch, rowIndices,
                                     std::move(init));
  if (!block.last)
    return emitEpilogue(b, position, numRows, acc);
  scf::IfOp::create(
      b, block.last,
      [&](OpBuilder &inner, Location loc) {
        ImplicitLocOpBuilder body(loc, inner);
        emitEpilogue(body, position, numRows, acc);
        scf::YieldOp::create(body);
      },
      [&](OpBuilder &inner, Location loc) {
        ImplicitLocOpBuilder body(loc, inner);
        moveSums(body, block, numRows, &acc);
        scf::YieldOp::create(body);
      });
}
