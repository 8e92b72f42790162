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

using namespace mlir;
using namespace mlir::moe;

/// Steps of the contraction per loop iteration: enough to hide the loop's own
/// instructions, few enough that six rows stay in the micro-op cache.
static constexpr int64_t kUnroll = 4;

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

RegisterTile::Accumulators RegisterTile::emitInit(ImplicitLocOpBuilder &b,
                                                  const TilePosition &position,
                                                  int64_t numRows,
                                                  ArrayRef<Value> masks) {
  Type accumulator = op.getAccumulatorType();
  auto type = VectorType::get({lanes}, accumulator);
  int64_t weights = op.getWeights().size();
  Accumulators init(numRows * weights * vectorsPerWeight);
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

RegisterTile::Accumulators
RegisterTile::emitContraction(ImplicitLocOpBuilder &b,
                              const TilePosition &position,
                              ArrayRef<Value> rowIndices, Accumulators init) {
  Type accumulator = op.getAccumulatorType();
  int64_t weights = op.getWeights().size(), k = op.getK();
  int64_t numRows = rowIndices.size();

  // One step: acc[r, w, v] = fma(rows[r, k], weights[w][e, panel, k, v], acc).
  auto step = [&](ImplicitLocOpBuilder &b, Value kIndex,
                  MutableArrayRef<Value> acc) {
    SmallVector<Value> columns(weights * vectorsPerWeight);
    for (int64_t w = 0; w < weights; ++w) {
      Value panel = op.getWeights()[w];
      auto type =
          VectorType::get({lanes}, getElementTypeOrSelf(panel.getType()));
      for (int64_t v = 0; v < vectorsPerWeight; ++v) {
        SmallVector<Value> indices{
            position.expert, position.panel, kIndex,
            addIndex(b, position.panelColumn, v * lanes)};
        columns[w * vectorsPerWeight + v] = widen(
            b, vector::LoadOp::create(b, type, panel, indices), accumulator);
      }
    }
    auto wide = VectorType::get({lanes}, accumulator);
    for (int64_t r = 0; r < numRows; ++r) {
      Value element = widen(
          b, memref::LoadOp::create(b, rows, ValueRange{rowIndices[r], kIndex}),
          accumulator);
      Value row = vector::BroadcastOp::create(b, wide, element);
      for (int64_t c = 0; c < weights * vectorsPerWeight; ++c) {
        Value &target = acc[r * weights * vectorsPerWeight + c];
        // vector.fma would become fmuladd, which may round twice.
        target = math::FmaOp::create(b, row, columns[c], target);
      }
    }
  };

  int64_t unrolled = k / kUnroll * kUnroll;
  Accumulators acc = std::move(init);
  if (unrolled > 0) {
    auto loop = scf::ForOp::create(
        b, constantIndex(b, 0), constantIndex(b, unrolled),
        constantIndex(b, kUnroll), acc,
        [&](OpBuilder &inner, Location loc, Value iv, ValueRange args) {
          ImplicitLocOpBuilder body(loc, inner);
          Accumulators values(args);
          for (int64_t u = 0; u < kUnroll; ++u)
            step(body, addIndex(body, iv, u), values);
          scf::YieldOp::create(body, values);
        });
    // The loop is unrolled as far as it pays; more only costs compile time.
    auto unroll = LLVM::LoopUnrollAttr::get(b.getContext(),
                                            /*disable=*/b.getBoolAttr(true), {},
                                            {}, {}, {}, {}, {});
    loop->setAttr("llvm.loop_annotation",
                  LLVM::LoopAnnotationAttr::get(b.getContext(), {}, {}, {},
                                                unroll, {}, {}, {}, {}, {}, {},
                                                {}, {}, {}, {}, {}));
    acc.assign(loop.getResults().begin(), loop.getResults().end());
  }
  for (int64_t rest = unrolled; rest < k; ++rest)
    step(b, constantIndex(b, rest), acc);
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

void RegisterTile::emitEpilogue(ImplicitLocOpBuilder &b,
                                const TilePosition &position, int64_t numRows,
                                const Accumulators &accumulators,
                                ArrayRef<Value> masks) {
  int64_t weights = op.getWeights().size();
  for (int64_t v = 0; v < vectorsPerWeight; ++v) {
    Value column = addIndex(b, position.column, v * lanes);
    Value mask = masks.empty() ? Value() : masks[v];
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
      if (mask)
        vector::MaskedStoreOp::create(b, result, indices, mask, value);
      else
        vector::StoreOp::create(b, value, result, indices);
    }
  }
}

void RegisterTile::emit(ImplicitLocOpBuilder &b, const TilePosition &position,
                        int64_t numRows, bool masked) {
  SmallVector<Value> masks;
  if (masked)
    for (int64_t v = 0; v < vectorsPerWeight; ++v) {
      Value left =
          arith::SubIOp::create(b, constantIndex(b, op.getN()),
                                addIndex(b, position.column, v * lanes));
      masks.push_back(vector::CreateMaskOp::create(
          b, VectorType::get({lanes}, b.getI1Type()), left));
    }
  SmallVector<Value> rowIndices;
  for (int64_t r = 0; r < numRows; ++r) {
    Value row = addIndex(b, position.row, r);
    if (op.getGather()) {
      Value source = memref::LoadOp::create(b, op.getGather(), row);
      row = arith::IndexCastOp::create(b, b.getIndexType(), source);
      row = arith::MaxSIOp::create(b, row, constantIndex(b, 0));
    }
    rowIndices.push_back(row);
  }
  Accumulators init = emitInit(b, position, numRows, masks);
  Accumulators acc = emitContraction(b, position, rowIndices, std::move(init));
  emitEpilogue(b, position, numRows, acc, masks);
}
