// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Outliner.h"

#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Threads of a block that shares out iterations, and blocks of a
/// multiprocessor.
static constexpr int64_t kLoopThreads = 128, kLoopBlocksPerUnit = 8;

void Outliner::collect(Region &region, ValueRange operands) {
  llvm::SetVector<Value> used;
  getUsedValuesDefinedAbove(region, used);
  used.insert(operands.begin(), operands.end());
  for (Value value : used)
    addCapture(value);
}

void Outliner::addCapture(Value value) {
  Operation *definition = value.getDefiningOp();
  if (definition && matchPattern(definition, m_Constant())) {
    constants.push_back(definition);
    return;
  }
  if (!captures.insert(value))
    return;
  Type type = value.getType();
  if (isa<MemRefType>(type)) {
    addMemRef(value);
  } else if (type.isIndex()) {
    arguments.push_back(toI64(value));
  } else if (type.isInteger(1)) {
    arguments.push_back(arith::ExtUIOp::create(b, loc, b.getI32Type(), value));
  } else if (type.isBF16() || type.isF16()) {
    arguments.push_back(
        arith::BitcastOp::create(b, loc, b.getI16Type(), value));
  } else {
    arguments.push_back(value);
  }
}

/// The pointer, then what of sizes, strides and offset is not in the type.
void Outliner::addMemRef(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (type.getLayout().isIdentity()) {
    arguments.push_back(memref);
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (type.isDynamicDim(d))
        arguments.push_back(
            toI64(memref::DimOp::create(b, loc, memref, d).getResult()));
    return;
  }
  auto parts = memref::ExtractStridedMetadataOp::create(b, loc, memref);
  arguments.push_back(parts.getBaseBuffer());
  auto [strides, offset] = type.getStridesAndOffset();
  if (ShapedType::isDynamic(offset))
    arguments.push_back(toI64(parts.getOffset()));
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (type.isDynamicDim(d))
      arguments.push_back(toI64(parts.getSizes()[d]));
    if (ShapedType::isDynamic(strides[d]))
      arguments.push_back(toI64(parts.getStrides()[d]));
  }
}

/// The memref of the parameters from `next` on.
Value Outliner::rebuild(KernelBuilder &kernel, MemRefType type,
                        unsigned &next) {
  OpBuilder &inner = kernel.builder;
  Value pointer =
      kernel.make<LLVM::AddrSpaceCastOp>(kernel.generic, kernel.argument(next));
  ++next;
  auto constant = [&](int64_t value) { return kernel.wideNumber(value); };
  auto given = [&]() { return kernel.argument(next++); };
  auto [strides, offset] = type.getStridesAndOffset();
  bool isCompact = type.getLayout().isIdentity();
  Value start = ShapedType::isDynamic(offset) ? given() : constant(offset);
  SmallVector<Value> sizes, steps(type.getRank());
  for (int64_t d = 0; d < type.getRank(); ++d) {
    sizes.push_back(type.isDynamicDim(d) ? given()
                                         : constant(type.getDimSize(d)));
    if (!isCompact)
      steps[d] =
          ShapedType::isDynamic(strides[d]) ? given() : constant(strides[d]);
  }
  if (isCompact) {
    Value step = constant(1);
    for (int64_t d = type.getRank() - 1; d >= 0; --d) {
      steps[d] = step;
      step = kernel.mul(step, sizes[d]);
    }
  }
  auto descriptor =
      MemRefDescriptor::poison(inner, loc, converter.convertType(type));
  descriptor.setAllocatedPtr(inner, loc, pointer);
  descriptor.setAlignedPtr(inner, loc, pointer);
  descriptor.setOffset(inner, loc, start);
  for (int64_t d = 0; d < type.getRank(); ++d) {
    descriptor.setSize(inner, loc, d, sizes[d]);
    descriptor.setStride(inner, loc, d, steps[d]);
  }
  return UnrealizedConversionCastOp::create(inner, loc, type, Value(descriptor))
      .getResult(0);
}

void Outliner::enter(KernelBuilder &kernel, IRMapping &mapping) {
  for (Operation *constant : constants)
    if (!mapping.contains(constant->getResult(0)))
      kernel.builder.clone(*constant, mapping);
  unsigned next = 0;
  for (Value capture : captures) {
    Type type = capture.getType();
    if (auto memref = dyn_cast<MemRefType>(type)) {
      mapping.map(capture, rebuild(kernel, memref, next));
      continue;
    }
    Value value = kernel.argument(next++);
    if (type.isIndex())
      value = toIndex(kernel, value);
    else if (type.isInteger(1))
      value = kernel.make<arith::TruncIOp>(type, value);
    else if (type.isBF16() || type.isF16())
      value = kernel.make<arith::BitcastOp>(type, value);
    mapping.map(capture, value);
  }
}

static SmallVector<Type> parameterTypes(ValueRange arguments) {
  SmallVector<Type> types;
  for (Value argument : arguments)
    types.push_back(isa<MemRefType>(argument.getType())
                        ? Type(LLVM::LLVMPointerType::get(
                              argument.getContext(),
                              unsigned(NVVM::NVVMMemorySpace::Global)))
                        : argument.getType());
  return types;
}

/// One thread runs the iterations of a parallel loop inside another in turn.
static void makeSequential(scf::ParallelOp loop) {
  OpBuilder b(loop);
  SmallVector<Value> indices;
  for (unsigned d = 0; d < loop.getNumLoops(); ++d) {
    auto one = scf::ForOp::create(b, loop.getLoc(), loop.getLowerBound()[d],
                                  loop.getUpperBound()[d], loop.getStep()[d]);
    indices.push_back(one.getInductionVar());
    b.setInsertionPointToStart(one.getBody());
  }
  Block *body = b.getInsertionBlock();
  Block *inner = loop.getBody();
  inner->getTerminator()->erase();
  for (auto [argument, index] : llvm::zip(inner->getArguments(), indices))
    argument.replaceAllUsesWith(index);
  body->getOperations().splice(body->begin(), inner->getOperations());
  loop.erase();
}

void Outliner::outlineParallel(scf::ParallelOp loop) {
  SmallVector<Value> bounds;
  for (ValueRange values :
       {ValueRange(loop.getLowerBound()), ValueRange(loop.getUpperBound()),
        ValueRange(loop.getStep())})
    llvm::append_range(bounds, values);
  collect(loop.getRegion(), bounds);
  // 1. How many iterations, and blocks for them.
  Value total = index(1);
  for (unsigned d = 0; d < loop.getNumLoops(); ++d) {
    Value span = arith::SubIOp::create(b, loc, loop.getUpperBound()[d],
                                       loop.getLowerBound()[d]);
    span = arith::MaxSIOp::create(b, loc, span, index(0));
    Value trips = arith::CeilDivSIOp::create(b, loc, span, loop.getStep()[d]);
    total = arith::MulIOp::create(b, loc, total, trips);
  }
  addCapture(total);
  Value blocks = nv::ProcessorsOp::create(b, loc, b.getIndexType());
  blocks = arith::MulIOp::create(b, loc, blocks, index(kLoopBlocksPerUnit));
  Value needed = arith::CeilDivSIOp::create(b, loc, total, index(kLoopThreads));
  blocks = arith::MinSIOp::create(b, loc, blocks, needed);
  blocks = arith::MaxSIOp::create(b, loc, blocks, index(1));

  // 2. The kernel: iterations i, i + threads, ...
  std::string name = launches.makeName("loop");
  KernelBuilder kernel(launches.getModule(), name, parameterTypes(arguments),
                       {}, kLoopThreads);
  kernel.setLocation(loc);
  IRMapping mapping;
  enter(kernel, mapping);
  OpBuilder &inner = kernel.builder;
  auto wide = [&](Value value) { return toIndex(kernel, kernel.widen(value)); };
  Value width = kernel.make<arith::ConstantIndexOp>(kLoopThreads);
  Value first = kernel.make<arith::AddIOp>(
      kernel.make<arith::MulIOp>(wide(kernel.block()), width),
      wide(kernel.thread()));
  Value step = kernel.make<arith::MulIOp>(wide(kernel.blocks()), width);
  Value count = mapping.lookupOrDefault(total);
  auto own = kernel.make<scf::ForOp>(first, count, step);
  {
    OpBuilder::InsertionGuard guard(inner);
    inner.setInsertionPointToStart(own.getBody());
    // The last dimension is the fastest, so neighbours are side by side.
    Value rest = own.getInductionVar();
    for (unsigned i = loop.getNumLoops(); i-- > 0;) {
      Value lower = mapping.lookup(loop.getLowerBound()[i]);
      Value stride = mapping.lookup(loop.getStep()[i]);
      Value place = rest;
      if (i > 0) {
        Value span = kernel.make<arith::SubIOp>(
            mapping.lookup(loop.getUpperBound()[i]), lower);
        Value trips = kernel.make<arith::CeilDivSIOp>(span, stride);
        place = kernel.make<arith::RemUIOp>(rest, trips);
        rest = kernel.make<arith::DivUIOp>(rest, trips);
      }
      mapping.map(loop.getInductionVars()[i],
                  kernel.make<arith::AddIOp>(
                      lower, kernel.make<arith::MulIOp>(place, stride)));
    }
    for (Operation &inside : loop.getBody()->without_terminator())
      inner.clone(inside, mapping);
  }
  SmallVector<scf::ParallelOp> nested;
  own.walk([&](scf::ParallelOp parallel) { nested.push_back(parallel); });
  for (scf::ParallelOp parallel : nested)
    makeSequential(parallel);
  kernel.finish();
  launches.launchOn(b, loc, name, blocks, kLoopThreads, 0, arguments);
  loop.erase();
}

LogicalResult Outliner::outlineSerial() {
  // Results come back through memory, which the host then waits for.
  SmallVector<Value> places;
  for (Value result : op->getResults()) {
    if (!result.getType().isIntOrIndexOrFloat())
      return op->emitOpError("expected numbers as results on a GPU, got ")
             << result.getType();
    Value place =
        memref::AllocOp::create(b, loc, MemRefType::get({1}, result.getType()));
    places.push_back(place);
    addCapture(place);
  }
  for (Region &region : op->getRegions())
    collect(region, op->getOperands());
  if (op->getNumRegions() == 0)
    for (Value operand : op->getOperands())
      addCapture(operand);
  std::string name = launches.makeName("serial");
  KernelBuilder kernel(launches.getModule(), name, parameterTypes(arguments),
                       {}, /*threads=*/1);
  kernel.setLocation(loc);
  IRMapping mapping;
  enter(kernel, mapping);
  Operation *copy = kernel.builder.clone(*op, mapping);
  for (auto [result, place] : llvm::zip(copy->getResults(), places))
    kernel.make<memref::StoreOp>(
        result, mapping.lookup(place),
        ValueRange{kernel.make<arith::ConstantIndexOp>(0)});
  kernel.finish();
  launches.launchOn(b, loc, name, index(1), /*threads=*/1, 0, arguments);
  for (auto [result, place] : llvm::zip(op->getResults(), places))
    result.replaceAllUsesWith(
        memref::LoadOp::create(b, loc, place, ValueRange{index(0)})
            .getResult());
  op->erase();
  return success();
}
