// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Assembly.h"

using namespace mlir;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

Type Assembly::typeOf(StringRef suffix) {
  if (suffix == "pred")
    return b.getI1Type();
  if (suffix == "f32")
    return r.f32;
  if (suffix == "f64")
    return b.getF64Type();
  int64_t bits = 0;
  if (suffix.empty() || !StringRef("bus").contains(suffix[0]) ||
      suffix.drop_front().getAsInteger(10, bits) ||
      (bits != 8 && bits != 16 && bits != 32 && bits != 64))
    return Type();
  return b.getIntegerType(bits);
}

void Assembly::addPlace(StringRef name, Type type) {
  OpBuilder::InsertionGuard guard(b);
  auto function = op->getParentOfType<LLVM::LLVMFuncOp>();
  b.setInsertionPointToStart(&function.getBody().front());
  Value place =
      LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()),
                             type, r.constant(r.i32, 1), /*alignment=*/8);
  registers[name] = {Value(), place, type};
}

LogicalResult Assembly::bindOperands() {
  if (op.getNumResults()) {
    Type type = op->getResult(0).getType();
    if (auto body = dyn_cast<LLVM::LLVMStructType>(type))
      llvm::append_range(results, body.getBody());
    else if (!isa<LLVM::LLVMVoidType>(type))
      results.push_back(type);
  }
  SmallVector<StringRef> constraints;
  op.getConstraints().split(constraints, ',', -1, /*KeepEmpty=*/false);
  size_t next = 0;
  for (StringRef constraint : constraints) {
    if (constraint.starts_with("~"))
      continue;
    std::string name = "$" + std::to_string(next++);
    if (next <= results.size()) {
      addPlace(name, results[next - 1]);
      continue;
    }
    size_t input = next - 1 - results.size();
    if (input >= op.getNumOperands())
      return failure();
    Value value = op.getOperand(input);
    registers[name] = {value, Value(), value.getType()};
    // An input that shares the register of a result.
    int64_t shared = 0;
    if (!constraint.getAsInteger(10, shared) &&
        failed(write("$" + std::to_string(shared), value)))
      return failure();
  }
  return success();
}

Value Assembly::read(StringRef name, Type type) {
  auto found = registers.find(name);
  if (found != registers.end()) {
    Register &one = found->second;
    Value value = one.place ? LLVM::LoadOp::create(b, loc, one.type, one.place)
                            : one.value;
    return type ? r.cast(value, type) : value;
  }
  if (name.consume_front("0f")) {
    uint32_t bits = 0;
    if (name.getAsInteger(16, bits) || type != r.f32)
      return Value();
    return LLVM::BitcastOp::create(b, loc, type,
                                   r.constant(r.i32, int32_t(bits)));
  }
  std::optional<int64_t> number = parsePTXNumber(name);
  if (!number || !type || !type.isInteger())
    return Value();
  return LLVM::ConstantOp::create(
      b, loc, type,
      b.getIntegerAttr(type, APInt(64, uint64_t(*number), /*isSigned=*/true)
                                 .sextOrTrunc(type.getIntOrFloatBitWidth())));
}

LogicalResult Assembly::write(StringRef name, Value value) {
  // The sink for what nobody wants.
  if (name == "_")
    return success();
  auto found = registers.find(name);
  if (!value || found == registers.end() || !found->second.place)
    return failure();
  LLVM::StoreOp::create(b, loc, r.cast(value, found->second.type),
                        found->second.place);
  return success();
}

unsigned Assembly::spaceOf(const PTXInstruction &instruction) {
  if (instruction.has("global"))
    return unsigned(NVVM::NVVMMemorySpace::Global);
  if (instruction.has("shared") || instruction.has("shared::cta"))
    return unsigned(NVVM::NVVMMemorySpace::Shared);
  return unsigned(NVVM::NVVMMemorySpace::Generic);
}

Value Assembly::addressOf(const PTXOperand &operand, unsigned space) {
  if (operand.kind != PTXOperand::Address)
    return Value();
  auto type = LLVM::LLVMPointerType::get(b.getContext(), space);
  auto found = registers.find(operand.name);
  if (found == registers.end())
    return Value();
  Value base = read(operand.name, type);
  if (operand.offset == 0)
    return base;
  return LLVM::GEPOp::create(b, loc, type, b.getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(operand.offset)});
}

LogicalResult Assembly::declare(const PTXInstruction &instruction) {
  Type type = typeOf(instruction.words.back());
  if (!type)
    return failure();
  for (const PTXOperand &operand : instruction.operands)
    addPlace(operand.name, type);
  return success();
}

LogicalResult Assembly::emit(const PTXInstruction &instruction) {
  if (instruction.words[0] == ".reg")
    return declare(instruction);
  for (auto one :
       {&Assembly::emitMove, &Assembly::emitMemory, &Assembly::emitAtomic,
        &Assembly::emitCopy, &Assembly::emitMatrix, &Assembly::emitBarrier,
        &Assembly::emitWarp, &Assembly::emitConversion,
        &Assembly::emitFunction})
    if (succeeded((this->*one)(instruction)))
      return success();
  return failure();
}

LogicalResult Assembly::emitGuarded(const PTXInstruction &instruction) {
  if (instruction.predicate.empty())
    return emit(instruction);
  Value condition = read(instruction.predicate, b.getI1Type());
  if (!condition)
    return failure();
  // before: cond_br condition, body, after.
  Block *before = op->getBlock();
  Block *after = before->splitBlock(op);
  Block *body = b.createBlock(after);
  LogicalResult result = emit(instruction);
  LLVM::BrOp::create(b, loc, ValueRange(), after);
  b.setInsertionPointToEnd(before);
  LLVM::CondBrOp::create(b, loc, condition,
                         instruction.isNegated ? after : body,
                         instruction.isNegated ? body : after);
  b.setInsertionPoint(op);
  return result;
}

LogicalResult Assembly::run() {
  std::string rest;
  auto instructions = parsePTX(op.getAsmString(), rest);
  if (!instructions)
    return op.emitOpError("expected PTX that is understood, got '")
           << rest << "'";
  if (failed(bindOperands()))
    return op.emitOpError("expected registers as operands of PTX, got '")
           << op.getConstraints() << "'";
  for (const PTXInstruction &instruction : *instructions)
    if (failed(emitGuarded(instruction)))
      return op.emitOpError("expected PTX that is understood, got '")
             << instruction.text << "'";
  if (results.empty()) {
    op.erase();
    return success();
  }
  auto resultOf = [&](size_t i) {
    return read("$" + std::to_string(i), results[i]);
  };
  Type type = op->getResult(0).getType();
  Value all = resultOf(0);
  if (isa<LLVM::LLVMStructType>(type)) {
    all = LLVM::PoisonOp::create(b, loc, type);
    for (size_t i = 0; i < results.size(); ++i)
      all = LLVM::InsertValueOp::create(b, loc, all, resultOf(i), i);
  }
  op->getResult(0).replaceAllUsesWith(all);
  op.erase();
  return success();
}

LogicalResult Raise::raise(LLVM::InlineAsmOp assembly) {
  return Assembly(*this, assembly).run();
}
