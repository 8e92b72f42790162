// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Rows that a rank receives in the model; no number of chunks but 1 and 2
/// divides it, and no chunk is empty.
static constexpr int64_t kModelRows = 10;
/// Iterations of a loop with transfers.
static constexpr int64_t kMostIterations = 4096;

Operation *mlir::moe::detail::findCollective(Operation *op) {
  Operation *found = nullptr;
  op->walk([&](Operation *inner) {
    if (!isCollective(inner))
      return WalkResult::advance();
    found = inner;
    return WalkResult::interrupt();
  });
  return found;
}

LogicalResult Interpreter::run() {
  for (BlockArgument argument : function.getArguments())
    if (isa<MemRefType>(argument.getType()))
      memory.set(argument, memory.allocate(argument, {}));
  if (failed(runBlock(function.front())))
    return failure();
  return timeline.finish();
}

LogicalResult Interpreter::runBlock(Block &block) {
  for (Operation &op : block)
    if (failed(runOp(&op)))
      return failure();
  return success();
}

LogicalResult Interpreter::runOp(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp loop) { return run(loop); })
      .Case([&](scf::IfOp branch) {
        return findCollective(op) ? run(branch) : runOnce(op);
      })
      .Case<StartExchangeOp, StartGatherOp, StartAllReduceOp, StartReduceOp,
            WaitOp, memref::LoadOp, memref::StoreOp>(
          [&](auto typed) { return run(typed); })
      .Case<memref::AllocOp, memref::AllocaOp>(
          [&](auto) { return runAlloc(op); })
      .Case([&](memref::DeallocOp dealloc) {
        return timeline.endLife(
            op, memory.getView(dealloc.getMemref()).region.buffer,
            "its life ends");
      })
      .Case([&](memref::GetGlobalOp global) {
        auto [it, isNew] = globals.try_emplace(global.getName());
        if (isNew)
          it->second = memory.allocate(global.getResult(), {});
        memory.set(global.getResult(), it->second);
        return success();
      })
      .Case([&](ViewLikeOpInterface view) {
        runView(view);
        return success();
      })
      // A transfer that is waited for at once: in order with those before it.
      .Case<ExchangeOp, GatherWeightsOp, AllReduceOp, ReduceWeightsOp>(
          [&](auto) {
            timeline.waitForAll();
            return runEffects(op);
          })
      .Case([&](ReceiveSizesOp sizes) {
        memory.set(sizes.getResults().back(), receive(sizes));
        return runEffects(op);
      })
      .Default([&](Operation *) {
        if (op->getNumRegions() != 0)
          return runOnce(op);
        runNumbers(op);
        return runEffects(op);
      });
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

bool Interpreter::isFollowed(scf::ForOp loop) {
  Number lower = memory.getNumber(loop.getLowerBound());
  Number upper = memory.getNumber(loop.getUpperBound());
  Number step = memory.getNumber(loop.getStep());
  if (!lower.value || !upper.value || !step.value || *step.value < 1)
    return false;
  int64_t iterations = (*upper.value - *lower.value) / *step.value;
  // Short loops may compute where chunks begin.
  if (!findCollective(loop))
    return iterations <= chunks;
  return iterations <= kMostIterations && lower.isShared && upper.isShared &&
         step.isShared;
}

LogicalResult Interpreter::run(scf::ForOp loop) {
  if (!isFollowed(loop)) {
    Operation *collective = findCollective(loop);
    if (!collective)
      return runUnknown(loop);
    InFlightDiagnostic diagnostic = collective->emitOpError(
        "expected a loop of a length that all ranks share, got another");
    diagnostic.attachNote(loop.getLoc()) << "the loop is here";
    return diagnostic;
  }
  Number lower = memory.getNumber(loop.getLowerBound());
  Number upper = memory.getNumber(loop.getUpperBound());
  Number step = memory.getNumber(loop.getStep());
  bool isOverChunks = loop.getUpperBound().getDefiningOp<ChunksOp>();
  int64_t outerIteration = timeline.getIteration();
  for (auto [init, carried] :
       llvm::zip(loop.getInits(), loop.getRegionIterArgs()))
    memory.copy(init, carried);
  auto terminator = cast<scf::YieldOp>(loop.getBody()->getTerminator());
  for (int64_t i = *lower.value; i < *upper.value; i += *step.value) {
    if (isOverChunks)
      timeline.setIteration(i);
    memory.set(loop.getInductionVar(), Number{i, upper.isShared, false});
    SmallVector<std::pair<Operation *, Value>> allocated;
    llvm::SaveAndRestore inside(scope, &allocated);
    if (failed(runBlock(*loop.getBody())))
      return failure();
    for (auto [op, memref] : allocated) {
      int64_t buffer = memory.getView(memref).region.buffer;
      bool isYielded =
          llvm::any_of(terminator.getOperands(), [&](Value yielded) {
            return isa<MemRefType>(yielded.getType()) &&
                   memory.getView(yielded).region.buffer == buffer;
          });
      if (!isYielded && failed(timeline.endLife(op, buffer,
                                                "the iteration ends that "
                                                "allocates it")))
        return failure();
    }
    // Values first: they may be carried crosswise.
    SmallVector<Number> numbers;
    SmallVector<View> views;
    for (Value yielded : terminator.getOperands()) {
      bool isMemory = isa<MemRefType>(yielded.getType());
      numbers.push_back(isMemory ? Number() : memory.getNumber(yielded));
      views.push_back(isMemory ? memory.getView(yielded) : View());
    }
    for (auto [k, carried] : llvm::enumerate(loop.getRegionIterArgs()))
      if (isa<MemRefType>(carried.getType()))
        memory.set(carried, views[k]);
      else
        memory.set(carried, numbers[k]);
  }
  for (auto [carried, result] :
       llvm::zip(loop.getRegionIterArgs(), loop.getResults()))
    memory.copy(carried, result);
  timeline.setIteration(outerIteration);
  return success();
}

LogicalResult Interpreter::runUnknown(scf::ForOp loop) {
  // What the loop carries may be anywhere in the buffer that it starts from. If
  // it changes buffers, it may be anywhere at all.
  auto getBuffer = [&](Value memref) {
    return memory.getView(memref).region.buffer;
  };
  auto carried = loop.getRegionIterArgs();
  ValueRange yielded = loop.getBody()->getTerminator()->getOperands();
  bool isKnown = true;
  do {
    memory.forget(loop.getInductionVar());
    for (auto [init, argument] : llvm::zip(loop.getInits(), carried)) {
      memory.forget(argument);
      if (isKnown && isa<MemRefType>(argument.getType()))
        memory.setSomewhere(argument, getBuffer(init));
    }
    if (failed(runBlock(*loop.getBody())))
      return failure();
    bool isSame =
        llvm::all_of(llvm::zip(loop.getInits(), yielded), [&](auto pair) {
          auto [init, value] = pair;
          return !isa<MemRefType>(value.getType()) ||
                 getBuffer(init) == getBuffer(value);
        });
    if (isSame || !isKnown)
      break;
    isKnown = false;
  } while (true);
  for (auto [init, result] : llvm::zip(loop.getInits(), loop.getResults())) {
    memory.forget(result);
    if (isKnown && isa<MemRefType>(result.getType()))
      memory.setSomewhere(result, getBuffer(init));
  }
  return success();
}

LogicalResult Interpreter::run(scf::IfOp branch) {
  Number condition = memory.getNumber(branch.getCondition());
  if (!condition.value || !condition.isShared) {
    InFlightDiagnostic diagnostic = findCollective(branch)->emitOpError(
        "expected a condition that all ranks share, got another");
    diagnostic.attachNote(branch.getLoc()) << "the condition is here";
    return diagnostic;
  }
  Region *taken =
      *condition.value ? &branch.getThenRegion() : &branch.getElseRegion();
  if (taken->empty())
    return success();
  if (failed(runBlock(taken->front())))
    return failure();
  for (auto [yielded, result] : llvm::zip(
           taken->front().getTerminator()->getOperands(), branch.getResults()))
    memory.copy(yielded, result);
  return success();
}

LogicalResult Interpreter::runOnce(Operation *op) {
  if (Operation *collective = findCollective(op)) {
    InFlightDiagnostic diagnostic = collective->emitOpError(
        "expected control flow that all ranks share, got '");
    diagnostic << op->getName() << "'";
    diagnostic.attachNote(op->getLoc()) << "around it";
    return diagnostic;
  }
  if (failed(runEffects(op)))
    return failure();
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      for (BlockArgument argument : block.getArguments())
        memory.forget(argument);
      if (failed(runBlock(block)))
        return failure();
    }
  for (Value result : op->getResults())
    memory.forget(result);
  return success();
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

LogicalResult Interpreter::run(StartExchangeOp op) {
  ByteRange home = memory.getView(op.getHome()).region;
  ByteRange away = memory.getView(op.getAway()).region;
  ByteRange matrix = memory.getView(op.getMatrix()).region;
  bool isSend = op.getDirection() == Direction::ToExperts;
  // At home all chunks write into one range, each its own rows.
  FailureOr<int64_t> ticket =
      timeline.start(op, {isSend ? home : away, matrix}, isSend ? away : home,
                     /*isOwner=*/isSend);
  if (failed(ticket))
    return failure();
  memory.set(op.getTicket(), Number{*ticket, true, true});
  return success();
}

LogicalResult Interpreter::startTransfer(Operation *op, Value from, Value to) {
  FailureOr<int64_t> ticket =
      timeline.start(op, memory.getView(from).region, memory.getView(to).region,
                     /*isOwner=*/true);
  if (failed(ticket))
    return failure();
  memory.set(op->getResult(0), Number{*ticket, true, true});
  return success();
}

LogicalResult Interpreter::run(StartGatherOp op) {
  return startTransfer(op, op.getLocal(), op.getWhole());
}

LogicalResult Interpreter::run(StartAllReduceOp op) {
  return startTransfer(op, op.getMine(), op.getSum());
}

LogicalResult Interpreter::run(StartReduceOp op) {
  return startTransfer(op, op.getWhole(), op.getLocal());
}

LogicalResult Interpreter::run(WaitOp op) {
  Number ticket = memory.getNumber(op.getTicket());
  if (!ticket.value || !ticket.isTicket) {
    InFlightDiagnostic diagnostic =
        op.emitOpError("expected the ticket of a transfer");
    timeline.addPlace(diagnostic, "none");
    return diagnostic;
  }
  timeline.wait(*ticket.value);
  return success();
}

Number Interpreter::receive(ReceiveSizesOp op) {
  if (!op.getChunk())
    return {kModelRows, false, false};
  std::optional<int64_t> chunk = memory.getNumber(op.getChunk()).value;
  std::optional<int64_t> total = memory.getNumber(op.getChunks()).value;
  if (!chunk || !total || *total < 1)
    return {};
  return {(*chunk + 1) * kModelRows / *total - *chunk * kModelRows / *total,
          false, false};
}
