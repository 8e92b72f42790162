// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Replicate.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

static Value allReduce(RewriterBase &rewriter, Location loc, Value mine) {
  return AllReduceOp::create(rewriter, loc, TypeRange(mine.getType()), mine,
                             /*outs=*/ValueRange(), /*layer=*/IntegerAttr())
      ->getResult(0);
}

void mlir::moe::detail::shareCounts(RewriterBase &rewriter,
                                    func::FuncOp function) {
  SmallVector<CountOp> counts;
  function.walk([&](CountOp op) { counts.push_back(op); });
  for (CountOp op : counts) {
    SmallVector<OpOperand *> uses;
    // Ranks place their own tokens; a capacity takes the largest count.
    for (OpOperand &use : op->getResult(0).getUses())
      if (!isa<AssignOp, CapacityOp>(use.getOwner()))
        uses.push_back(&use);
    if (uses.empty())
      continue;
    rewriter.setInsertionPointAfter(op);
    Value all = allReduce(rewriter, op.getLoc(), op->getResult(0));
    for (OpOperand *use : uses)
      use->set(all);
  }
}

static bool isZero(Value value) {
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return isZero(fill.getInputs()[0]);
  return matchPattern(value, m_AnyZeroFloat()) || matchPattern(value, m_Zero());
}

/// Zeros of the shape of `like`.
static Value createZeros(RewriterBase &rewriter, Location loc, Value like) {
  auto type = cast<RankedTensorType>(like.getType());
  Value zero = arith::ConstantOp::create(
      rewriter, loc, rewriter.getZeroAttr(type.getElementType()));
  Value empty = tensor::EmptyOp::create(
      rewriter, loc, tensor::getMixedSizes(rewriter, loc, like),
      type.getElementType());
  if (empty.getType() != type)
    empty = tensor::CastOp::create(rewriter, loc, type, empty);
  return linalg::FillOp::create(rewriter, loc, zero, empty).getResult(0);
}

void mlir::moe::detail::rewriteSum(RewriterBase &rewriter,
                                   linalg::LinalgOp op) {
  Location loc = op.getLoc();
  for (OpResult result : op->getResults()) {
    OpOperand *init = op.getTiedOpOperand(result);
    Value before = init->get();
    bool isEmpty = isZero(before);
    if (!isEmpty) {
      rewriter.setInsertionPoint(op);
      init->set(createZeros(rewriter, loc, before));
    }
    rewriter.setInsertionPointAfter(op);
    Value mine = allReduce(rewriter, loc, result), all = mine;
    // What the sum starts from counts once.
    if (!isEmpty) {
      bool isFloat = isa<FloatType>(getElementTypeOrSelf(all.getType()));
      all = isFloat
                ? arith::AddFOp::create(rewriter, loc, before, all).getResult()
                : arith::AddIOp::create(rewriter, loc, before, all).getResult();
    }
    rewriter.replaceAllUsesExcept(result, all, mine.getDefiningOp());
  }
}

//===----------------------------------------------------------------------===//
// Replicated values
//===----------------------------------------------------------------------===//

namespace {

/// Finds the uses of shared values by ops of one rank.
class ReplicateInserter {
public:
  ReplicateInserter(RewriterBase &rewriter, const TokenAnalysis &tokens)
      : rewriter(rewriter), tokens(tokens) {}

  void run(func::FuncOp function);

private:
  void visit(Operation *op);
  /// The operands of `op`, and what its regions read from outside of it.
  static SmallVector<OpOperand *> getReads(Operation *op);
  static bool hasGradient(Type type) {
    return isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
               getElementTypeOrSelf(type)) &&
           (isa<FloatType>(type) || isa<RankedTensorType>(type));
  }
  Value replicate(Value value);

  RewriterBase &rewriter;
  const TokenAnalysis &tokens;
  /// Values that depend on arguments of the function.
  llvm::DenseSet<Value> active;
  llvm::MapVector<Value, SmallVector<OpOperand *>> uses;
};

} // namespace

SmallVector<OpOperand *> ReplicateInserter::getReads(Operation *op) {
  SmallVector<OpOperand *> reads;
  op->walk([&](Operation *inner) {
    for (OpOperand &operand : inner->getOpOperands())
      if (!op->isAncestor(operand.get().getParentRegion()->getParentOp()))
        reads.push_back(&operand);
  });
  return reads;
}

/// Whether `operand` has no gradient, or one that its own rank has alone.
static bool isApart(OpOperand &operand) {
  Operation *owner = operand.getOwner();
  if (auto expert = dyn_cast<ExpertOp>(owner))
    return llvm::is_contained(expert.getPerExpert(), operand.get());
  if (auto gate = dyn_cast<GateOp>(owner))
    return operand.get() != gate.getLogits();
  return isa<CapacityOp, NoiseOp, AssignOp, AllReduceOp>(owner) ||
         owner->hasTrait<OpTrait::IsTerminator>();
}

void ReplicateInserter::visit(Operation *op) {
  bool descends = isa<scf::ForOp, scf::IfOp>(op);
  SmallVector<OpOperand *> reads;
  if (descends)
    for (OpOperand &operand : op->getOpOperands())
      reads.push_back(&operand);
  else
    reads = getReads(op);
  auto isShared = [&](Value value) { return tokens.isReplicated(value); };
  bool isActive = llvm::any_of(
      reads, [&](OpOperand *read) { return active.contains(read->get()); });
  bool isLocal = !llvm::all_of(op->getResults(), isShared) ||
                 llvm::any_of(reads, [&](OpOperand *read) {
                   return !isShared(read->get());
                 });
  if (isLocal)
    for (OpOperand *read : reads)
      if (isShared(read->get()) && active.contains(read->get()) &&
          !isApart(*read))
        uses[read->get()].push_back(read);
  auto activate = [&](ValueRange values) {
    for (Value value : values)
      if (hasGradient(value.getType()))
        active.insert(value);
  };
  if (descends) {
    for (Region &region : op->getRegions())
      for (Block &block : region) {
        activate(block.getArguments());
        for (Operation &inner : block)
          visit(&inner);
      }
    activate(op->getResults());
  }
  if (isActive)
    activate(op->getResults());
}

Value ReplicateInserter::replicate(Value value) {
  rewriter.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  if (isa<RankedTensorType>(value.getType()))
    return ReplicateOp::create(rewriter, loc, value);
  Value tensor = tensor::FromElementsOp::create(
      rewriter, loc, RankedTensorType::get({}, value.getType()), value);
  Value shared = ReplicateOp::create(rewriter, loc, tensor);
  return tensor::ExtractOp::create(rewriter, loc, shared, ValueRange());
}

void ReplicateInserter::run(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (hasGradient(argument.getType()))
      active.insert(argument);
  for (Operation &op : function.front())
    visit(&op);
  for (auto &[value, reads] : uses) {
    Value shared = replicate(value);
    for (OpOperand *read : reads)
      read->set(shared);
  }
}

void mlir::moe::detail::insertReplicates(RewriterBase &rewriter,
                                         func::FuncOp function,
                                         const TokenAnalysis &tokens) {
  ReplicateInserter(rewriter, tokens).run(function);
}
