// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Sharding/TokenParallel.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::moe;

LogicalResult TokenAnalysis::run(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (type && type.getRank() > 0 && type.isDynamicDim(0) &&
        !function.getArgAttr(argument.getArgNumber(), kParamAttrName))
      known[argument] = {RankDistribution::Tokens, 0};
  }
  if (!function.getBody().hasOneBlock())
    return function.emitOpError("expected a body of one block, got ")
           << function.getBody().getBlocks().size();
  return visit(function.getBody().front());
}

LogicalResult TokenAnalysis::mixes(Operation &op, const Twine &how) {
  return op.emitOpError("expected an op that treats tokens independently, got ")
         << how;
}

void TokenAnalysis::set(Operation &op, RankDistribution distribution) {
  for (Value result : op.getResults())
    known[result] = distribution;
}

void TokenAnalysis::setLocal(Operation &op) {
  Operation *origin = &op;
  for (Value operand : op.getOperands())
    if (Operation *known = origins.lookup(operand))
      origin = known;
  for (Value result : op.getResults()) {
    known[result] = {RankDistribution::Local};
    origins[result] = origin;
  }
}

LogicalResult TokenAnalysis::expectTokens(Operation &op, Value value,
                                          StringRef name) {
  if (!value || get(value) == RankDistribution{RankDistribution::Tokens, 0})
    return success();
  auto type = cast<RankedTensorType>(value.getType());
  if (!type.isDynamicDim(0))
    return op.emitOpError("expected ")
           << name << " with a dynamic number of tokens, got " << type
           << "; make dim 0 of the inputs dynamic";
  return op.emitOpError("expected ")
         << name << " with a row per token of this rank in dim 0, got "
         << (isTokens(value) ? "tokens in another dim" : "no tokens");
}

LogicalResult TokenAnalysis::expectReplicated(Operation &op, Value value,
                                              StringRef name) {
  if (!value || isReplicated(value))
    return success();
  return op.emitOpError("expected the same ")
         << name << " on all ranks, got a value of one rank's tokens";
}

LogicalResult TokenAnalysis::visit(Block &block) {
  for (Operation &op : block)
    if (failed(visit(op)))
      return failure();
  return success();
}

LogicalResult TokenAnalysis::visit(Operation &op) {
  if (isa<MoEDialect>(op.getDialect()))
    return visitMoE(op);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return visitLinalg(linalgOp);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return visitFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return visitIf(branch);
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return visitDim(dim);
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return visitEmpty(empty);
  if (auto end = dyn_cast<func::ReturnOp>(op))
    return visitReturn(end);
  if (isa<scf::YieldOp>(op))
    return success();
  bool tokens = false, local = false;
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      tokens |= isTokens(operand);
      local |= !isReplicated(operand);
    }
  });
  if (tokens)
    return visitTensor(op);
  if (local) {
    if (!isMemoryEffectFree(&op))
      return mixes(op, "one with side effects");
    setLocal(op);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Upstream's ops
//===----------------------------------------------------------------------===//

LogicalResult TokenAnalysis::visitDim(tensor::DimOp op) {
  RankDistribution source = get(op.getSource());
  if (source.kind == RankDistribution::Tokens) {
    std::optional<int64_t> index = op.getConstantIndex();
    if (!index)
      return mixes(*op, "one that reads a dimension that is not constant");
    if (*index == source.dim)
      known[op.getResult()] = {RankDistribution::Count};
    return success();
  }
  if (source.kind != RankDistribution::Replicated)
    setLocal(*op);
  return success();
}

LogicalResult TokenAnalysis::visitEmpty(tensor::EmptyOp op) {
  RankedTensorType type = op.getType();
  std::optional<int64_t> tokens;
  bool local = false;
  unsigned next = 0;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (!type.isDynamicDim(d))
      continue;
    RankDistribution::Kind kind = get(op.getDynamicSizes()[next++]).kind;
    local |= kind == RankDistribution::Local;
    if (kind != RankDistribution::Count)
      continue;
    if (tokens)
      return mixes(*op, "a tensor with two dimensions of tokens");
    tokens = d;
  }
  if (tokens)
    known[op.getResult()] = {RankDistribution::Tokens, *tokens};
  else if (local)
    setLocal(*op);
  return success();
}

LogicalResult TokenAnalysis::visitLinalg(linalg::LinalgOp op) {
  std::optional<unsigned> loop;
  bool local = false;
  for (OpOperand &operand : op->getOpOperands()) {
    RankDistribution given = get(operand.get());
    local |= given.kind == RankDistribution::Local ||
             given.kind == RankDistribution::Count;
    if (given.kind != RankDistribution::Tokens)
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    auto dim = dyn_cast<AffineDimExpr>(map.getResult(given.dim));
    if (!dim || (loop && *loop != dim.getPosition()) ||
        map.dropResult(given.dim).isFunctionOfDim(dim.getPosition()))
      return mixes(*op, "one that indexes tokens in two ways");
    loop = dim.getPosition();
  }
  WalkResult captures = op->walk([&](Operation *inner) {
    if (inner == op.getOperation())
      return WalkResult::advance();
    if (auto index = dyn_cast<linalg::IndexOp>(inner);
        index && loop && index.getDim() == *loop)
      return WalkResult::interrupt();
    for (Value operand : inner->getOperands()) {
      if (isTokens(operand))
        return WalkResult::interrupt();
      local |= !isReplicated(operand);
    }
    return WalkResult::advance();
  });
  if (captures.wasInterrupted())
    return mixes(*op, "a body that reads tokens by their number");
  if (!loop) {
    if (local)
      setLocal(*op);
    return success();
  }
  if (local)
    return mixes(*op, "one that computes with values of a rank's tokens");
  if (op.getIteratorTypesArray()[*loop] != utils::IteratorType::parallel)
    return mixes(*op, "a reduction over tokens");
  for (OpOperand &operand : op->getOpOperands())
    if (!isTokens(operand.get()) &&
        op.getMatchingIndexingMap(&operand).isFunctionOfDim(*loop))
      return mixes(*op, "one that reads operand #" +
                            Twine(operand.getOperandNumber()) +
                            " by the number of a token");
  for (OpResult result : op->getResults()) {
    AffineMap map = op.getMatchingIndexingMap(op.getTiedOpOperand(result));
    known[result] = {
        RankDistribution::Tokens,
        *map.getResultPosition(getAffineDimExpr(*loop, op->getContext()))};
  }
  return success();
}

/// Whether dim `dim` of a slice is all of the dim of `whole`.
static bool isAll(Value whole, int64_t dim, OpFoldResult offset,
                  OpFoldResult size, OpFoldResult stride, bool sizeIsTokens) {
  return isConstantIntValue(offset, 0) && isConstantIntValue(stride, 1) &&
         sizeIsTokens;
}

LogicalResult TokenAnalysis::visitSlice(Operation &op, Value whole,
                                        RankedTensorType slice,
                                        ArrayRef<OpFoldResult> offsets,
                                        ArrayRef<OpFoldResult> sizes,
                                        ArrayRef<OpFoldResult> strides) {
  int64_t dim = get(whole).dim;
  auto size = dyn_cast<Value>(sizes[dim]);
  if (!isTokens(whole) ||
      !isAll(whole, dim, offsets[dim], sizes[dim], strides[dim],
             size && get(size).kind == RankDistribution::Count))
    return mixes(op, "a slice of tokens");
  auto type = cast<RankedTensorType>(whole.getType());
  if (slice.getRank() != type.getRank())
    return mixes(op, "a slice that drops dimensions");
  set(op, {RankDistribution::Tokens, dim});
  return success();
}

/// Tokens stay tokens where nothing but dimensions of one joins them or leaves.
LogicalResult TokenAnalysis::visitReshape(Operation &op,
                                          ArrayRef<ReassociationIndices> groups,
                                          bool expand) {
  int64_t dim = get(op.getOperand(0)).dim;
  auto full = cast<RankedTensorType>(
      (expand ? op.getResult(0) : op.getOperand(0)).getType());
  for (auto [i, group] : llvm::enumerate(groups)) {
    auto number = static_cast<int64_t>(i);
    SmallVector<int64_t> many;
    for (int64_t place : group)
      if (full.getDimSize(place) != 1)
        many.push_back(place);
    if (many.size() != 1 || (expand ? number : many.front()) != dim)
      continue;
    set(op, {RankDistribution::Tokens, expand ? many.front() : number});
    return success();
  }
  return mixes(op, "a reshape of tokens");
}

LogicalResult TokenAnalysis::visitSameDims(Operation &op) {
  std::optional<int64_t> dim;
  for (Value operand : op.getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      continue;
    if (!isTokens(operand) || (dim && *dim != get(operand).dim))
      return mixes(op, "operands of which not all have tokens in the same dim");
    dim = get(operand).dim;
  }
  for (Type type : op.getResultTypes())
    if (!cast<RankedTensorType>(type).isDynamicDim(*dim))
      return mixes(op, "a fixed number of tokens");
  set(op, {RankDistribution::Tokens, *dim});
  return success();
}

LogicalResult TokenAnalysis::visitTensor(Operation &op) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return visitSlice(op, slice.getSource(), slice.getType(),
                      slice.getMixedOffsets(), slice.getMixedSizes(),
                      slice.getMixedStrides());
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    if (!isTokens(insert.getSource()))
      return mixes(op, "one that writes over tokens");
    return visitSlice(op, insert.getDest(), insert.getSourceType(),
                      insert.getMixedOffsets(), insert.getMixedSizes(),
                      insert.getMixedStrides());
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return visitReshape(op, expand.getReassociationIndices(), true);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return visitReshape(op, collapse.getReassociationIndices(), false);
  if (auto concat = dyn_cast<tensor::ConcatOp>(op);
      concat && static_cast<int64_t>(concat.getDim()) ==
                    get(concat.getInputs().front()).dim)
    return mixes(op, "a concatenation of tokens");
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op);
      softmax && static_cast<int64_t>(softmax.getDimension()) ==
                     get(softmax.getInput()).dim)
    return mixes(op, "a softmax over tokens");
  if (isa<tensor::CastOp, tensor::ConcatOp, linalg::SoftmaxOp>(op) ||
      OpTrait::hasElementwiseMappableTraits(&op))
    return visitSameDims(op);
  return mixes(op, "one that is not known to");
}

LogicalResult TokenAnalysis::visitReturn(func::ReturnOp op) {
  for (auto [i, value] : llvm::enumerate(op.getOperands())) {
    if (isReplicated(value) ||
        get(value) == RankDistribution{RankDistribution::Tokens, 0})
      continue;
    InFlightDiagnostic error =
        op.emitOpError("expected result #")
        << i << " to have a row per token in dim 0, or to be the same on all "
        << "ranks, got "
        << (isTokens(value) ? "tokens in another dim"
                            : "a value of one rank's tokens");
    if (Operation *origin = origins.lookup(value))
      error.attachNote(origin->getLoc()) << "it comes from here";
    return error;
  }
  return success();
}
