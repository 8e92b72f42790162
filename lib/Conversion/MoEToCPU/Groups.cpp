// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Groups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"

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

FlatOperands mlir::moe::flattenOperands(ImplicitLocOpBuilder &b,
                                        GroupedMatmulOp op) {
  bool padded = op.isPadded();
  FlatOperands flat;
  flat.rows = collapseRows(b, op.getRows().front(), padded);
  flat.result = collapseRows(b, op.getOuts().front(), padded);
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
  auto loop = scf::ForOp::create(
      b, zero, constantIndex(b, experts), one, ValueRange{zero, zero},
      [&](OpBuilder &inner, Location loc, Value e, ValueRange args) {
        ImplicitLocOpBuilder body(loc, inner);
        memref::StoreOp::create(body, args[0], offsets, e);
        Value size = loadSize(body, op, e);
        Value next =
            arith::AddIOp::create(body, args[0], stride ? stride : size);
        Value largest = arith::MaxSIOp::create(body, args[1], size);
        scf::YieldOp::create(body, ValueRange{next, largest});
      });
  return {offsets, loop.getResult(1)};
}
