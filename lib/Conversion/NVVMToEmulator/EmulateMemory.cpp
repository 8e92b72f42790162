// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Emulation.h"

#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static unsigned spaceOf(Value pointer) {
  return cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace();
}

/// Whether an address leads into the thread's frame, a parameter that is passed
/// by value or a constant: memory that is nobody else's.
static bool isPrivate(Value address) {
  while (true) {
    if (auto argument = dyn_cast<BlockArgument>(address)) {
      auto function =
          dyn_cast<LLVM::LLVMFuncOp>(argument.getOwner()->getParentOp());
      return function && argument.getOwner()->isEntryBlock() &&
             function.getArgAttr(argument.getArgNumber(),
                                 LLVM::LLVMDialect::getByValAttrName());
    }
    Operation *op = address.getDefiningOp();
    if (auto gep = dyn_cast<LLVM::GEPOp>(op))
      address = gep.getBase();
    else if (auto cast = dyn_cast<LLVM::AddrSpaceCastOp>(op))
      address = cast.getArg();
    else if (isa<LLVM::AddressOfOp>(op))
      return spaceOf(op->getResult(0)) !=
             unsigned(NVVM::NVVMMemorySpace::Shared);
    else
      return isa<LLVM::AllocaOp>(op);
  }
}

void Emulation::watchAccesses() {
  DataLayout layout(host);
  auto watch = [&](Operation *op, Value address, Type type,
                   moira_emu_function function, Value stored = Value()) {
    if (isPrivate(address) ||
        spaceOf(address) == unsigned(NVVM::NVVMMemorySpace::Constant) ||
        spaceOf(address) == unsigned(NVVM::NVVMMemorySpace::Local))
      return;
    builder.setInsertionPoint(op);
    SmallVector<Value> arguments{address};
    if (stored) {
      arguments.push_back(frame(op, type, 1));
      put(stored, arguments.back(), type, 0);
    }
    arguments.push_back(constant32(layout.getTypeSize(type).getFixedValue()));
    arguments.push_back(constant32(spaceOf(address)));
    callFor(op, function, none, arguments);
  };
  module.walk([&](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      watch(op, load.getAddr(), load.getType(), MOIRA_EMU_FN_load);
    else if (auto store = dyn_cast<LLVM::StoreOp>(op))
      watch(op, store.getAddr(), store.getValue().getType(), MOIRA_EMU_FN_store,
            store.getValue());
    else if (auto atomic = dyn_cast<LLVM::AtomicRMWOp>(op))
      watch(op, atomic.getPtr(), atomic.getVal().getType(),
            MOIRA_EMU_FN_atomic);
    else if (auto exchange = dyn_cast<LLVM::AtomicCmpXchgOp>(op))
      watch(op, exchange.getPtr(), exchange.getVal().getType(),
            MOIRA_EMU_FN_atomic);
  });
}

/// Follows the accumulators of wgmma through loops to where their elements are
/// taken out: until a wait the matrix unit may still write them.
void Emulation::watchAccumulators() {
  SmallVector<Value> worklist;
  DenseSet<Value> seen;
  auto push = [&](Value value) {
    if (seen.insert(value).second)
      worklist.push_back(value);
  };
  module.walk([&](NVVM::WgmmaMmaAsyncOp op) { push(op.getResults()); });
  SmallVector<Operation *> uses;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (auto branch = dyn_cast<BranchOpInterface>(user)) {
        if (std::optional<BlockArgument> argument =
                branch.getSuccessorBlockArgument(use.getOperandNumber()))
          push(*argument);
      } else if (isa<LLVM::ExtractValueOp>(user)) {
        uses.push_back(user);
      } else if (isa<LLVM::InsertValueOp, LLVM::SelectOp>(user)) {
        push(user->getResult(0));
      }
    }
  }
  // One call per block is enough: no other op of ours stands between.
  DenseSet<Block *> done;
  for (Operation *use : uses) {
    if (!done.insert(use->getBlock()).second)
      continue;
    Operation *first = use;
    for (Operation *other : uses)
      if (other->getBlock() == use->getBlock() && other->isBeforeInBlock(first))
        first = other;
    builder.setInsertionPoint(first);
    callFor(first, MOIRA_EMU_FN_wgmma_use, none, {});
  }
}

void Emulation::lowerSharedPointers() {
  module.walk([&](Operation *op) {
    builder.setInsertionPoint(op);
    if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
      auto found = shared.find(address.getGlobalName());
      if (found == shared.end())
        return;
      Value place = call(MOIRA_EMU_FN_shared_address, pointer,
                         {constant64(found->second.offset)});
      address.getRes().replaceAllUsesWith(place);
      address.erase();
    } else if (auto toInt = dyn_cast<LLVM::PtrToIntOp>(op)) {
      // As an integer a shared pointer is its place in the window.
      if (spaceOf(toInt.getArg()) != unsigned(NVVM::NVVMMemorySpace::Shared))
        return;
      Value offset = call(MOIRA_EMU_FN_shared_offset, i64, {toInt.getArg()});
      if (toInt.getType().getIntOrFloatBitWidth() < 64)
        offset = LLVM::TruncOp::create(builder, op->getLoc(), toInt.getType(),
                                       offset);
      toInt.getRes().replaceAllUsesWith(offset);
      toInt.erase();
    } else if (auto toPointer = dyn_cast<LLVM::IntToPtrOp>(op)) {
      if (spaceOf(toPointer.getRes()) !=
          unsigned(NVVM::NVVMMemorySpace::Shared))
        return;
      Value offset = toPointer.getArg();
      if (offset.getType().getIntOrFloatBitWidth() < 64)
        offset = LLVM::ZExtOp::create(builder, op->getLoc(), i64, offset);
      Value place = call(MOIRA_EMU_FN_shared_address, pointer, {offset});
      toPointer.getRes().replaceAllUsesWith(place);
      toPointer.erase();
    }
  });
}

/// Rounds f32 to bf16 by integer arithmetic: to nearest even, NaN to the one
/// that the hardware gives. LLVM would call a library for it on processors
/// without the instruction.
static Value roundToBF16(OpBuilder &b, Location loc, Value value) {
  Type i32 = b.getI32Type(), i16 = b.getI16Type();
  auto vector = dyn_cast<VectorType>(value.getType());
  auto shaped = [&](Type type) -> Type {
    return vector ? Type(VectorType::get(vector.getShape(), type)) : type;
  };
  auto constant = [&](int64_t number) -> Value {
    Type type = shaped(i32);
    auto attribute = b.getI32IntegerAttr(number);
    return LLVM::ConstantOp::create(
        b, loc, type,
        vector ? Attribute(DenseElementsAttr::get(cast<ShapedType>(type),
                                                  attribute.getValue()))
               : Attribute(attribute));
  };
  Value bits = LLVM::BitcastOp::create(b, loc, shaped(i32), value);
  Value high = LLVM::LShrOp::create(b, loc, bits, constant(16));
  Value odd = LLVM::AndOp::create(b, loc, high, constant(1));
  Value bias = LLVM::AddOp::create(b, loc, odd, constant(0x7fff));
  Value sum = LLVM::AddOp::create(b, loc, bits, bias);
  Value rounded = LLVM::LShrOp::create(b, loc, sum, constant(16));
  Value isNaN =
      LLVM::FCmpOp::create(b, loc, LLVM::FCmpPredicate::uno, value, value);
  Value result =
      LLVM::SelectOp::create(b, loc, isNaN, constant(0x7fff), rounded);
  result = LLVM::TruncOp::create(b, loc, shaped(i16), result);
  return LLVM::BitcastOp::create(b, loc, shaped(b.getBF16Type()), result);
}

LogicalResult Emulation::lowerRounding() {
  LogicalResult result = success();
  module.walk([&](LLVM::FPTruncOp op) {
    if (!getElementTypeOrSelf(op.getType()).isBF16())
      return;
    if (!getElementTypeOrSelf(op.getArg().getType()).isF32()) {
      op.emitOpError("expected a rounding from f32 to bf16, got one from ")
          << op.getArg().getType();
      result = failure();
      return;
    }
    builder.setInsertionPoint(op);
    op.getRes().replaceAllUsesWith(
        roundToBF16(builder, op.getLoc(), op.getArg()));
    op.erase();
  });
  return result;
}
