// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"

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

/// `[E]`: for every expert the largest count of `ids` in a block.
static Value createLargestCounts(OpBuilder &builder, Location loc, Value ids,
                                 Value blocks, RankedTensorType type) {
  auto idsType = cast<RankedTensorType>(ids.getType());
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value end = tensor::DimOp::create(builder, loc, blocks, 0);
  Value none =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  auto body = [&](OpBuilder &b, Location nestedLoc, Value block,
                  ValueRange carried) {
    Value size = arith::IndexCastOp::create(
        b, nestedLoc, b.getIndexType(),
        tensor::ExtractOp::create(b, nestedLoc, blocks, ValueRange{block}));
    SmallVector<OpFoldResult> offsets{carried[0], b.getIndexAttr(0)};
    SmallVector<OpFoldResult> sizes{size,
                                    b.getIndexAttr(idsType.getDimSize(1))};
    SmallVector<OpFoldResult> strides(2, b.getIndexAttr(1));
    Value slice = tensor::ExtractSliceOp::create(b, nestedLoc, ids, offsets,
                                                 sizes, strides);
    Value counts = CountOp::create(b, nestedLoc, TypeRange(type), slice,
                                   /*outs=*/ValueRange())
                       ->getResult(0);
    Value larger = arith::MaxSIOp::create(b, nestedLoc, carried[1], counts);
    Value next = arith::AddIOp::create(b, nestedLoc, carried[0], size);
    scf::YieldOp::create(b, nestedLoc, ValueRange{next, larger});
  };
  return scf::ForOp::create(builder, loc, zero, end, one,
                            ValueRange{zero, none}, body)
      .getResult(1);
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
