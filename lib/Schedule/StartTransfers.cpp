// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A transfer in straight code starts as soon as what it reads is there, and is
// waited for where what it writes is used: what stands in between overlaps.

#include "SplitChunks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
/// Buffers that a transfer works on.
struct TransferMemory {
  SmallVector<Value, 2> reads;
  Value write;
};
} // namespace

static TransferMemory getMemory(Operation *op) {
  TransferMemory memory;
  Value outs = llvm::TypeSwitch<Operation *, Value>(op)
                   .Case<ExchangeOp, AllReduceOp, ReduceWeightsOp>(
                       [](auto typed) { return typed.getOuts()[0]; });
  memory.write = findRoot(outs);
  for (Value operand : op->getOperands())
    if (isa<MemRefType>(operand.getType()) && operand != outs)
      memory.reads.push_back(findRoot(operand));
  return memory;
}

/// Whether `op` reads `memref` and does nothing else to it, nor gives another
/// name to it.
static bool onlyReads(Operation *op, Value memref) {
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  if (!effects || op->getNumRegions() != 0 ||
      llvm::any_of(op->getResultTypes(),
                   [](Type type) { return isa<MemRefType>(type); }))
    return false;
  SmallVector<MemoryEffects::EffectInstance> found;
  effects.getEffectsOnValue(memref, found);
  return !found.empty() &&
         llvm::all_of(found, [](const MemoryEffects::EffectInstance &effect) {
           return isa<MemoryEffects::Read>(effect.getEffect());
         });
}

/// Whether `op`, or an op in it, must not run while the transfer does.
static bool conflicts(Operation *op, const TransferMemory &memory) {
  // A view by itself touches nothing.
  if (isa<ViewLikeOpInterface>(op))
    return false;
  auto check = [&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      if (!isa<MemRefType>(operand.getType()) ||
          isa<ViewLikeOpInterface>(inner))
        continue;
      Value root = findRoot(operand);
      if (root == memory.write || (llvm::is_contained(memory.reads, root) &&
                                   !onlyReads(inner, operand)))
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  };
  return op->walk(check).wasInterrupted();
}

Value mlir::moe::detail::startTransfer(OpBuilder &builder, Operation *op) {
  Location loc = op->getLoc();
  Type index = builder.getIndexType();
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case(
          [&](ExchangeOp exchange) { return startExchange(builder, exchange); })
      .Case([&](AllReduceOp sum) {
        return StartAllReduceOp::create(builder, loc, index, sum.getMine(),
                                        sum.getOuts()[0], sum.getLayerAttr());
      })
      .Case([&](ReduceWeightsOp sum) {
        return StartReduceOp::create(builder, loc, index, sum.getWhole(),
                                     sum.getOuts()[0],
                                     /*replicated=*/!sum.getDim(),
                                     sum.getPlacement(), sum.getLayerAttr());
      });
}

/// Moves `op`, with the numbers and the memory that it needs, as far up in its
/// block as they allow.
static void moveUp(Operation *op, const TransferMemory &memory) {
  llvm::SmallSetVector<Operation *, 8> moved;
  moved.insert(op);
  Operation *first = op;
  while (Operation *before = first->getPrevNode()) {
    bool isNeeded = llvm::any_of(before->getUsers(), [&](Operation *user) {
      return moved.contains(before->getBlock()->findAncestorOpInBlock(*user));
    });
    if (isNeeded && !isa<memref::AllocOp, ViewLikeOpInterface>(before) &&
        !isPure(before))
      break;
    if (!isNeeded && conflicts(before, memory))
      break;
    if (isNeeded)
      moved.insert(before);
    first = before;
  }
  if (moved.contains(first)) {
    moved.remove(first);
    for (Operation *next : llvm::reverse(moved)) {
      next->moveAfter(first);
      first = next;
    }
    return;
  }
  for (Operation *next : llvm::reverse(moved))
    next->moveBefore(first);
}

void mlir::moe::detail::overlapTransfer(Operation *op) {
  TransferMemory memory = getMemory(op);
  moveUp(op, memory);
  Operation *last = op->getNextNode();
  while (!last->hasTrait<OpTrait::IsTerminator>() && !conflicts(last, memory))
    last = last->getNextNode();
  OpBuilder builder(op);
  Value ticket = startTransfer(builder, op);
  builder.setInsertionPoint(last);
  WaitOp::create(builder, op->getLoc(), ticket);
  op->erase();
}
