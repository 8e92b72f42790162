// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Sharding/TokenParallel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
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

InFlightDiagnostic TokenAnalysis::mixes(Operation &op, const Twine &how) {
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
  if (visitScale(op))
    return success();
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
      known[op.getResult()] = {RankDistribution::Count, 0, source.rows};
    return success();
  }
  if (source.kind != RankDistribution::Replicated)
    setLocal(*op);
  return success();
}

bool TokenAnalysis::visitScale(Operation &op) {
  if (!isa<arith::MulIOp, arith::DivUIOp, arith::DivSIOp>(op))
    return false;
  Value count = op.getOperand(0);
  std::optional<int64_t> factor = getConstantIntValue(op.getOperand(1));
  if (!factor && isa<arith::MulIOp>(op)) {
    count = op.getOperand(1);
    factor = getConstantIntValue(op.getOperand(0));
  }
  RankDistribution given = get(count);
  if (given.kind != RankDistribution::Count || !factor || *factor < 1)
    return false;
  bool multiplies = isa<arith::MulIOp>(op);
  if (!multiplies && given.rows % *factor != 0)
    return false;
  given.rows = multiplies ? given.rows * *factor : given.rows / *factor;
  known[op.getResult(0)] = given;
  return true;
}

LogicalResult TokenAnalysis::visitEmpty(tensor::EmptyOp op) {
  RankedTensorType type = op.getType();
  std::optional<int64_t> tokens;
  int64_t rows = 1;
  bool local = false;
  unsigned next = 0;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (!type.isDynamicDim(d))
      continue;
    RankDistribution size = get(op.getDynamicSizes()[next++]);
    local |= size.kind == RankDistribution::Local;
    if (size.kind != RankDistribution::Count)
      continue;
    if (tokens)
      return mixes(*op, "a tensor with two dimensions of tokens");
    tokens = d;
    rows = size.rows;
  }
  if (tokens)
    known[op.getResult()] = {RankDistribution::Tokens, *tokens, rows};
  else if (local)
    setLocal(*op);
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
  set(op, {RankDistribution::Tokens, dim, get(whole).rows});
  return success();
}

/// Rows of tokens stay rows of tokens, where their dimension is the first to
/// count among those that it joins, or that it becomes.
LogicalResult TokenAnalysis::visitReshape(Operation &op,
                                          ArrayRef<ReassociationIndices> groups,
                                          bool expand) {
  RankDistribution given = get(op.getOperand(0));
  auto full = cast<RankedTensorType>(
      (expand ? op.getResult(0) : op.getOperand(0)).getType());
  for (auto [i, group] : llvm::enumerate(groups)) {
    auto number = static_cast<int64_t>(i);
    SmallVector<int64_t> many;
    for (int64_t place : group)
      if (full.getDimSize(place) != 1)
        many.push_back(place);
    if (expand ? number != given.dim : !llvm::is_contained(group, given.dim))
      continue;
    if (many.empty() || !full.isDynamicDim(many.front()) ||
        (!expand && many.front() != given.dim))
      break;
    int64_t inner = 1;
    for (int64_t place : ArrayRef(many).drop_front()) {
      if (full.isDynamicDim(place))
        return mixes(op, "a reshape of tokens");
      inner *= full.getDimSize(place);
    }
    // Tokens of one sequence stay on one rank.
    if (expand && given.rows % inner != 0)
      return mixes(op, "a reshape that joins tokens");
    given.rows = expand ? given.rows / inner : given.rows * inner;
    given.dim = expand ? many.front() : number;
    set(op, given);
    return success();
  }
  return mixes(op, "a reshape of tokens");
}

LogicalResult TokenAnalysis::visitSameDims(Operation &op) {
  std::optional<int64_t> dim;
  int64_t rows = 1;
  for (Value operand : op.getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      continue;
    if (!isTokens(operand) || (dim && *dim != get(operand).dim))
      return mixes(op, "operands of which not all have tokens in the same dim");
    dim = get(operand).dim;
    rows = std::max(rows, get(operand).rows);
  }
  for (Type type : op.getResultTypes())
    if (!cast<RankedTensorType>(type).isDynamicDim(*dim))
      return mixes(op, "a fixed number of tokens");
  set(op, {RankDistribution::Tokens, *dim, rows});
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
    explain(error, value);
    return error;
  }
  return success();
}

void TokenAnalysis::explain(InFlightDiagnostic &error, Value value) {
  Operation *origin = origins.lookup(value);
  if (!origin && get(value).kind == RankDistribution::Count)
    origin = value.getDefiningOp();
  if (!origin)
    return;
  Diagnostic &note = error.attachNote(origin->getLoc());
  note << "it comes from here";
  bool counts = get(value).kind == RankDistribution::Count ||
                llvm::any_of(origin->getOperands(), [&](Value operand) {
                  return get(operand).kind == RankDistribution::Count;
                });
  if (counts)
    note << ", from the number of one rank's tokens; a sum of ones over the "
            "tokens is the number of all";
}
