// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"
#include "Replicate.h"
#include "ShardExpert.h"

#include "moira/Dialect/MoE/Utils/Entry.h"
#include "moira/Sharding/Passes.h"
#include "moira/Sharding/TokenParallel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe {
#define GEN_PASS_DEF_SHARDPASS
#include "moira/Sharding/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

struct Shard : public moe::impl::ShardPassBase<Shard> {
  using ShardPassBase::ShardPassBase;

  void runOnOperation() override {
    FailureOr<int64_t> count = getRanks();
    if (failed(count))
      return signalPassFailure();
    FailureOr<func::FuncOp> function = findEntry(getOperation(), entry);
    if (failed(function) || failed(shard(*function, *count)))
      return signalPassFailure();
    for (auto grid :
         llvm::make_early_inc_range(getOperation().getOps<shard::GridOp>()))
      grid.erase();
  }

private:
  FailureOr<int64_t> getRanks();
  LogicalResult shard(func::FuncOp function, int64_t count);
};

} // namespace

FailureOr<int64_t> Shard::getRanks() {
  ModuleOp module = getOperation();
  int64_t count = ranks;
  if (count < 0 || spare < 0)
    return module.emitError("expected no negative ranks and spare slots, got ")
           << count << " and " << spare.getValue();
  for (auto grid : module.getOps<shard::GridOp>()) {
    ArrayRef<int64_t> shape = grid.getShape();
    if (shape.size() != 1 || ShapedType::isDynamic(shape.front()))
      return grid.emitOpError("expected a grid of one static dimension, got ")
             << grid.getShapeAttr();
    if (count != 0 && count != shape.front())
      return grid.emitOpError("expected a grid of ")
             << count << " ranks, got " << shape.front();
    count = shape.front();
  }
  if (count == 0)
    return module.emitError("expected a number of ranks, as option or as "
                            "shard.grid, got none");
  return count;
}

/// Checks that nobody but experts reads a parameter that is spread over ranks,
/// and that they agree on it; returns how it is held.
static FailureOr<ShardAttr> agreeOnParameter(BlockArgument argument,
                                             ArrayRef<ShardedExpert> experts) {
  ShardAttr found;
  auto *function = argument.getOwner()->getParentOp();
  for (const ShardedExpert &expert : experts)
    for (auto [operand, shard] :
         llvm::zip(ExpertOp(expert.op).getPerExpert(), expert.shards)) {
      if (operand != argument)
        continue;
      if (found && found != shard)
        return function->emitOpError("expected experts to cut parameter #")
               << argument.getArgNumber() << " in one way, got " << found
               << " and " << shard;
      found = shard;
    }
  for (OpOperand &use : argument.getUses()) {
    auto expert = dyn_cast<ExpertOp>(use.getOwner());
    if (expert && llvm::is_contained(expert.getPerExpert(), argument) &&
        !llvm::is_contained(expert.getShared(), argument))
      continue;
    return (function->emitOpError("expected experts only to read parameter #")
            << argument.getArgNumber() << ", which is spread over the ranks")
               .attachNote(use.getOwner()->getLoc())
           << "read here";
  }
  return found;
}

/// Gives parameters of experts the types that a rank holds.
static LogicalResult retypeParameters(func::FuncOp function,
                                      ArrayRef<ShardedExpert> experts) {
  llvm::SetVector<BlockArgument> arguments;
  for (const ShardedExpert &expert : experts)
    for (Value operand : ExpertOp(expert.op).getPerExpert())
      arguments.insert(cast<BlockArgument>(operand));
  for (BlockArgument argument : arguments) {
    FailureOr<ShardAttr> shard = agreeOnParameter(argument, experts);
    if (failed(shard))
      return failure();
    auto type = cast<RankedTensorType>(argument.getType());
    auto param = function.getArgAttrOfType<ParamAttr>(argument.getArgNumber(),
                                                      kParamAttrName);
    if (!shard->getInFile(param, type.getRank() - 1))
      return function.emitOpError("expected parameter #")
             << argument.getArgNumber()
             << " and its place in the checkpoint to be both interleaved or "
                "neither, to cut it in shards, got "
             << *shard << " and " << param;
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = experts.front().placement.getSlots();
    for (const ShardedExpert &expert : experts)
      if (llvm::is_contained(ExpertOp(expert.op).getPerExpert(), argument))
        shape[0] = expert.placement.getSlots();
    if (std::optional<int64_t> dim = shard->getDim())
      shape[*dim + 1] /= shard->getShards();
    argument.setType(type.clone(shape));
    function.setArgAttr(argument.getArgNumber(), kShardAttrName, *shard);
  }
  function.setType(FunctionType::get(function.getContext(),
                                     function.getBody().getArgumentTypes(),
                                     function.getResultTypes()));
  return success();
}

/// Lets all ranks have the capacity of the largest.
static void rewriteCapacity(OpBuilder &builder, CapacityOp op,
                            const TokenAnalysis &tokens, int64_t ranks) {
  Location loc = op.getLoc();
  builder.setInsertionPoint(op);
  if (!tokens.isReplicated(op.getTokens())) {
    Value all = gatherIndex(builder, loc, op.getTokens(), ranks);
    op.getTokensMutable().assign(
        extractIndex(builder, loc, maxOverRows(builder, loc, all)));
  }
  if (op.getCounts() && !tokens.isReplicated(op.getCounts())) {
    Value all = gatherVector(builder, loc, op.getCounts(), ranks);
    op.getCountsMutable().assign(maxOverRows(builder, loc, all));
  }
}

/// Lets noise count tokens from the first of all ranks.
static void rewriteNoise(OpBuilder &builder, NoiseOp op, int64_t ranks) {
  builder.setInsertionPoint(op);
  Value all = gatherIndex(builder, op.getLoc(), op.getRows(), ranks);
  Value first = sumOfLowerRanks(builder, op.getLoc(), all);
  op.getFirstMutable().assign(
      arith::AddIOp::create(builder, op.getLoc(), op.getFirst(), first));
}

LogicalResult Shard::shard(func::FuncOp function, int64_t count) {
  // One rank has all tokens, so that it may mix them.
  if (count == 1 && spare == 0)
    return success();
  IRRewriter rewriter(&getContext());
  shareCounts(rewriter, function);
  TokenAnalysis tokens;
  if (failed(tokens.run(function)))
    return failure();
  ShardingOptions options{count, copies, spare};
  std::vector<ShardedExpert> experts;
  SmallVector<CapacityOp> capacities;
  SmallVector<NoiseOp> noises;
  bool isFailed = false;
  function.walk([&](Operation *op) {
    if (auto capacity = dyn_cast<CapacityOp>(op))
      capacities.push_back(capacity);
    if (auto noise = dyn_cast<NoiseOp>(op))
      noises.push_back(noise);
    if (auto loss = dyn_cast<LossOp>(op))
      loss.setOverRanks(true);
    auto expert = dyn_cast<ExpertOp>(op);
    if (!expert)
      return;
    FailureOr<ShardedExpert> plan = planExpert(expert, options);
    isFailed |= failed(plan);
    if (succeeded(plan))
      experts.push_back(std::move(*plan));
  });
  if (isFailed)
    return failure();
  SmallVector<Attribute> costs;
  for (const ShardedExpert &expert : experts)
    costs.push_back(describeCost(expert));
  if (!costs.empty())
    function->setAttr(kCostsAttrName, rewriter.getArrayAttr(costs));
  if (failed(retypeParameters(function, experts)))
    return failure();
  for (linalg::LinalgOp sum : tokens.getSums())
    rewriteSum(rewriter, sum);
  insertReplicates(rewriter, function, tokens);
  for (CapacityOp capacity : capacities)
    rewriteCapacity(rewriter, capacity, tokens, count);
  for (NoiseOp noise : noises)
    rewriteNoise(rewriter, noise, count);
  Matrices matrices;
  for (ShardedExpert &expert : experts)
    rewriteExpert(rewriter, expert, matrices);
  numExperts += experts.size();
  numSums += tokens.getSums().size();
  return success();
}
