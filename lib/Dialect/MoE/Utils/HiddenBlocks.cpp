// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::moe;

bool mlir::moe::isSubtree(int64_t blocks, int64_t group) {
  if (group == blocks)
    return true;
  // Levels at which neighbours are added.
  for (; group % 2 == 0 && blocks % 2 == 0; group /= 2)
    blocks /= 2;
  return group == 1;
}

Value mlir::moe::addInPairs(OpBuilder &builder, Location loc, ValueRange parts,
                            ArrayRef<OpFoldResult> sizes) {
  Value first = parts.front();
  if (parts.size() == 1)
    return first;
  auto type = cast<RankedTensorType>(first.getType());
  Value empty =
      tensor::EmptyOp::create(builder, loc, sizes, type.getElementType());
  AffineMap identity =
      AffineMap::getMultiDimIdentityMap(type.getRank(), builder.getContext());
  SmallVector<AffineMap> maps(parts.size() + 1, identity);
  SmallVector<utils::IteratorType> kinds(type.getRank(),
                                         utils::IteratorType::parallel);
  auto add = [](OpBuilder &nested, Location nestedLoc, ValueRange args) {
    SmallVector<Value> sums(args.drop_back());
    auto plus = [&](Value a, Value b) -> Value {
      return arith::AddFOp::create(nested, nestedLoc, a, b);
    };
    for (; sums.size() % 2 == 0; sums.truncate(sums.size() / 2))
      for (size_t i = 0; 2 * i < sums.size(); ++i)
        sums[i] = plus(sums[2 * i], sums[2 * i + 1]);
    Value total = sums.front();
    for (Value sum : llvm::drop_begin(sums))
      total = plus(total, sum);
    linalg::YieldOp::create(nested, nestedLoc, total);
  };
  return linalg::GenericOp::create(builder, loc, TypeRange(type), parts,
                                   ValueRange{empty}, maps, kinds, add)
      .getResult(0);
}

/// Places `begin` .. `begin + size` of dim `dim`.
static Value sliceDim(OpBuilder &builder, Location loc, Value tensor,
                      int64_t dim, int64_t begin, int64_t size) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0)),
      strides(sizes.size(), builder.getIndexAttr(1));
  offsets[dim] = builder.getIndexAttr(begin);
  sizes[dim] = builder.getIndexAttr(size);
  return tensor::ExtractSliceOp::create(builder, loc, tensor, offsets, sizes,
                                        strides);
}

static Value createZeros(OpBuilder &builder, Location loc, Value like) {
  auto type = cast<RankedTensorType>(like.getType());
  Value empty = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, like),
      type.getElementType());
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(type.getElementType()));
  return linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
}

/// Clones the sum over one block of its loop, from `init` on.
static Value cloneBlock(RewriterBase &rewriter, const LastProduct &product,
                        Value init, int64_t begin, int64_t size) {
  linalg::LinalgOp op = product.op;
  IRMapping mapping;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    std::optional<unsigned> dim =
        map.getResultPosition(getAffineDimExpr(product.loop, op.getContext()));
    if (dim)
      mapping.map(operand->get(), sliceDim(rewriter, op.getLoc(),
                                           operand->get(), *dim, begin, size));
  }
  mapping.map(op.getDpsInits()[0], init);
  return rewriter.clone(*op, mapping)->getResult(0);
}

/// Replaces a chain, of sums that each go on from the one before, by the sum of
/// one chain per block.
static void cutChain(RewriterBase &rewriter, ArrayRef<LastProduct> chain,
                     int64_t hidden, int64_t blocks) {
  linalg::LinalgOp first = chain.front().op, end = chain.back().op;
  Location loc = end.getLoc();
  rewriter.setInsertionPoint(end);
  int64_t size = hidden / blocks;
  Value init = first.getDpsInits()[0];
  SmallVector<Value> sums;
  for (int64_t block = 0; block < blocks; ++block) {
    Value sum = block == 0 ? init : createZeros(rewriter, loc, init);
    for (const LastProduct &product : chain)
      sum = cloneBlock(rewriter, product, sum, block * size, size);
    sums.push_back(sum);
  }
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, init);
  rewriter.replaceOp(end, addInPairs(rewriter, loc, sums, sizes));
  for (const LastProduct &product : llvm::reverse(chain.drop_back()))
    rewriter.eraseOp(product.op);
}

void mlir::moe::cutLastProducts(RewriterBase &rewriter,
                                const Separability &separability,
                                int64_t blocks) {
  OpBuilder::InsertionGuard guard(rewriter);
  llvm::MapVector<Operation *, LastProduct> left;
  for (const LastProduct &product : separability.getLastProducts())
    left[product.op] = product;
  // The one that `op` alone goes on from.
  auto getPrevious = [&](linalg::LinalgOp op) -> Operation * {
    Value init = op.getDpsInits()[0];
    Operation *previous = init.getDefiningOp();
    return init.hasOneUse() && left.contains(previous) ? previous : nullptr;
  };
  llvm::SmallPtrSet<Operation *, 4> inside;
  for (auto &[op, product] : left)
    if (Operation *previous = getPrevious(product.op))
      inside.insert(previous);
  for (auto &[op, product] : left) {
    if (inside.contains(op))
      continue;
    SmallVector<LastProduct> chain{product};
    while (Operation *previous = getPrevious(chain.back().op))
      chain.push_back(left[previous]);
    std::reverse(chain.begin(), chain.end());
    cutChain(rewriter, chain, separability.getHiddenSize(), blocks);
  }
}

int64_t mlir::moe::countHiddenBlocks(ExpertOp expert,
                                     const Separability &separability,
                                     int64_t blocks) {
  for (auto [argument, operand] :
       llvm::zip(expert.getPerExpertArgs(), expert.getPerExpert())) {
    if (!separability.getPlace(argument))
      continue;
    auto gather = operand.getDefiningOp<GatherWeightsOp>();
    auto parameter =
        dyn_cast<BlockArgument>(gather ? gather.getWeights() : operand);
    auto function =
        parameter ? dyn_cast<func::FuncOp>(parameter.getOwner()->getParentOp())
                  : func::FuncOp();
    if (!function || !parameter.getOwner()->isEntryBlock())
      continue;
    auto shard = function.getArgAttrOfType<ShardAttr>(parameter.getArgNumber(),
                                                      kShardAttrName);
    if (!shard || !shard.getDim())
      continue;
    int64_t parts = gather ? gather.getPlacement().getPartsPerGroup() : 1;
    return blocks / shard.getShards() * parts;
  }
  return blocks;
}
