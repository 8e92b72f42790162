// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One instruction of inline PTX each.

#include "Assembly.h"

using namespace mlir;
using namespace mlir::moe::detail;

LogicalResult Assembly::emitMove(const PTXInstruction &instruction) {
  Type type = typeOf(instruction.words.back());
  if (instruction.words[0] != "mov" || !type ||
      instruction.operands.size() != 2)
    return failure();
  return write(instruction.operands[0].name,
               read(instruction.operands[1].name, type));
}

/// ld and st, of one element or a vector.
LogicalResult Assembly::emitMemory(const PTXInstruction &instruction) {
  bool isLoad = instruction.words[0] == "ld";
  Type element = typeOf(instruction.words.back());
  if ((!isLoad && instruction.words[0] != "st") || !element ||
      instruction.operands.size() != 2)
    return failure();
  // These are no plain accesses: a barrier counts the one, another block of the
  // cluster has the memory of the other.
  if (instruction.has("async") || instruction.has("shared::cluster"))
    return failure();
  const PTXOperand &values = instruction.operands[isLoad ? 0 : 1];
  Value address =
      addressOf(instruction.operands[isLoad ? 1 : 0], spaceOf(instruction));
  if (!address)
    return failure();
  std::vector<std::string> names = namesOf(values);
  int64_t count = names.size();
  Type type = count == 1 ? element : Type(VectorType::get({count}, element));
  if (isLoad) {
    Value loaded = LLVM::LoadOp::create(b, loc, type, address);
    for (int64_t i = 0; i < count; ++i) {
      Value one = count == 1 ? loaded
                             : LLVM::ExtractElementOp::create(
                                   b, loc, loaded, r.constant(r.i32, i));
      if (failed(write(names[i], one)))
        return failure();
    }
    return success();
  }
  Value stored;
  if (count > 1)
    stored = LLVM::PoisonOp::create(b, loc, type);
  for (int64_t i = 0; i < count; ++i) {
    Value one = read(names[i], element);
    if (!one)
      return failure();
    stored = count == 1 ? one
                        : LLVM::InsertElementOp::create(b, loc, stored, one,
                                                        r.constant(r.i32, i));
  }
  LLVM::StoreOp::create(b, loc, stored, address);
  return success();
}

/// atom.SPACE...OP.TYPE d, [a], b and red, its form without a result.
LogicalResult Assembly::emitAtomic(const PTXInstruction &instruction) {
  bool hasResult = instruction.words[0] == "atom";
  if (!hasResult && instruction.words[0] != "red")
    return failure();
  Type type = typeOf(instruction.words.back());
  bool isSigned = instruction.words.back()[0] == 's';
  std::optional<LLVM::AtomicBinOp> kind;
  auto when = [&](StringRef word, LLVM::AtomicBinOp one) {
    if (instruction.has(word))
      kind = one;
  };
  bool isReal = type && isa<FloatType>(type);
  when("add", isReal ? LLVM::AtomicBinOp::fadd : LLVM::AtomicBinOp::add);
  when("max", isSigned ? LLVM::AtomicBinOp::max : LLVM::AtomicBinOp::umax);
  when("min", isSigned ? LLVM::AtomicBinOp::min : LLVM::AtomicBinOp::umin);
  when("and", LLVM::AtomicBinOp::_and);
  when("or", LLVM::AtomicBinOp::_or);
  when("xor", LLVM::AtomicBinOp::_xor);
  when("exch", LLVM::AtomicBinOp::xchg);
  size_t first = hasResult ? 1 : 0;
  if (!type || !kind || instruction.operands.size() != first + 2)
    return failure();
  Value address = addressOf(instruction.operands[first], spaceOf(instruction));
  Value value = read(instruction.operands[first + 1].name, type);
  if (!address || !value)
    return failure();
  Value old = LLVM::AtomicRMWOp::create(b, loc, *kind, address, value,
                                        LLVM::AtomicOrdering::acq_rel);
  return hasResult ? write(instruction.operands[0].name, old) : success();
}

LogicalResult Assembly::emitCopy(const PTXInstruction &instruction) {
  if (!instruction.startsWith("cp.async"))
    return failure();
  const std::vector<PTXOperand> &operands = instruction.operands;
  if (instruction.startsWith("cp.async.commit_group")) {
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
    return success();
  }
  if (instruction.startsWith("cp.async.wait_all")) {
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
    NVVM::CpAsyncWaitGroupOp::create(b, loc, uint32_t(0));
    return success();
  }
  // The number of a wait or a size: written out, or a constant operand.
  auto numberOf = [&](const PTXOperand &operand) -> std::optional<int64_t> {
    auto found = registers.find(operand.name);
    if (found == registers.end())
      return parsePTXNumber(operand.name);
    return found->second.value ? Raise::numberOf(found->second.value)
                               : std::nullopt;
  };
  if (instruction.startsWith("cp.async.wait_group")) {
    std::optional<int64_t> left =
        operands.size() == 1 ? numberOf(operands[0]) : std::nullopt;
    if (!left)
      return failure();
    NVVM::CpAsyncWaitGroupOp::create(b, loc, uint32_t(*left));
    return success();
  }
  if (operands.size() < 3 || operands.size() > 4 || instruction.has("bulk"))
    return failure();
  Value to = addressOf(operands[0], unsigned(NVVM::NVVMMemorySpace::Shared));
  Value from = addressOf(operands[1], unsigned(NVVM::NVVMMemorySpace::Global));
  std::optional<int64_t> size = numberOf(operands[2]);
  Value bytes = operands.size() == 4 ? read(operands[3].name, r.i32) : Value();
  if (!to || !from || !size || (operands.size() == 4 && !bytes))
    return failure();
  return r.cpAsync(to, from, *size, instruction.has("cg"), bytes);
}

LogicalResult Assembly::emitMatrix(const PTXInstruction &instruction) {
  const std::vector<PTXOperand> &operands = instruction.operands;
  auto writeAll = [&](const PTXOperand &list, Value values) -> LogicalResult {
    std::vector<std::string> names = namesOf(list);
    if (names.size() == 1 && !isa<LLVM::LLVMStructType>(values.getType()))
      return write(names[0], values);
    for (auto [i, name] : llvm::enumerate(names))
      if (failed(write(name, LLVM::ExtractValueOp::create(b, loc, values, i))))
        return failure();
    return success();
  };
  if (instruction.startsWith("ldmatrix.sync.aligned.m8n8")) {
    if (instruction.words.back() != "b16" || operands.size() != 2)
      return failure();
    Value address =
        addressOf(operands[1], unsigned(NVVM::NVVMMemorySpace::Shared));
    if (!address)
      return failure();
    return writeAll(operands[0],
                    r.ldmatrix(address, namesOf(operands[0]).size(),
                               instruction.has("trans")));
  }
  bool isBF16 = instruction.startsWith(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
  bool isF16 = instruction.startsWith(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
  if ((!isBF16 && !isF16) || operands.size() != 4)
    return failure();
  SmallVector<Value> values;
  for (auto [i, list] : llvm::enumerate(ArrayRef(operands).drop_front()))
    for (const std::string &name : namesOf(list)) {
      values.push_back(read(name, i == 2 ? r.f32 : r.i32));
      if (!values.back())
        return failure();
    }
  Value sums = r.mma(isBF16, values);
  return sums ? writeAll(operands[0], sums) : failure();
}

LogicalResult Assembly::emitBarrier(const PTXInstruction &instruction) {
  const std::vector<PTXOperand> &operands = instruction.operands;
  if (instruction.words[0] == "membar" ||
      (instruction.words[0] == "fence" && !instruction.has("proxy")))
    return success();
  if (instruction.startsWith("bar.warp.sync") && operands.size() == 1) {
    Value mask = read(operands[0].name, r.i32);
    if (mask)
      NVVM::SyncWarpOp::create(b, loc, mask);
    return success(bool(mask));
  }
  if (!instruction.startsWith("bar.sync") &&
      !instruction.startsWith("barrier.sync"))
    return failure();
  SmallVector<Value> values;
  for (const PTXOperand &operand : operands) {
    values.push_back(read(operand.name, r.i32));
    if (!values.back())
      return failure();
  }
  if (values.empty() || values.size() > 2)
    return failure();
  NVVM::BarrierOp::create(b, loc, TypeRange(), values[0],
                          values.size() > 1 ? values[1] : Value(),
                          NVVM::BarrierReductionAttr(), Value());
  return success();
}

LogicalResult Assembly::emitWarp(const PTXInstruction &instruction) {
  const std::vector<PTXOperand> &operands = instruction.operands;
  if (!instruction.startsWith("shfl.sync") || operands.size() != 5)
    return failure();
  SmallVector<Value> x;
  for (const PTXOperand &operand : ArrayRef(operands).drop_front()) {
    x.push_back(read(operand.name, r.i32));
    if (!x.back())
      return failure();
  }
  return write(operands[0].name,
               r.shuffle(instruction.words[2], x[3], x[0], x[1], x[2]));
}

/// cvt between f32 and 16 bits.
LogicalResult Assembly::emitConversion(const PTXInstruction &instruction) {
  const std::vector<PTXOperand> &operands = instruction.operands;
  if (instruction.words[0] != "cvt" || operands.size() < 2)
    return failure();
  auto elementOf = [&](StringRef name) -> Type {
    if (name == "bf16" || name == "bf16x2")
      return b.getBF16Type();
    if (name == "f16" || name == "f16x2")
      return b.getF16Type();
    return Type();
  };
  StringRef from = instruction.words.back(),
            to = instruction.words[instruction.words.size() - 2];
  Type i16 = b.getI16Type();
  if (Type element = elementOf(from); element && to == "f32") {
    Value value = read(operands[1].name, i16);
    if (!value)
      return failure();
    value = LLVM::BitcastOp::create(b, loc, element, value);
    return write(operands[0].name, LLVM::FPExtOp::create(b, loc, r.f32, value));
  }
  Type element = elementOf(to);
  if (!element || from != "f32" || !instruction.has("rn"))
    return failure();
  Value x = read(operands[1].name, r.f32);
  if (operands.size() == 3) {
    Value low = read(operands[2].name, r.f32);
    return x && low ? write(operands[0].name, r.packHalves(element, x, low))
                    : failure();
  }
  if (!x)
    return failure();
  Value half = LLVM::FPTruncOp::create(b, loc, element, x);
  return write(operands[0].name, LLVM::BitcastOp::create(b, loc, i16, half));
}

LogicalResult Assembly::emitFunction(const PTXInstruction &instruction) {
  if (instruction.words.back() != "f32" || instruction.operands.empty())
    return failure();
  SmallVector<Value> x;
  for (const PTXOperand &operand :
       ArrayRef(instruction.operands).drop_front()) {
    x.push_back(read(operand.name, r.f32));
    if (!x.back())
      return failure();
  }
  Value result = r.function(llvm::join(instruction.words, "."), x);
  return result ? write(instruction.operands[0].name, result) : failure();
}
