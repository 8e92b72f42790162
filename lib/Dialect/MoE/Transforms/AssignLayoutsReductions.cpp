// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of gradients whose shards do not follow one another in memory.

#include "AssignLayoutsTrace.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;

/// Brings the number of the shard to dim 1, and adds up whole shards there.
static void orderReduction(ReduceWeightsOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto whole = cast<RankedTensorType>(op.getWhole().getType());
  auto local = cast<RankedTensorType>(op->getResult(0).getType());
  auto dim = static_cast<int64_t>(*op.getDim());
  auto parts = static_cast<int64_t>(op.getParts());
  int64_t shards = op.getPlacement().getPartsPerGroup();
  // [slots, ..., parts, shards, length, ...]
  SmallVector<int64_t> shape, permutation{0}, ordered{whole.getDimSize(0)};
  SmallVector<ReassociationIndices> expansion, collapse{{0, 1}};
  for (int64_t d = 0; d < whole.getRank(); ++d) {
    expansion.emplace_back();
    if (d > 0)
      collapse.emplace_back();
    auto add = [&](int64_t size, bool isShard = false) {
      auto place = static_cast<int64_t>(shape.size());
      expansion.back().push_back(place);
      shape.push_back(size);
      if (d == 0)
        return;
      if (isShard) {
        permutation.insert(permutation.begin() + 1, place);
        ordered.insert(ordered.begin() + 1, size);
        return;
      }
      permutation.push_back(place);
      ordered.push_back(size);
    };
    if (d != dim) {
      add(whole.getDimSize(d));
      continue;
    }
    if (parts > 1)
      add(parts);
    add(shards, /*isShard=*/true);
    add(local.getDimSize(d) / parts);
  }
  // What follows the number of the shard stands one place behind.
  int64_t next = 2;
  for (int64_t d = 1; d < whole.getRank(); ++d)
    for (int64_t i = 0; i < (d == dim && parts > 1 ? 2 : 1); ++i)
      collapse[d].push_back(next++);
  Value expanded = tensor::ExpandShapeOp::create(
      builder, loc, whole.clone(shape), op.getWhole(), expansion);
  Value empty =
      tensor::EmptyOp::create(builder, loc, ordered, whole.getElementType());
  Value moved =
      linalg::TransposeOp::create(builder, loc, expanded, empty, permutation)
          ->getResult(0);
  ordered[0] = local.getDimSize(0);
  ordered[1] = 1;
  Value sum = ReduceWeightsOp::create(
                  builder, loc, TypeRange(whole.clone(ordered)), moved,
                  /*outs=*/ValueRange(), builder.getI64IntegerAttr(1),
                  /*parts=*/1, op.getPlacement(), op.getLayerAttr())
                  ->getResult(0);
  op->getResult(0).replaceAllUsesWith(
      tensor::CollapseShapeOp::create(builder, loc, local, sum, collapse));
  op.erase();
}

void mlir::moe::detail::orderReductions(func::FuncOp function) {
  SmallVector<ReduceWeightsOp> reductions;
  function.walk([&](ReduceWeightsOp op) {
    if (!hasBufferForm(op) && !op.isConcatenation())
      reductions.push_back(op);
  });
  for (ReduceWeightsOp op : reductions)
    orderReduction(op);
}
