// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Sharding/Passes.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe {
#define GEN_PASS_DEF_MERGEREDUCESPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// The bytes of a tensor, where they are known.
static std::optional<int64_t> countBytes(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (!type.hasStaticShape())
    return std::nullopt;
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

/// `value` with one dimension.
static Value makeFlat(OpBuilder &b, Location loc, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == 1)
    return value;
  auto flat = type.clone({type.getNumElements()});
  if (type.getRank() == 0)
    return tensor::ExpandShapeOp::create(b, loc, flat, value,
                                         ArrayRef<ReassociationIndices>{});
  ReassociationIndices all =
      llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  return tensor::CollapseShapeOp::create(b, loc, flat, value,
                                         ArrayRef<ReassociationIndices>(all));
}

/// The other way.
static Value makeShaped(OpBuilder &b, Location loc, Value value,
                        RankedTensorType type) {
  if (type.getRank() == 1)
    return value;
  if (type.getRank() == 0)
    return tensor::CollapseShapeOp::create(b, loc, type, value,
                                           ArrayRef<ReassociationIndices>{});
  ReassociationIndices all =
      llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  return tensor::ExpandShapeOp::create(b, loc, type, value,
                                       ArrayRef<ReassociationIndices>(all));
}

namespace {
/// Sums of one element type that may become one, in the order of the block.
struct Bucket {
  SmallVector<AllReduceOp> sums;
  int64_t bytes = 0;
};

struct MergeReduces : public moe::impl::MergeReducesPassBase<MergeReduces> {
  using MergeReducesPassBase::MergeReducesPassBase;

  void runOnOperation() override {
    if (bytes < 0) {
      getOperation()->emitError("expected 0 or more bytes, got ")
          << int64_t{bytes};
      return signalPassFailure();
    }
    getOperation()->walk([&](Block *block) { mergeIn(*block); });
  }

private:
  void mergeIn(Block &block);
  static void merge(Bucket &bucket);
};
} // namespace

/// Whether everything that reads the sums of the bucket comes after `op`.
static bool areReadAfter(const Bucket &bucket, Operation *op) {
  for (AllReduceOp sum : bucket.sums)
    for (Operation *user : sum->getUsers()) {
      Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
      if (!inBlock || !op->isBeforeInBlock(inBlock))
        return false;
    }
  return true;
}

void MergeReduces::mergeIn(Block &block) {
  llvm::MapVector<Type, Bucket> open;
  SmallVector<Bucket> closed;
  for (auto sum : block.getOps<AllReduceOp>()) {
    std::optional<int64_t> size;
    if (!hasBufferForm(sum))
      size = countBytes(sum.getMine());
    if (!size || *size > bytes)
      continue;
    Bucket &bucket = open[getElementTypeOrSelf(sum.getMine().getType())];
    if (bucket.bytes + *size > bytes || !areReadAfter(bucket, sum)) {
      closed.push_back(std::move(bucket));
      bucket = Bucket();
    }
    bucket.sums.push_back(sum);
    bucket.bytes += *size;
  }
  for (auto &[type, bucket] : open)
    closed.push_back(std::move(bucket));
  for (Bucket &bucket : closed)
    merge(bucket);
}

void MergeReduces::merge(Bucket &bucket) {
  if (bucket.sums.size() < 2)
    return;
  AllReduceOp last = bucket.sums.back();
  Location loc = last.getLoc();
  OpBuilder b(last);
  int64_t all = 0;
  IntegerAttr layer = last.getLayerAttr();
  for (AllReduceOp sum : bucket.sums) {
    all += cast<RankedTensorType>(sum.getMine().getType()).getNumElements();
    if (sum.getLayerAttr() != layer)
      layer = IntegerAttr();
  }
  Type element = getElementTypeOrSelf(last.getMine().getType());
  Value mine = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{all}, element);
  OpFoldResult one = b.getIndexAttr(1);
  int64_t place = 0;
  for (AllReduceOp sum : bucket.sums) {
    Value flat = makeFlat(b, loc, sum.getMine());
    int64_t size = cast<RankedTensorType>(flat.getType()).getNumElements();
    mine = tensor::InsertSliceOp::create(
        b, loc, flat, mine, ArrayRef<OpFoldResult>{b.getIndexAttr(place)},
        ArrayRef<OpFoldResult>{b.getIndexAttr(size)}, ArrayRef(one));
    place += size;
  }
  Value sums = AllReduceOp::create(b, loc, TypeRange(mine.getType()), mine,
                                   /*outs=*/ValueRange(), layer)
                   ->getResult(0);
  place = 0;
  for (AllReduceOp sum : bucket.sums) {
    auto type = cast<RankedTensorType>(sum.getMine().getType());
    int64_t size = type.getNumElements();
    Value part = tensor::ExtractSliceOp::create(
        b, loc, sums, ArrayRef<OpFoldResult>{b.getIndexAttr(place)},
        ArrayRef<OpFoldResult>{b.getIndexAttr(size)}, ArrayRef(one));
    sum->getResult(0).replaceAllUsesWith(makeShaped(b, loc, part, type));
    sum->erase();
    place += size;
  }
}
