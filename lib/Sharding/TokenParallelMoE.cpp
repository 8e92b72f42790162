// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The distribution of what the ops of the dialect give.

#include "moira/Sharding/TokenParallel.h"

using namespace mlir;
using namespace mlir::moe;

LogicalResult TokenAnalysis::visitMoE(Operation &op) {
  // Rows of tokens, as many as `like` has or counts.
  auto tokens = [&](Value like) {
    return RankDistribution{RankDistribution::Tokens, 0, get(like).rows};
  };
  if (auto gate = dyn_cast<GateOp>(op)) {
    for (auto [value, name] :
         {std::pair<Value, StringRef>{gate.getLogits(), "logits"},
          {gate.getMask(), "mask"},
          {gate.getReplay(), "replay"},
          {gate.getSample(), "sample"}})
      if (failed(expectTokens(op, value, name)))
        return failure();
    for (auto [value, name] :
         {std::pair<Value, StringRef>{gate.getBias(), "bias"},
          {gate.getTopK(), "top_k"},
          {gate.getThreshold(), "threshold"}})
      if (failed(expectReplicated(op, value, name)))
        return failure();
    set(op, tokens(gate.getLogits()));
    // Experts choose among the tokens of a rank, its token block.
    return expectSameCapacity(op, gate.getCapacity());
  }
  if (auto count = dyn_cast<CountOp>(op)) {
    setLocal(op);
    return expectTokens(op, count.getIds(), "ids");
  }
  if (auto loss = dyn_cast<LossOp>(op)) { // becomes one over ranks
    for (auto [value, name] :
         {std::pair<Value, StringRef>{loss.getLogits(), "logits"},
          {loss.getIds(), "ids"},
          {loss.getMask(), "mask"},
          {loss.getBlocks(), "blocks"},
          {loss.getNoisy(), "noisy"}})
      if (failed(expectTokens(op, value, name)))
        return failure();
    return success();
  }
  if (auto capacity = dyn_cast<CapacityOp>(op)) // becomes the ranks' maximum
    return success(
        succeeded(expectReplicated(op, capacity.getFactor(), "factor")) &&
        succeeded(expectReplicated(op, capacity.getTopK(), "top_k")));
  if (auto assign = dyn_cast<AssignOp>(op))
    return visitAssign(assign);
  if (auto dispatch = dyn_cast<DispatchOp>(op)) {
    setLocal(op);
    return success(
        succeeded(expectTokens(op, dispatch.getX(), "x")) &&
        succeeded(expectTokens(op, dispatch.getSlots(), "slots")) &&
        succeeded(expectTokens(op, dispatch.getWeights(), "weights")));
  }
  if (auto expert = dyn_cast<ExpertOp>(op)) {
    setLocal(op);
    for (Value shared : expert.getShared())
      if (failed(expectReplicated(op, shared, "shared operands")))
        return failure();
    return success();
  }
  if (auto combine = dyn_cast<CombineOp>(op)) {
    set(op, tokens(combine.getSlots()));
    return success(
        succeeded(expectTokens(op, combine.getSlots(), "slots")) &&
        succeeded(expectTokens(op, combine.getWeights(), "weights")));
  }
  if (auto noise = dyn_cast<NoiseOp>(op)) {
    if (get(noise.getRows()).kind != RankDistribution::Count)
      return op.emitOpError("expected as many rows as this rank has tokens");
    set(op, tokens(noise.getRows()));
    return success(
        succeeded(expectReplicated(op, noise.getSeed(), "seed")) &&
        succeeded(expectReplicated(op, noise.getStep(), "step")) &&
        succeeded(expectReplicated(op, noise.getFirst(), "first token")));
  }
  if (isa<AllReduceOp>(op)) // of counts, see moe-shard
    return success();
  return op.emitOpError("expected an op of a program that is not sharded yet");
}

LogicalResult TokenAnalysis::expectSameCapacity(Operation &op, Value capacity) {
  if (!capacity || isReplicated(capacity))
    return success();
  return op.emitOpError("expected the same capacity on all ranks, got a value "
                        "of one rank's tokens; moe.capacity takes the maximum "
                        "over ranks");
}

LogicalResult TokenAnalysis::visitAssign(AssignOp op) {
  setLocal(*op);
  known[op->getResult(0)] = {RankDistribution::Tokens, 0,
                             get(op.getIds()).rows};
  if (failed(expectTokens(*op, op.getIds(), "ids")) ||
      failed(expectTokens(*op, op.getPriority(), "priority")) ||
      failed(expectTokens(*op, op.getBlocks(), "blocks")))
    return failure();
  return expectSameCapacity(*op, op.getCapacity());
}

LogicalResult TokenAnalysis::visitFor(scf::ForOp op) {
  for (Value bound : {op.getLowerBound(), op.getUpperBound(), op.getStep()})
    if (failed(expectReplicated(*op, bound, "bounds")))
      return failure();
  for (auto [init, argument] :
       llvm::zip(op.getInitArgs(), op.getRegionIterArgs()))
    known[argument] = get(init);
  // Carried values that turn out local were replicated at most once.
  for (int round = 0; round < 2; ++round) {
    if (failed(visit(*op.getBody())))
      return failure();
    bool same = true;
    for (auto [yielded, argument] :
         llvm::zip(op.getYieldedValues(), op.getRegionIterArgs())) {
      RankDistribution next = get(yielded);
      if (next == get(argument))
        continue;
      if (next.kind == RankDistribution::Tokens || isTokens(argument))
        return mixes(*op, "a loop that carries tokens in different dims");
      known[argument] = {RankDistribution::Local};
      same = false;
    }
    if (same)
      break;
  }
  for (auto [argument, result] :
       llvm::zip(op.getRegionIterArgs(), op.getResults()))
    known[result] = get(argument);
  return success();
}

LogicalResult TokenAnalysis::visitIf(scf::IfOp op) {
  if (failed(expectReplicated(*op, op.getCondition(), "condition")) ||
      failed(visit(*op.thenBlock())))
    return failure();
  if (!op.elseBlock())
    return success();
  if (failed(visit(*op.elseBlock())))
    return failure();
  for (auto [one, other, result] :
       llvm::zip(op.thenYield().getResults(), op.elseYield().getResults(),
                 op.getResults())) {
    if (get(one) != get(other) && (isTokens(one) || isTokens(other)))
      return mixes(*op, "branches of which one yields tokens");
    known[result] = get(one) == get(other)
                        ? get(one)
                        : RankDistribution{RankDistribution::Local};
  }
  return success();
}
