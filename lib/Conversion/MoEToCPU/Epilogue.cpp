// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Epilogue.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

Value mlir::moe::detail::emitSourceRow(LoopBuilder &b, GroupedMatmulOp op,
                                       Value row) {
  if (!op.getGather())
    return row;
  return b.maximum(b.toIndex(b.load(op.getGather(), {row})), b.index(0));
}

Value Epilogue::emitMask(LoopBuilder &b, const Columns &columns, Value column) {
  Value left = b.maximum(b.sub(columns.end, column), b.index(0));
  return b.make<vector::CreateMaskOp>(
      VectorType::get({format.lanes}, b.builder.getI1Type()), left);
}

Value Epilogue::load(LoopBuilder &b, Value memref, Value leading, Value column,
                     Value mask) {
  auto type =
      VectorType::get({format.lanes}, getElementTypeOrSelf(memref.getType()));
  SmallVector<Value> indices{leading, column};
  if (!mask)
    return b.make<vector::LoadOp>(type, memref, indices);
  Value zero = b.constant(cast<TypedAttr>(b.builder.getZeroAttr(type)));
  return b.make<vector::MaskedLoadOp>(type, memref, indices, mask, zero);
}

/// LLVM 22 turns a masked store of one known lane of 16 bits, cut from 32, into
/// a store of 32: where one column is left it is stored as a scalar.
void Epilogue::store(LoopBuilder &b, const Columns &columns, Value value,
                     Value result, Value row, Value column, Value mask) {
  SmallVector<Value> indices{row, column};
  if (!mask) {
    vector::StoreOp::create(b.builder, b.loc, value, result, indices);
    return;
  }
  auto storeMasked = [&] {
    vector::MaskedStoreOp::create(b.builder, b.loc, result, indices, mask,
                                  value);
  };
  if (blockColumns() % format.lanes != 1)
    return storeMasked();
  Value isSingle = b.compare(arith::CmpIPredicate::eq,
                             b.add(column, b.index(1)), columns.end);
  b.when(
      isSingle,
      [&] {
        Value first = b.make<vector::ExtractOp>(value, 0);
        b.store(first, result, indices);
      },
      storeMasked);
}

void Epilogue::emitStart(LoopBuilder &b, Value expert, const Columns &columns,
                         Value rows, Value sums, Value offset) {
  bool masked = blockColumns() % format.width != 0;
  b.loop(
      b.index(0), b.index(format.width),
      [&](Value c) {
        Value at = b.add(columns.first, c);
        Value mask = masked ? emitMask(b, columns, at) : Value();
        for (auto [w, bias] : llvm::enumerate(op.getBias())) {
          Value start =
              b.toReal(format.accumulator, load(b, bias, expert, at, mask));
          Value place = b.add(b.add(offset, b.index(w * format.width)), c);
          b.loop(b.index(0), rows, [&](Value r) {
            Value to = b.add(place, b.mul(r, b.index(format.rowSums())));
            vector::StoreOp::create(b.builder, b.loc, start, sums,
                                    ValueRange{to});
          });
        }
      },
      format.lanes);
}

/// Clones the scalar epilogue on vectors: every op of it is elementwise.
static SmallVector<Value> vectorizeEpilogue(LoopBuilder &b, Block &block,
                                            ArrayRef<Value> arguments,
                                            int64_t lanes) {
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator()) {
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto type = VectorType::get({lanes}, constant.getType());
      mapping.map(constant.getResult(), b.constant(DenseElementsAttr::get(
                                            type, constant.getValue())));
      continue;
    }
    OperationState state(op.getLoc(), op.getName());
    for (Value operand : op.getOperands())
      state.operands.push_back(mapping.lookup(operand));
    for (Type type : op.getResultTypes())
      state.types.push_back(VectorType::get({lanes}, type));
    state.attributes = op.getDiscardableAttrDictionary();
    state.propertiesAttr = op.getPropertiesAsAttribute();
    Operation *vectorized = b.builder.create(state);
    mapping.map(op.getResults(), vectorized->getResults());
  }
  SmallVector<Value> results;
  for (Value yielded : block.getTerminator()->getOperands())
    results.push_back(mapping.lookup(yielded));
  return results;
}

void Epilogue::emitPrefetches(LoopBuilder &b, const RowBlock &block,
                              const Columns &columns) {
  b.loop(b.index(0), block.rows, [&](Value r) {
    Value row = b.add(block.first, r);
    for (Value operand : flat.elements)
      b.prefetchLanes({operand, {row}}, columns.first, format.width,
                      /*locality=*/2);
  });
}

void Epilogue::emitRows(LoopBuilder &b, const RowBlock &block,
                        const Columns &columns, Value sums, Value offset,
                        bool masked) {
  auto type = VectorType::get({format.lanes}, format.accumulator);
  b.loop(b.index(0), block.rows, [&](Value r) {
    Value row = b.add(block.first, r);
    Value from = b.add(offset, b.mul(r, b.index(format.rowSums())));
    SmallVector<Value> scalars;
    for (Value operand : flat.scalars)
      scalars.push_back(b.spread(b.load(operand, {row}), format.lanes));
    b.loop(
        b.index(0), b.index(format.width),
        [&](Value c) {
          Value at = b.add(columns.first, c);
          Value mask = masked ? emitMask(b, columns, at) : Value();
          SmallVector<Value> arguments;
          for (int64_t w = 0; w < format.weights; ++w)
            arguments.push_back(b.make<vector::LoadOp>(
                type, sums,
                ValueRange{b.add(b.add(from, b.index(w * format.width)), c)}));
          for (Value operand : op.getVectors())
            arguments.push_back(load(b, operand, block.expert, at, mask));
          for (Value operand : flat.elements)
            arguments.push_back(load(b, operand, row, at, mask));
          llvm::append_range(arguments, scalars);
          SmallVector<Value> values = vectorizeEpilogue(
              b, op.getEpilogue().front(), arguments, format.lanes);
          for (auto [value, result] : llvm::zip(values, flat.results))
            store(b, columns, value, result, row, at, mask);
        },
        format.lanes);
  });
}

void Epilogue::emit(LoopBuilder &b, const RowBlock &block,
                    const Columns &columns, Value sums, Value offset) {
  auto rows = [&](bool masked) {
    emitRows(b, block, columns, sums, offset, masked);
  };
  if (blockColumns() % format.width == 0)
    return rows(/*masked=*/false);
  if (blockColumns() < format.width)
    return rows(/*masked=*/true);
  Value inside =
      b.compare(arith::CmpIPredicate::ule,
                b.add(columns.first, b.index(format.width)), columns.end);
  b.when(
      inside, [&] { rows(/*masked=*/false); }, [&] { rows(/*masked=*/true); });
}
