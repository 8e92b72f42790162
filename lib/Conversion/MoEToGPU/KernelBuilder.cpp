// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelBuilder.h"

#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// One external array of no elements: it becomes `.extern .shared`. Upstream's
/// gpu.dynamic_shared_memory becomes an internal one, which ptxas places over
/// static shared memory.
static constexpr StringLiteral sharedName = "moira_shared";

KernelBuilder::KernelBuilder(gpu::GPUModuleOp module, StringRef name,
                             ArrayRef<Type> parameters, ArrayRef<bool> byValue,
                             int64_t threads)
    : builder(module.getContext()), module(module), location(module.getLoc()) {
  MLIRContext *context = module.getContext();
  i1 = builder.getI1Type();
  i16 = builder.getI16Type();
  i32 = builder.getI32Type();
  i64 = builder.getI64Type();
  f32 = builder.getF32Type();
  global = LLVM::LLVMPointerType::get(context,
                                      unsigned(NVVM::NVVMMemorySpace::Global));
  shared = LLVM::LLVMPointerType::get(context,
                                      unsigned(NVVM::NVVMMemorySpace::Shared));
  generic = LLVM::LLVMPointerType::get(context);

  builder.setInsertionPointToEnd(module.getBody());
  function = LLVM::LLVMFuncOp::create(
      builder, location, name,
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context),
                                  SmallVector<Type>(parameters)));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                    builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                    builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                    builder.getDenseI32ArrayAttr({int32_t(threads), 1, 1}));
  function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                    builder.getI32IntegerAttr(1));
  auto mapType = LLVM::LLVMArrayType::get(builder.getI8Type(), 128);
  for (auto [i, isMap] : llvm::enumerate(byValue)) {
    if (!isMap)
      continue;
    function.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                        TypeAttr::get(mapType));
    function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                        builder.getI64IntegerAttr(64));
    function.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(),
                        builder.getUnitAttr());
  }
  builder.setInsertionPointToStart(function.addEntryBlock(builder));
}

Location KernelBuilder::position(const char *file, unsigned line) {
  return FileLineColLoc::get(builder.getContext(),
                             llvm::sys::path::filename(file), line, 1);
}

void KernelBuilder::finish() {
  LLVM::ReturnOp::create(builder, location, ValueRange());
}

//===----------------------------------------------------------------------===//
// Constants and integers
//===----------------------------------------------------------------------===//

Value KernelBuilder::number(int64_t value) {
  return arith::ConstantIntOp::create(builder, location, i32, value);
}

Value KernelBuilder::wideNumber(int64_t value) {
  return arith::ConstantIntOp::create(builder, location, i64, value);
}

Value KernelBuilder::like(int64_t value, Value other) {
  return arith::ConstantIntOp::create(builder, location, other.getType(),
                                      value);
}

Value KernelBuilder::zero(Type type) {
  return arith::ConstantOp::create(builder, location,
                                   builder.getZeroAttr(type));
}

Value KernelBuilder::add(Value a, Value b) { return make<arith::AddIOp>(a, b); }
Value KernelBuilder::sub(Value a, Value b) { return make<arith::SubIOp>(a, b); }
Value KernelBuilder::mul(Value a, Value b) { return make<arith::MulIOp>(a, b); }

Value KernelBuilder::div(Value a, int64_t b) {
  return b == 1 ? a : make<arith::DivUIOp>(a, like(b, a)).getResult();
}

Value KernelBuilder::rem(Value a, int64_t b) {
  return make<arith::RemUIOp>(a, like(b, a));
}

Value KernelBuilder::bitXor(Value a, Value b) {
  return make<arith::XOrIOp>(a, b);
}

Value KernelBuilder::bitAnd(Value a, Value b) {
  return make<arith::AndIOp>(a, b);
}

Value KernelBuilder::bitOr(Value a, Value b) {
  return make<arith::OrIOp>(a, b);
}

Value KernelBuilder::shiftRight(Value a, int64_t bits) {
  return make<arith::ShRUIOp>(a, like(bits, a));
}

Value KernelBuilder::minimum(Value a, Value b) {
  return make<arith::MinSIOp>(a, b);
}

Value KernelBuilder::maximum(Value a, Value b) {
  return make<arith::MaxSIOp>(a, b);
}

Value KernelBuilder::compare(Predicate predicate, Value a, Value b) {
  return make<arith::CmpIOp>(predicate, a, b);
}

Value KernelBuilder::select(Value condition, Value a, Value b) {
  return make<arith::SelectOp>(condition, a, b);
}

Value KernelBuilder::widen(Value value) {
  return make<arith::ExtSIOp>(i64, value);
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

void KernelBuilder::when(Value condition, function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(builder);
  auto op = scf::IfOp::create(builder, location, condition,
                              /*withElseRegion=*/false);
  builder.setInsertionPointToStart(op.thenBlock());
  body();
}

SmallVector<Value>
KernelBuilder::choose(Value condition, TypeRange types,
                      function_ref<SmallVector<Value>()> yes,
                      function_ref<SmallVector<Value>()> no) {
  OpBuilder::InsertionGuard guard(builder);
  auto op = scf::IfOp::create(builder, location, types, condition,
                              /*withElseRegion=*/true);
  // Without results the regions come with a terminator.
  if (types.empty())
    for (Block *block : {op.thenBlock(), op.elseBlock()})
      block->getTerminator()->erase();
  builder.setInsertionPointToStart(op.thenBlock());
  SmallVector<Value> results = yes();
  scf::YieldOp::create(builder, location, results);
  builder.setInsertionPointToStart(op.elseBlock());
  results = no();
  scf::YieldOp::create(builder, location, results);
  return SmallVector<Value>(op.getResults());
}

SmallVector<Value>
KernelBuilder::loop(Value end, ValueRange start,
                    function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  OpBuilder::InsertionGuard guard(builder);
  auto op = scf::ForOp::create(builder, location, like(0, end), end,
                               like(1, end), start);
  Block *block = op.getBody();
  if (start.empty())
    block->getTerminator()->erase();
  builder.setInsertionPointToEnd(block);
  SmallVector<Value> carried =
      body(op.getInductionVar(), op.getRegionIterArgs());
  scf::YieldOp::create(builder, location, carried);
  return SmallVector<Value>(op.getResults());
}

SmallVector<Value>
KernelBuilder::loopWhile(ValueRange start,
                         function_ref<SmallVector<Value>(ValueRange)> condition,
                         function_ref<SmallVector<Value>(ValueRange)> body) {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<Type> types(start.getTypes());
  SmallVector<Location> locations(types.size(), location);
  auto op = scf::WhileOp::create(builder, location, types, start);
  Block *before = builder.createBlock(&op.getBefore(), {}, types, locations);
  SmallVector<Value> values = condition(before->getArguments());
  scf::ConditionOp::create(builder, location, values.front(),
                           ValueRange(values).drop_front());
  Block *after = builder.createBlock(&op.getAfter(), {}, types, locations);
  values = body(after->getArguments());
  scf::YieldOp::create(builder, location, values);
  return SmallVector<Value>(op.getResults());
}

//===----------------------------------------------------------------------===//
// Memory and threads
//===----------------------------------------------------------------------===//

Value KernelBuilder::at(Value base, Value offset) {
  return LLVM::GEPOp::create(builder, location, base.getType(),
                             builder.getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{offset});
}

Value KernelBuilder::at(Value base, int64_t offset) {
  if (offset == 0)
    return base;
  return LLVM::GEPOp::create(builder, location, base.getType(),
                             builder.getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(offset)});
}

Value KernelBuilder::load(Value address, Type type, const char *file,
                          unsigned line) {
  return LLVM::LoadOp::create(builder, position(file, line), type, address);
}

void KernelBuilder::store(Value value, Value address, const char *file,
                          unsigned line) {
  LLVM::StoreOp::create(builder, position(file, line), value, address);
}

Value KernelBuilder::dynamicShared() {
  auto found = module.lookupSymbol<LLVM::GlobalOp>(sharedName);
  if (!found) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    found = LLVM::GlobalOp::create(
        builder, location, LLVM::LLVMArrayType::get(builder.getI8Type(), 0),
        /*isConstant=*/false, LLVM::Linkage::External, sharedName, Attribute(),
        /*alignment=*/1024, unsigned(NVVM::NVVMMemorySpace::Shared));
  }
  return LLVM::AddressOfOp::create(builder, location, found);
}

Value KernelBuilder::thread() { return make<NVVM::ThreadIdXOp>(i32); }
Value KernelBuilder::block() { return make<NVVM::BlockIdXOp>(i32); }
Value KernelBuilder::blocks() { return make<NVVM::GridDimXOp>(i32); }

void KernelBuilder::barrier(const char *file, unsigned line) {
  NVVM::Barrier0Op::create(builder, position(file, line));
}
