// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An abstract interpreter of one rank's program. Control flow around transfers
// must be known: it is what the ranks share. Everything else is seen by its
// effects on memory.

#include "Memory.h"

#include "moira/Schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CHECKSCHEDULEPASS
#include "moira/Schedule/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Chunk counts to try: with 4 every pair of neighbours, and of ops two chunks
/// apart, meets in every stage.
static constexpr int64_t kMostChunks = 4;
/// Rows that a rank receives in the model; no number of chunks but 1 and 2
/// divides it, and no chunk is empty.
static constexpr int64_t kModelRows = 10;
/// Iterations of a loop with transfers.
static constexpr int64_t kMostIterations = 4096;

namespace {

class Interpreter {
public:
  Interpreter(func::FuncOp function, int64_t chunks)
      : function(function), chunks(chunks), timeline(chunks) {}

  LogicalResult run();

private:
  LogicalResult runBlock(Block &block);
  /// Runs `op` wherever control flow is known.
  LogicalResult runOp(Operation *op);
  /// Runs the ops of regions whose control flow is not followed, once.
  LogicalResult runOnce(Operation *op);
  LogicalResult run(scf::ForOp loop);
  LogicalResult run(scf::IfOp branch);
  LogicalResult run(StartExchangeOp op);
  LogicalResult run(StartGatherOp op);
  LogicalResult run(WaitOp op);
  LogicalResult run(memref::LoadOp op);
  LogicalResult run(memref::StoreOp op);
  LogicalResult runAlloc(Operation *op);
  LogicalResult runEffects(Operation *op);
  void runView(ViewLikeOpInterface op);
  void runNumbers(Operation *op);
  Number receive(ReceiveSizesOp op);

  func::FuncOp function;
  int64_t chunks;
  Timeline timeline;
  Memory memory;
  /// Buffers that the running iteration has allocated.
  SmallVector<std::pair<Operation *, Value>> *scope = nullptr;
};

struct CheckSchedule : public moe::impl::CheckSchedulePassBase<CheckSchedule> {
  void runOnOperation() override {
    bool hasTransfers = getOperation()
                            .walk([](Operation *op) {
                              return isCollective(op) ? WalkResult::interrupt()
                                                      : WalkResult::advance();
                            })
                            .wasInterrupted();
    markAllAnalysesPreserved();
    if (!hasTransfers)
      return;
    for (int64_t chunks = 1; chunks <= kMostChunks; ++chunks)
      if (failed(Interpreter(getOperation(), chunks).run()))
        return signalPassFailure();
  }
};

} // namespace

/// The first collective in `op`, or null.
static Operation *findCollective(Operation *op) {
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
      .Case<scf::ForOp, scf::IfOp>([&](auto typed) {
        return findCollective(op) ? run(typed) : runOnce(op);
      })
      .Case<StartExchangeOp, StartGatherOp, WaitOp, memref::LoadOp,
            memref::StoreOp>([&](auto typed) { return run(typed); })
      .Case<memref::AllocOp, memref::AllocaOp>(
          [&](auto) { return runAlloc(op); })
      .Case([&](memref::DeallocOp dealloc) {
        return timeline.endLife(
            op, memory.getView(dealloc.getMemref()).region.buffer,
            "its life ends");
      })
      .Case([&](ViewLikeOpInterface view) {
        runView(view);
        return success();
      })
      // A transfer that is waited for at once: in order with those before it.
      .Case<ExchangeOp, GatherWeightsOp>([&](auto) {
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

LogicalResult Interpreter::run(scf::ForOp loop) {
  Number lower = memory.getNumber(loop.getLowerBound());
  Number upper = memory.getNumber(loop.getUpperBound());
  Number step = memory.getNumber(loop.getStep());
  if (!lower.value || !upper.value || !step.value || !lower.isShared ||
      !upper.isShared || !step.isShared ||
      (*upper.value - *lower.value) / std::max<int64_t>(1, *step.value) >
          kMostIterations) {
    InFlightDiagnostic diagnostic = findCollective(loop)->emitOpError(
        "expected a loop of a length that all ranks share, got another");
    diagnostic.attachNote(loop.getLoc()) << "the loop is here";
    return diagnostic;
  }
  bool isOverChunks = loop.getUpperBound().getDefiningOp<ChunksOp>();
  int64_t outerIteration = timeline.getIteration();
  for (auto [init, carried] :
       llvm::zip(loop.getInits(), loop.getRegionIterArgs()))
    memory.copy(init, carried);
  auto terminator = cast<scf::YieldOp>(loop.getBody()->getTerminator());
  for (int64_t i = *lower.value; i < *upper.value; i += *step.value) {
    if (isOverChunks)
      timeline.setIteration(i);
    memory.set(loop.getInductionVar(), Number::shared(i));
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

LogicalResult Interpreter::run(StartGatherOp op) {
  FailureOr<int64_t> ticket =
      timeline.start(op, memory.getView(op.getLocal()).region,
                     memory.getView(op.getWhole()).region, /*isOwner=*/true);
  if (failed(ticket))
    return failure();
  memory.set(op.getTicket(), Number{*ticket, true, true});
  return success();
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

//===----------------------------------------------------------------------===//
// Memory and numbers
//===----------------------------------------------------------------------===//

LogicalResult Interpreter::runAlloc(Operation *op) {
  SmallVector<Number> sizes;
  for (Value operand : op->getOperands())
    sizes.push_back(memory.getNumber(operand));
  Value result = op->getResult(0);
  memory.set(result, memory.allocate(result, sizes));
  if (scope)
    scope->push_back({op, result});
  return success();
}

LogicalResult Interpreter::run(memref::LoadOp op) {
  ByteRange element = memory.getElement(op.getMemref(), op.getIndices());
  memory.set(op.getResult(), memory.load(element));
  return timeline.access(op, element, /*isWrite=*/false);
}

LogicalResult Interpreter::run(memref::StoreOp op) {
  ByteRange element = memory.getElement(op.getMemref(), op.getIndices());
  memory.store(element, memory.getNumber(op.getValueToStore()));
  return timeline.access(op, element, /*isWrite=*/true);
}

void Interpreter::runView(ViewLikeOpInterface op) {
  Value source = op.getViewSource();
  for (Value result : op->getResults())
    memory.forget(result);
  if (op->getNumResults() != 1 ||
      !isa<MemRefType>(op->getResult(0).getType()) ||
      !isa<MemRefType>(source.getType()))
    return;
  Value result = op->getResult(0);
  View view = memory.getView(result); // static sizes
  view.region = memory.getView(source).region;
  auto setDynamicSizes = [&](ValueRange sizes) {
    for (Number &size : view.sizes)
      if (!size.value && !sizes.empty()) {
        size = memory.getNumber(sizes.front());
        sizes = sizes.drop_front();
      }
  };
  if (isa<memref::CastOp>(op)) {
    view.sizes = memory.getView(source).sizes;
  } else if (auto slice = dyn_cast<memref::SubViewOp>(op.getOperation())) {
    if (slice.getType().getRank() == slice.getSourceType().getRank())
      setDynamicSizes(slice.getSizes());
    view.region = memory.getBox(source, slice.getMixedOffsets(),
                                slice.getMixedSizes(), slice.getMixedStrides());
  } else if (auto cut = dyn_cast<memref::ViewOp>(op.getOperation())) {
    setDynamicSizes(cut.getSizes());
    std::optional<int64_t> begin = memory.getNumber(cut.getByteShift()).value;
    std::optional<int64_t> bytes = getElementBytes(cut.getType());
    for (const Number &size : view.sizes)
      bytes = bytes && size.value ? std::optional(*bytes * *size.value)
                                  : std::nullopt;
    if (begin && bytes) {
      view.region.begin += *begin;
      view.region.end = view.region.begin + *bytes;
    }
  }
  memory.set(result, view);
}

void Interpreter::runNumbers(Operation *op) {
  for (Value result : op->getResults())
    memory.forget(result);
  if (isa<ChunksOp>(op)) {
    memory.set(op->getResult(0), Number::shared(chunks));
    return;
  }
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    if (std::optional<int64_t> d = dim.getConstantIndex())
      memory.set(dim.getResult(), memory.getView(dim.getSource()).sizes[*d]);
    return;
  }
  auto isNumber = [](Type type) { return type.isIntOrIndex(); };
  if (op->getNumResults() != 1 || !isPure(op) || isa<RankOp>(op) ||
      !llvm::all_of(op->getOperandTypes(), isNumber) ||
      !isNumber(op->getResult(0).getType()))
    return;
  Number result;
  result.isShared = true;
  SmallVector<Attribute> constants;
  for (Value operand : op->getOperands()) {
    Number number = memory.getNumber(operand);
    result.isShared &= number.isShared;
    constants.push_back(number.value
                            ? IntegerAttr::get(operand.getType(), *number.value)
                            : Attribute());
  }
  SmallVector<OpFoldResult> folded;
  // Folding in place would change the program.
  Operation *copy = op->clone();
  if (succeeded(copy->fold(constants, folded)) && folded.size() == 1) {
    Number known = memory.getNumber(folded[0]);
    result.value = known.value;
  }
  copy->destroy();
  memory.set(op->getResult(0), result);
}

LogicalResult Interpreter::runEffects(Operation *op) {
  auto touch = [&](Value memref, bool isWrite) -> LogicalResult {
    ByteRange region = memory.getView(memref).region;
    if (isWrite)
      memory.clobber(region);
    return timeline.access(op, region, isWrite);
  };
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (interface) {
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects) {
      Value memref = effect.getValue();
      if (!memref || !isa<MemRefType>(memref.getType()) ||
          isa<MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      bool isWrite = !isa<MemoryEffects::Read>(effect.getEffect());
      if (failed(touch(memref, isWrite)))
        return failure();
    }
    return success();
  }
  if (isPure(op) || op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
      op->hasTrait<OpTrait::IsTerminator>())
    return success();
  // Nothing is known, as of a call.
  for (Value operand : op->getOperands())
    if (isa<MemRefType>(operand.getType()) && failed(touch(operand, true)))
      return failure();
  return success();
}
