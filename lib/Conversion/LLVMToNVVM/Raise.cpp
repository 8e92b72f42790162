// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Raise.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::moe::detail;

std::optional<int64_t> Raise::numberOf(Value value) {
  APInt number;
  if (!matchPattern(value, m_ConstantInt(&number)))
    return std::nullopt;
  return number.getSExtValue();
}

Value Raise::cast(Value value, Type type) {
  Type from = value.getType();
  if (from == type)
    return value;
  auto isPointer = [](Type type) { return isa<LLVM::LLVMPointerType>(type); };
  if (isPointer(from) && isPointer(type))
    return LLVM::AddrSpaceCastOp::create(b, loc, type, value);
  if (isPointer(from))
    return LLVM::PtrToIntOp::create(b, loc, type, value);
  if (isPointer(type))
    return LLVM::IntToPtrOp::create(b, loc, type, value);
  return LLVM::BitcastOp::create(b, loc, type, value);
}

Value Raise::shuffle(StringRef mode, Value mask, Value value, Value offset,
                     Value clamp, bool isPair) {
  auto kind = llvm::StringSwitch<std::optional<NVVM::ShflKind>>(mode)
                  .Case("bfly", NVVM::ShflKind::bfly)
                  .Case("up", NVVM::ShflKind::up)
                  .Case("down", NVVM::ShflKind::down)
                  .Case("idx", NVVM::ShflKind::idx)
                  .Default(std::nullopt);
  if (!kind)
    return Value();
  Type type = value.getType();
  if (isPair)
    type =
        LLVM::LLVMStructType::getLiteral(b.getContext(), {type, b.getI1Type()});
  return NVVM::ShflOp::create(b, loc, type, mask, value, offset, clamp, *kind,
                              isPair ? b.getUnitAttr() : UnitAttr());
}

Value Raise::vote(StringRef mode, Value mask, Value isSet) {
  auto kind = llvm::StringSwitch<std::optional<NVVM::VoteSyncKind>>(mode)
                  .Case("any", NVVM::VoteSyncKind::any)
                  .Case("all", NVVM::VoteSyncKind::all)
                  .Case("uni", NVVM::VoteSyncKind::uni)
                  .Case("ballot", NVVM::VoteSyncKind::ballot)
                  .Default(std::nullopt);
  if (!kind)
    return Value();
  Type type = *kind == NVVM::VoteSyncKind::ballot ? i32 : Type(b.getI1Type());
  return NVVM::VoteSyncOp::create(b, loc, type, mask, isSet, *kind);
}

Value Raise::ldmatrix(Value address, int64_t count, bool isTransposed) {
  Type type = i32;
  if (count > 1)
    type = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                            SmallVector<Type>(count, i32));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  return NVVM::LdMatrixOp::create(b, loc, type, address, uint32_t(count),
                                  isTransposed ? NVVM::MMALayout::col
                                               : NVVM::MMALayout::row,
                                  shape, NVVM::LdStMatrixEltType::B16);
}

Value Raise::mma(bool isBF16, ValueRange operands) {
  if (operands.size() != 10)
    return Value();
  // Upstream's op wants pairs of f16, and integers for bf16.
  Type part = isBF16 ? i32 : Type(VectorType::get({2}, b.getF16Type()));
  SmallVector<Value> values;
  for (auto [i, value] : llvm::enumerate(operands))
    values.push_back(cast(value, i < 6 ? part : f32));
  auto sums = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                               SmallVector<Type>(4, f32));
  NVVM::MMATypes type = isBF16 ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  ArrayRef<Value> all(values);
  return NVVM::MmaOp::create(b, loc, sums, all.take_front(4), all.slice(4, 2),
                             all.take_back(4), ArrayRef<int64_t>{16, 8, 16},
                             std::nullopt, std::nullopt,
                             std::array<NVVM::MMATypes, 2>{type, type},
                             std::array<NVVM::MMALayout, 2>{
                                 NVVM::MMALayout::row, NVVM::MMALayout::col});
}

LogicalResult Raise::cpAsync(Value to, Value from, int64_t size, bool isGlobal,
                             Value bytes) {
  if (size != 4 && size != 8 && size != 16)
    return failure();
  NVVM::CpAsyncOp::create(b, loc, to, from, uint32_t(size),
                          isGlobal ? NVVM::LoadCacheModifierKind::CG
                                   : NVVM::LoadCacheModifierKind::CA,
                          bytes);
  return success();
}

Value Raise::function(StringRef name, ValueRange x) {
  // Approximations become the functions themselves: the hardware's last bits
  // are its own. Flushing of denormals is not imitated.
  name.consume_back(".f32");
  name.consume_back(".f");
  name.consume_back(".ftz");
  auto divide = [&](Value a, Value by) -> Value {
    return LLVM::FDivOp::create(b, loc, a, by);
  };
  if (x.size() == 1) {
    if (name == "ex2.approx")
      return LLVM::Exp2Op::create(b, loc, x[0]);
    if (name == "lg2.approx")
      return LLVM::Log2Op::create(b, loc, x[0]);
    if (name == "sqrt.rn" || name == "sqrt.approx" || name == "sqrt")
      return LLVM::SqrtOp::create(b, loc, x[0]);
    if (name == "rcp.rn" || name == "rcp.approx")
      return divide(real(1), x[0]);
    if (name == "rsqrt.approx")
      return divide(real(1), LLVM::SqrtOp::create(b, loc, x[0]));
    if (name == "sin.approx")
      return LLVM::SinOp::create(b, loc, x[0]);
    if (name == "cos.approx")
      return LLVM::CosOp::create(b, loc, x[0]);
    if (name == "tanh.approx")
      return LLVM::TanhOp::create(b, loc, x[0]);
    if (name == "fabs" || name == "abs")
      return LLVM::FAbsOp::create(b, loc, x[0]);
    if (name == "neg")
      return LLVM::FNegOp::create(b, loc, x[0]);
  }
  if (x.size() == 2) {
    if (name == "div.full" || name == "div.approx" || name == "div.rn")
      return divide(x[0], x[1]);
    if (name == "add.rn" || name == "add")
      return LLVM::FAddOp::create(b, loc, x[0], x[1]);
    if (name == "sub.rn" || name == "sub")
      return LLVM::FSubOp::create(b, loc, x[0], x[1]);
    if (name == "mul.rn" || name == "mul")
      return LLVM::FMulOp::create(b, loc, x[0], x[1]);
    if (name == "fmax" || name == "max")
      return LLVM::MaxNumOp::create(b, loc, x[0], x[1]);
    if (name == "fmin" || name == "min")
      return LLVM::MinNumOp::create(b, loc, x[0], x[1]);
  }
  if (x.size() == 3 && name == "fma.rn")
    return LLVM::FMAOp::create(b, loc, x[0], x[1], x[2]);
  return Value();
}

Value Raise::packHalves(Type element, Value high, Value low) {
  auto bits = [&](Value value) -> Value {
    Value half = LLVM::FPTruncOp::create(b, loc, element, value);
    half = LLVM::BitcastOp::create(b, loc, b.getI16Type(), half);
    return LLVM::ZExtOp::create(b, loc, i32, half);
  };
  Value up = LLVM::ShlOp::create(b, loc, bits(high), constant(i32, 16));
  return LLVM::OrOp::create(b, loc, up, bits(low));
}
