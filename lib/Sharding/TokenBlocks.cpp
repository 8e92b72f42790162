// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"

#include "moira/Dialect/MoE/Utils/BlockChoice.h"
#include "moira/Dialect/MoE/Utils/Entry.h"
#include "moira/Sharding/Passes.h"
#include "moira/Sharding/TokenParallel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe {
#define GEN_PASS_DEF_TOKENBLOCKSPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// The tokens of the largest block, as index.
static Value createLargestBlock(OpBuilder &builder, Location loc,
                                Value blocks) {
  auto type = cast<RankedTensorType>(blocks.getType());
  Value column = tensor::ExpandShapeOp::create(
      builder, loc,
      RankedTensorType::get({type.getDimSize(0), 1}, type.getElementType()),
      blocks, ArrayRef<ReassociationIndices>{{0, 1}});
  return extractIndex(builder, loc, maxOverRows(builder, loc, column));
}

namespace {
/// The tokens of one block.
struct TokenRange {
  Value begin, size;

  /// These rows of `all`.
  Value extract(OpBuilder &b, Location loc, Value all) const {
    Slice rows(b, all, *this);
    return tensor::ExtractSliceOp::create(b, loc, all, rows.offsets, rows.sizes,
                                          rows.strides);
  }
  /// `all` with these rows in place of its own.
  Value insert(OpBuilder &b, Location loc, Value part, Value all) const {
    Slice rows(b, all, *this);
    return tensor::InsertSliceOp::create(b, loc, part, all, rows.offsets,
                                         rows.sizes, rows.strides);
  }

private:
  struct Slice {
    Slice(OpBuilder &b, Value all, const TokenRange &range)
        : offsets{range.begin}, sizes{range.size} {
      auto type = cast<RankedTensorType>(all.getType());
      for (int64_t size : type.getShape().drop_front()) {
        offsets.push_back(b.getIndexAttr(0));
        sizes.push_back(b.getIndexAttr(size));
      }
      strides.assign(type.getRank(), b.getIndexAttr(1));
    }
    SmallVector<OpFoldResult> offsets, sizes, strides;
  };
};

/// Turns what the blocks before have given into what this one adds.
using BlockStep =
    function_ref<Value(OpBuilder &, Location, const TokenRange &, Value)>;
} // namespace

/// A loop over blocks that carries a value.
static Value forEachBlock(OpBuilder &builder, Location loc, Value blocks,
                          Value init, BlockStep step) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value end = tensor::DimOp::create(builder, loc, blocks, 0);
  auto body = [&](OpBuilder &b, Location nestedLoc, Value block,
                  ValueRange carried) {
    Value size = arith::IndexCastOp::create(
        b, nestedLoc, b.getIndexType(),
        tensor::ExtractOp::create(b, nestedLoc, blocks, ValueRange{block}));
    Value result = step(b, nestedLoc, TokenRange{carried[0], size}, carried[1]);
    Value next = arith::AddIOp::create(b, nestedLoc, carried[0], size);
    scf::YieldOp::create(b, nestedLoc, ValueRange{next, result});
  };
  return scf::ForOp::create(builder, loc, zero, end, one,
                            ValueRange{zero, init}, body)
      .getResult(1);
}

/// `[E]`: for every expert the largest count of `ids` in a block.
static Value createLargestCounts(OpBuilder &builder, Location loc, Value ids,
                                 Value blocks, RankedTensorType type) {
  Value none =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  auto larger = [&](OpBuilder &b, Location nestedLoc, const TokenRange &range,
                    Value most) -> Value {
    Value slice = range.extract(b, nestedLoc, ids);
    Value counts = CountOp::create(b, nestedLoc, TypeRange(type), slice,
                                   /*outs=*/ValueRange())
                       ->getResult(0);
    return arith::MaxSIOp::create(b, nestedLoc, most, counts);
  };
  return forEachBlock(builder, loc, blocks, none, larger);
}

/// Experts that choose their tokens do so in each block. The weights are those
/// of the ids, token by token, whoever chose them (docs/routing.md).
static void chooseByBlock(OpBuilder &builder, GateOp op, Value blocks) {
  Location loc = op.getLoc();
  NamedAttribute mark =
      builder.getNamedAttr(kBlockChoiceAttrName, builder.getUnitAttr());
  auto idsType = cast<RankedTensorType>(op->getResult(0).getType());
  Value tokens = tensor::DimOp::create(builder, loc, op.getLogits(), 0);
  Value init = tensor::EmptyOp::create(
      builder, loc,
      SmallVector<OpFoldResult>{tokens,
                                builder.getIndexAttr(idsType.getDimSize(1))},
      idsType.getElementType());
  auto choose = [&](OpBuilder &b, Location nestedLoc, const TokenRange &range,
                    Value ids) -> Value {
    IRMapping rows;
    for (Value value : {Value(op.getLogits()), Value(op.getMask())})
      if (value)
        rows.map(value, range.extract(b, nestedLoc, value));
    auto gate = cast<GateOp>(b.clone(*op, rows));
    for (Value result : gate->getResults()) {
      auto type = cast<RankedTensorType>(result.getType());
      result.setType(RankedTensorType::get(
          {ShapedType::kDynamic, type.getDimSize(1)}, type.getElementType()));
    }
    gate->setAttr(mark.getName(), mark.getValue());
    return range.insert(b, nestedLoc, gate->getResult(0), ids);
  };
  Value ids = forEachBlock(builder, loc, blocks, init, choose);
  if (ids.getType() != idsType)
    ids = tensor::CastOp::create(builder, loc, idsType, ids);
  RouterAttr router = op.getRouter();
  auto weights = GateOp::create(
      builder, loc, op->getResult(0).getType(), op->getResult(1).getType(),
      op.getLogits(),
      RouterAttr::get(builder.getContext(), router.getScore(),
                      router.getAfterTopK(), router.getGroups(),
                      router.getKeep(), router.getGroupScore(),
                      router.getNormalize(), router.getEps(), router.getScale(),
                      /*expertChoice=*/false));
  weights.getReplayMutable().assign(ids);
  weights->setAttr(mark.getName(), mark.getValue());
  op->replaceAllUsesWith(weights->getResults());
  op->erase();
}

namespace {

struct TokenBlocks : public moe::impl::TokenBlocksPassBase<TokenBlocks> {
  using TokenBlocksPassBase::TokenBlocksPassBase;

  void runOnOperation() override {
    if (ranks < 1) {
      getOperation().emitError("expected at least one rank, got ")
          << ranks.getValue();
      return signalPassFailure();
    }
    FailureOr<func::FuncOp> function = findEntry(getOperation(), entry);
    if (failed(function) || failed(addBlocks(*function)))
      signalPassFailure();
  }

private:
  LogicalResult addBlocks(func::FuncOp function);
};

} // namespace

/// The rows of each block, where a token has several.
static Value countRows(OpBuilder &builder, Location loc, Value blocks,
                       int64_t rowsPerToken) {
  if (rowsPerToken == 1)
    return blocks;
  auto type = cast<RankedTensorType>(blocks.getType());
  Value factor = arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(
          type, builder.getI32IntegerAttr(static_cast<int32_t>(rowsPerToken))));
  return arith::MulIOp::create(builder, loc, blocks, factor);
}

static LogicalResult rewriteCapacity(OpBuilder &builder, CapacityOp op,
                                     Value blocks) {
  Location loc = op.getLoc();
  op.getTokensMutable().assign(createLargestBlock(builder, loc, blocks));
  if (!op.getCounts())
    return success();
  auto count = op.getCounts().getDefiningOp<CountOp>();
  if (!count)
    return op.emitOpError(
        "expected counts from a moe.count, to count by block, "
        "got another value");
  op.getCountsMutable().assign(
      createLargestCounts(builder, loc, count.getIds(), blocks,
                          cast<RankedTensorType>(op.getCounts().getType())));
  return success();
}

LogicalResult TokenBlocks::addBlocks(func::FuncOp function) {
  OpBuilder builder(&getContext());
  auto type = RankedTensorType::get({ranks}, builder.getI32Type());
  DictionaryAttr attributes = builder.getDictionaryAttr(
      builder.getNamedAttr(kBlocksAttrName, builder.getUnitAttr()));
  unsigned number = function.getNumArguments();
  if (failed(
          function.insertArgument(number, type, attributes, function.getLoc())))
    return failure();
  Value blocks = function.getArgument(number);
  // What moe-shard refuses has no counterpart to compare with; here its tokens
  // have one row each.
  TokenAnalysis tokens;
  {
    ScopedDiagnosticHandler ignored(&getContext(),
                                    [](Diagnostic &) { return success(); });
    (void)tokens.run(function);
  }
  auto rowsOf = [&](Operation *op, Value value) {
    builder.setInsertionPoint(op);
    return countRows(builder, op->getLoc(), blocks, tokens.get(value).rows);
  };
  WalkResult result = function.walk([&](Operation *op) {
    if (auto gate = dyn_cast<GateOp>(op);
        gate && gate.getRouter().getExpertChoice()) {
      chooseByBlock(builder, gate, rowsOf(op, gate.getLogits()));
      return WalkResult::skip();
    }
    if (auto assign = dyn_cast<AssignOp>(op); assign && !assign.getBlocks())
      assign.getBlocksMutable().assign(rowsOf(op, assign.getIds()));
    if (auto loss = dyn_cast<LossOp>(op);
        loss && loss.getScope() != LossScope::Block && !loss.getBlocks())
      loss.getBlocksMutable().assign(rowsOf(op, loss.getLogits()));
    if (auto capacity = dyn_cast<CapacityOp>(op))
      if (failed(rewriteCapacity(builder, capacity,
                                 rowsOf(op, capacity.getTokens()))))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
