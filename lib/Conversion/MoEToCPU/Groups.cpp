// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Groups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::moe;

static Value constantIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

Value mlir::moe::collapseRows(ImplicitLocOpBuilder &b, Value memref,
                              bool padded) {
  if (!padded)
    return memref;
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<ReassociationIndices> groups{{0, 1}};
  for (int64_t d = 2; d < type.getRank(); ++d)
    groups.push_back({d});
  return memref::CollapseShapeOp::create(b, memref, groups);
}

void mlir::moe::recordNumerics(GroupedMatmulOp op) {
  op->getParentOfType<FunctionOpInterface>()->setAttr(
      kNumericsAttrName, StringAttr::get(op.getContext(), "cpu-dot-bf16"));
}

FlatOperands mlir::moe::flattenOperands(ImplicitLocOpBuilder &b,
                                        GroupedMatmulOp op) {
  bool padded = op.isPadded();
  FlatOperands flat;
  for (Value rows : op.getRows())
    flat.rows.push_back(collapseRows(b, rows, padded));
  for (Value out : op.getOuts())
    flat.results.push_back(collapseRows(b, out, padded));
  for (Value operand : op.getElements())
    flat.elements.push_back(collapseRows(b, operand, padded));
  for (Value operand : op.getScalars())
    flat.scalars.push_back(collapseRows(b, operand, padded));
  return flat;
}

Value mlir::moe::loadSize(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                          Value expert) {
  Value size = memref::LoadOp::create(b, op.getSizes(), expert);
  return arith::IndexCastOp::create(b, b.getIndexType(), size);
}

Groups mlir::moe::emitGroups(ImplicitLocOpBuilder &b, GroupedMatmulOp op) {
  int64_t experts = op.getNumExperts();
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  Value offsets =
      memref::AllocOp::create(b, MemRefType::get({experts}, b.getIndexType()));
  Value stride;
  if (op.isPadded())
    stride = b.createOrFold<memref::DimOp>(op.getRows().front(), 1);
  scf::ForOp::create(
      b, zero, constantIndex(b, experts), one, ValueRange{zero},
      [&](OpBuilder &inner, Location loc, Value e, ValueRange args) {
        ImplicitLocOpBuilder body(loc, inner);
        memref::StoreOp::create(body, args[0], offsets, e);
        Value size = loadSize(body, op, e);
        Value next =
            arith::AddIOp::create(body, args[0], stride ? stride : size);
        scf::YieldOp::create(body, ValueRange{next});
      });
  return {offsets};
}

RowBlocks mlir::moe::emitRowBlocks(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                                   int64_t rowBlock) {
  int64_t experts = op.getNumExperts();
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  Value rows = op.getGather()
                   ? b.createOrFold<memref::DimOp>(op.getGather(), 0)
                   : b.createOrFold<memref::DimOp>(op.getRows().front(), 0);
  if (op.isPadded())
    rows = arith::MulIOp::create(
        b, rows, b.createOrFold<memref::DimOp>(op.getRows().front(), 1));
  // One more per group for the blocks that are not full.
  Value most = arith::AddIOp::create(
      b, arith::CeilDivUIOp::create(b, rows, constantIndex(b, rowBlock)),
      constantIndex(b, experts));
  RowBlocks blocks;
  blocks.rowBlock = rowBlock;
  blocks.expert = memref::AllocOp::create(
      b, MemRefType::get({ShapedType::kDynamic}, b.getIndexType()), most);
  blocks.begin =
      memref::AllocOp::create(b, MemRefType::get({experts}, b.getIndexType()));
  auto loop = scf::ForOp::create(
      b, zero, constantIndex(b, experts), one, ValueRange{zero},
      [&](OpBuilder &inner, Location loc, Value e, ValueRange args) {
        ImplicitLocOpBuilder body(loc, inner);
        memref::StoreOp::create(body, args[0], blocks.begin, e);
        Value more = arith::CeilDivUIOp::create(body, loadSize(body, op, e),
                                                constantIndex(body, rowBlock));
        Value end = arith::AddIOp::create(body, args[0], more);
        scf::ForOp::create(
            body, args[0], end, one, ValueRange{},
            [&](OpBuilder &inner, Location loc, Value block, ValueRange) {
              memref::StoreOp::create(inner, loc, e, blocks.expert, block);
              scf::YieldOp::create(inner, loc);
            });
        scf::YieldOp::create(body, end);
      });
  blocks.count = loop.getResult(0);
  return blocks;
}

RowBlock mlir::moe::emitRowBlock(ImplicitLocOpBuilder &b, GroupedMatmulOp op,
                                 const Groups &groups, const RowBlocks &blocks,
                                 Value index) {
  RowBlock block;
  block.expert = memref::LoadOp::create(b, blocks.expert, index);
  Value number = arith::SubIOp::create(
      b, index, memref::LoadOp::create(b, blocks.begin, block.expert));
  Value size = loadSize(b, op, block.expert);
  Value count =
      arith::CeilDivUIOp::create(b, size, constantIndex(b, blocks.rowBlock));
  Value base = arith::DivUIOp::create(b, size, count);
  Value longer = arith::RemUIOp::create(b, size, count);
  Value start =
      arith::AddIOp::create(b, arith::MulIOp::create(b, number, base),
                            arith::MinUIOp::create(b, number, longer));
  Value hasMore =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, longer);
  block.rows = arith::AddIOp::create(
      b, base, arith::IndexCastUIOp::create(b, b.getIndexType(), hasMore));
  block.first = arith::AddIOp::create(
      b, memref::LoadOp::create(b, groups.offsets, block.expert), start);
  return block;
}
