// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "WorkspaceBound.h"

#include "AbiBuilder.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::moe;

int64_t mlir::moe::getElementBytes(Type element) {
  if (element.isIndex())
    return 8;
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

int64_t mlir::moe::getStaticBytes(MemRefType type) {
  int64_t bytes = getElementBytes(type.getElementType());
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      bytes *= size;
  return bytes;
}

namespace {

/// Builds upper bounds of index values of a step in another function that knows
/// only the shapes of the inputs. Sizes are never negative, so sums, products,
/// minima and maxima of bounds are bounds.
class BoundBuilder {
public:
  BoundBuilder(ImplicitLocOpBuilder &builder, func::FuncOp step, Value inputs)
      : b(builder), step(step), inputs(inputs) {}

  /// The bound of a dim of `memref`, or null when none is known.
  Value boundDim(Value memref, int64_t dim) { return buildDim(memref, dim); }
  /// The bound of `value` (i64), or null when none is known.
  Value bound(Value value) {
    auto [it, inserted] = known.try_emplace(value);
    if (inserted) {
      Value built = build(value);
      known[value] = built;
      return built;
    }
    return it->second;
  }

private:
  Value build(Value value);
  /// `value` itself, computed again, of its own type; null where that takes
  /// more than shapes.
  Value copy(Value value);
  Value buildDim(Value memref, int64_t dim);
  /// The bytes of the `argument`-th input or, of a tensor, its sizes.
  Value loadInput(unsigned argument, int64_t field);
  Value combine(StringRef name, Value lhs, Value rhs) {
    if (!lhs || !rhs)
      return {};
    OperationState state(b.getLoc(), name, {lhs, rhs}, {b.getI64Type()}, {});
    return b.create(state)->getResult(0);
  }

  ImplicitLocOpBuilder &b;
  func::FuncOp step;
  Value inputs;
  llvm::DenseMap<Value, Value> known;
};

} // namespace

Value BoundBuilder::buildDim(Value memref, int64_t dim) {
  auto type = cast<MemRefType>(memref.getType());
  if (!type.isDynamicDim(dim))
    return AbiBuilder::i64(b, type.getDimSize(dim));
  if (auto alloc = memref.getDefiningOp<memref::AllocOp>())
    return bound(alloc.getDynamicSizes()[type.getDynamicDimIndex(dim)]);
  if (auto cast = memref.getDefiningOp<memref::CastOp>())
    return buildDim(cast.getSource(), dim);
  if (auto view = memref.getDefiningOp<memref::SubViewOp>()) {
    if (view.getType().getRank() != view.getSourceType().getRank())
      return {};
    OpFoldResult size = view.getMixedSizes()[dim];
    if (auto dynamic = dyn_cast<Value>(size))
      return bound(dynamic);
    return AbiBuilder::i64(b, *getConstantIntValue(size));
  }
  auto argument = dyn_cast<BlockArgument>(memref);
  if (!argument || argument.getOwner() != &step.front())
    return {};
  Value shape =
      loadInput(argument.getArgNumber(), offsetof(moira_buffer, shape));
  return AbiBuilder::loadField(b, shape, dim * 8, b.getI64Type());
}

Value BoundBuilder::loadInput(unsigned argument, int64_t field) {
  // Inputs are numbered without the context and the parameters.
  int64_t input = 0;
  for (unsigned i = 1; i < argument; ++i)
    if (!step.getArgAttr(i, kParamAttrName))
      ++input;
  return AbiBuilder::loadField(b, inputs, input * sizeof(moira_buffer) + field,
                               LLVM::LLVMPointerType::get(b.getContext()));
}

/// A dim of an input or a constant one: known, and not only bounded.
static bool isExactDim(memref::DimOp dim) {
  std::optional<int64_t> index = dim.getConstantIndex();
  auto type = dyn_cast<MemRefType>(dim.getSource().getType());
  return index && type &&
         (!type.isDynamicDim(*index) || isa<BlockArgument>(dim.getSource()));
}

Value BoundBuilder::copy(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() != 0 || op->getNumResults() != 1 ||
      !value.getType().isIntOrIndexOrFloat())
    return {};
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    Value size = isExactDim(dim) ? bound(value) : Value();
    return size ? arith::IndexCastOp::create(b, value.getType(), size)
                : Value();
  }
  if (!isPure(op))
    return {};
  IRMapping operands;
  for (Value operand : op->getOperands()) {
    Value copied = copy(operand);
    if (!copied)
      return {};
    operands.map(operand, copied);
  }
  return b.clone(*op, operands)->getResult(0);
}

Value BoundBuilder::build(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return AbiBuilder::i64(b, constant.getSExtValue());
  Operation *op = value.getDefiningOp();
  if (!op) {
    // A number among the inputs, which is given with its value.
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &step.front() ||
        !value.getType().isIndex())
      return {};
    Value data =
        loadInput(argument.getArgNumber(), offsetof(moira_buffer, data));
    return AbiBuilder::loadField(b, data, 0, b.getI64Type());
  }
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    std::optional<int64_t> index = dim.getConstantIndex();
    return index ? buildDim(dim.getSource(), *index) : Value();
  }
  if (isa<arith::AddIOp, arith::MulIOp, arith::MaxSIOp, arith::MaxUIOp>(op)) {
    StringRef name = op->getName().getStringRef();
    return combine(name, bound(op->getOperand(0)), bound(op->getOperand(1)));
  }
  if (isa<arith::MinSIOp, arith::MinUIOp>(op)) {
    Value lhs = bound(op->getOperand(0)), rhs = bound(op->getOperand(1));
    if (!lhs || !rhs)
      return lhs ? lhs : rhs;
    return combine("arith.minsi", lhs, rhs);
  }
  if (isa<arith::SubIOp>(op)) // what is subtracted is not negative
    return bound(op->getOperand(0));
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::CeilDivSIOp,
          arith::CeilDivUIOp, arith::FloorDivSIOp>(op)) {
    Value lhs = bound(op->getOperand(0));
    APInt divisor;
    if (!lhs || !matchPattern(op->getOperand(1), m_ConstantInt(&divisor)) ||
        !divisor.isStrictlyPositive())
      return lhs;
    return combine(op->getName().getStringRef(), lhs,
                   AbiBuilder::i64(b, divisor.getSExtValue()));
  }
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp,
          arith::ExtUIOp>(op))
    return bound(op->getOperand(0));
  if (auto select = dyn_cast<arith::SelectOp>(op))
    if (Value most = combine("arith.maxsi", bound(select.getTrueValue()),
                             bound(select.getFalseValue())))
      return most;
  // A formula with real numbers, such as a capacity.
  Value copied = copy(value);
  if (copied && copied.getType().isIndex())
    return arith::IndexCastOp::create(b, b.getI64Type(), copied);
  return copied && copied.getType().isInteger(64) ? copied : Value();
}

memref::AllocOp mlir::moe::findResultMemory(func::FuncOp step, Value value) {
  while (auto cast = value.getDefiningOp<memref::CastOp>())
    value = cast.getSource();
  auto alloc = value.getDefiningOp<memref::AllocOp>();
  if (!alloc || alloc->getBlock() != &step.front() ||
      !alloc.getType().getLayout().isIdentity())
    return {};
  return alloc;
}

/// The arena aligns every allocation to so many bytes.
static constexpr int64_t kAlignment = 64;

/// The most that one run of a body of the step's parallel loops allocates; it
/// is released when the body ends. Nothing when that depends on shapes.
static std::optional<int64_t> findLargestBody(func::FuncOp step) {
  int64_t most = 0;
  bool known = true;
  step.walk([&](func::ConstantOp constant) {
    auto body = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        step, constant.getValueAttr());
    if (!body || getKind(body) != "body")
      return;
    int64_t bytes = 0;
    body.walk([&](memref::AllocOp alloc) {
      known &= alloc.getDynamicSizes().empty();
      bytes += llvm::alignTo(getStaticBytes(alloc.getType()), kAlignment);
    });
    most = std::max(most, bytes);
  });
  return known ? std::optional(most) : std::nullopt;
}

/// Memory of results: it will be the caller's, and no part of the workspace.
static llvm::SmallPtrSet<Operation *, 8> findResults(func::FuncOp step) {
  llvm::SmallPtrSet<Operation *, 8> results;
  for (Value value : step.front().getTerminator()->getOperands())
    if (memref::AllocOp alloc = findResultMemory(step, value))
      results.insert(alloc);
  return results;
}

void mlir::moe::emitWorkspaceBound(func::FuncOp step, StringRef name) {
  auto module = step->getParentOfType<ModuleOp>();
  ImplicitLocOpBuilder b(step.getLoc(), step.getContext());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(
      b, name, b.getFunctionType({pointer, pointer}, {b.getI64Type()}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  BoundBuilder bounds(b, step, entry->getArgument(1));
  std::optional<int64_t> bodies = findLargestBody(step);
  bool unknown = !bodies;
  Value total = AbiBuilder::i64(b, bodies.value_or(0));
  llvm::SmallPtrSet<Operation *, 8> results = findResults(step);
  step.walk([&](memref::AllocOp alloc) {
    if (results.contains(alloc))
      return;
    Value bytes = AbiBuilder::i64(b, getStaticBytes(alloc.getType()));
    for (Value size : alloc.getDynamicSizes()) {
      Value bound = bounds.bound(size);
      unknown |= !bound;
      if (bound)
        bytes = arith::MulIOp::create(b, bytes, bound);
    }
    bytes = arith::AddIOp::create(b, bytes, AbiBuilder::i64(b, kAlignment - 1));
    bytes = arith::AndIOp::create(b, bytes, AbiBuilder::i64(b, -kAlignment));
    total = arith::AddIOp::create(b, total, bytes);
  });
  if (unknown)
    total = AbiBuilder::i64(b, -1);
  func::ReturnOp::create(b, total);
}

void mlir::moe::emitShapeBounds(func::FuncOp step, StringRef name) {
  auto module = step->getParentOfType<ModuleOp>();
  ImplicitLocOpBuilder b(step.getLoc(), step.getContext());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(
      b, name, b.getFunctionType({pointer, pointer, pointer}, {}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  BoundBuilder bounds(b, step, entry->getArgument(1));
  int64_t place = 0;
  auto store = [&](Value bound) {
    AbiBuilder::storeField(b, entry->getArgument(2), 8 * place++,
                           bound ? bound : AbiBuilder::i64(b, -1));
  };
  for (Value result : step.front().getTerminator()->getOperands()) {
    auto type = dyn_cast<MemRefType>(result.getType());
    if (!type)
      store(result.getType().isIndex() ? bounds.bound(result) : Value());
    for (int64_t d = 0; type && d < type.getRank(); ++d)
      store(bounds.boundDim(result, d));
  }
  func::ReturnOp::create(b);
}
