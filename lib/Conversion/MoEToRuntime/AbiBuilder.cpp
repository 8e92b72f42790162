// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AbiBuilder.h"

#include "moira/abi.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::moe;

StringRef mlir::moe::getKind(func::FuncOp function) {
  auto kind = function->getAttrOfType<StringAttr>(kKindAttrName);
  return kind ? kind.getValue() : StringRef();
}

Value mlir::moe::getWorker(ImplicitLocOpBuilder &b, func::FuncOp function) {
  if (getKind(function) == "body")
    return function.getArgument(3);
  return AbiBuilder::i64(b, 0);
}

static Type pointerType(ImplicitLocOpBuilder &b) {
  return LLVM::LLVMPointerType::get(b.getContext());
}

Value AbiBuilder::i64(ImplicitLocOpBuilder &b, int64_t value) {
  return LLVM::ConstantOp::create(b, b.getI64Type(), value);
}

Value AbiBuilder::toI64(ImplicitLocOpBuilder &b, Value index) {
  if (index.getType().isInteger(64))
    return index;
  return arith::IndexCastOp::create(b, b.getI64Type(), index);
}

Value AbiBuilder::at(ImplicitLocOpBuilder &b, Value pointer, int64_t bytes) {
  if (bytes == 0)
    return pointer;
  return LLVM::GEPOp::create(
      b, pointerType(b), b.getI8Type(), pointer,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
}

Value AbiBuilder::loadField(ImplicitLocOpBuilder &b, Value pointer,
                            int64_t bytes, Type type) {
  return LLVM::LoadOp::create(b, type, at(b, pointer, bytes));
}

void AbiBuilder::storeField(ImplicitLocOpBuilder &b, Value pointer,
                            int64_t bytes, Value value) {
  LLVM::StoreOp::create(b, value, at(b, pointer, bytes));
}

Value AbiBuilder::call(size_t offset, Type resultType, ValueRange arguments) {
  Value api = loadField(b, context, offsetof(moira_ctx, api), pointerType(b));
  Value function =
      loadField(b, api, static_cast<int64_t>(offset), pointerType(b));
  auto type = LLVM::LLVMFunctionType::get(
      resultType ? resultType : LLVM::LLVMVoidType::get(b.getContext()),
      llvm::to_vector(arguments.getTypes()));
  SmallVector<Value> operands{function};
  llvm::append_range(operands, arguments);
  auto op = LLVM::CallOp::create(b, type, operands);
  return resultType ? op.getResult() : Value();
}

Value AbiBuilder::alloc(Value worker, Value bytes) {
  return call(offsetof(moira_api, alloc), pointerType(b),
              {context, worker, toI64(b, bytes)});
}

Value AbiBuilder::mark(Value worker) {
  return call(offsetof(moira_api, mark), b.getI64Type(), {context, worker});
}

void AbiBuilder::release(Value worker, Value mark) {
  call(offsetof(moira_api, release), Type(), {context, worker, mark});
}

Value AbiBuilder::result(int64_t index, ValueRange sizes) {
  Value shape =
      entryAlloca(b, b.getI64Type(), std::max<size_t>(1, sizes.size()));
  for (auto [d, size] : llvm::enumerate(sizes))
    LLVM::StoreOp::create(b, toI64(b, size),
                          at(b, shape, static_cast<int64_t>(d) * 8));
  return call(offsetof(moira_api, result), pointerType(b),
              {context, i64(b, index), i64(b, sizes.size()), shape});
}

void AbiBuilder::parallelFor(Value body, Value captures, Value n,
                             int64_t cost) {
  call(offsetof(moira_api, parallel_for), Type(),
       {context, body, captures, toI64(b, n), i64(b, cost)});
}

void AbiBuilder::enter(Value layer, Value part) {
  call(offsetof(moira_api, enter), Type(), {context, layer, part});
}

void AbiBuilder::loads(Value layer, Value experts, Value counts, Value sizes) {
  call(offsetof(moira_api, loads), Type(),
       {context, layer, toI64(b, experts), counts, sizes});
}

Value AbiBuilder::chunks(int64_t layer, int64_t schedule) {
  return call(offsetof(moira_api, chunks), b.getI64Type(),
              {context, i64(b, layer), i64(b, schedule)});
}

void AbiBuilder::allGather(Value mine, Value bytes, Value all) {
  call(offsetof(moira_api, all_gather), Type(),
       {context, mine, toI64(b, bytes), all});
}

void AbiBuilder::gatherCounts(int64_t layer, int64_t experts, Value counts,
                              Value matrix) {
  call(offsetof(moira_api, gather_counts), Type(),
       {context, i64(b, layer), i64(b, experts), counts, matrix});
}

Value AbiBuilder::receiveSizes(Value exchange, Value groups) {
  return call(offsetof(moira_api, receive_sizes), b.getI64Type(),
              {context, exchange, groups});
}

Value AbiBuilder::exchange(Value exchange) {
  return call(offsetof(moira_api, exchange), b.getI64Type(),
              {context, exchange});
}

Value AbiBuilder::gatherWeights(Value gather) {
  return call(offsetof(moira_api, gather_weights), b.getI64Type(),
              {context, gather});
}

Value AbiBuilder::allReduce(Value in, Value out, Value count, int64_t dtype) {
  Value type = LLVM::ConstantOp::create(b, b.getI32Type(), dtype);
  return call(offsetof(moira_api, all_reduce), b.getI64Type(),
              {context, in, out, toI64(b, count), type});
}

Value AbiBuilder::reduceWeights(Value reduce) {
  return call(offsetof(moira_api, reduce_weights), b.getI64Type(),
              {context, reduce});
}

void AbiBuilder::mergeRows(Value exchange) {
  call(offsetof(moira_api, merge_rows), Type(), {context, exchange});
}

void AbiBuilder::wait(Value ticket) {
  call(offsetof(moira_api, wait), Type(), {context, toI64(b, ticket)});
}

Value AbiBuilder::deviceField(size_t offset, Type type) {
  Value device =
      loadField(b, context, offsetof(moira_ctx, queues), pointerType(b));
  return loadField(b, device, static_cast<int64_t>(offset), type);
}

void AbiBuilder::callDevice(size_t offset, ValueRange arguments) {
  SmallVector<Value> operands{deviceField(offset, pointerType(b)), context};
  llvm::append_range(operands, arguments);
  SmallVector<Type> types;
  for (Value operand : llvm::drop_begin(operands))
    types.push_back(operand.getType());
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), types);
  LLVM::CallOp::create(b, type, operands);
}

Value AbiBuilder::rank() {
  return loadField(b, context, offsetof(moira_ctx, rank), b.getI32Type());
}

Value AbiBuilder::workers() {
  return loadField(b, context, offsetof(moira_ctx, workers), b.getI32Type());
}

Value AbiBuilder::slotTable(int64_t position) {
  Value plans =
      loadField(b, context, offsetof(moira_ctx, plan), pointerType(b));
  return loadField(b, plans,
                   position * sizeof(moira_plan) +
                       offsetof(moira_plan, slot_table),
                   pointerType(b));
}

Value AbiBuilder::parameter(int64_t index) {
  Value table =
      loadField(b, context, offsetof(moira_ctx, params), pointerType(b));
  return loadField(b, table,
                   index * sizeof(moira_param) + offsetof(moira_param, data),
                   pointerType(b));
}

Value AbiBuilder::memref(ImplicitLocOpBuilder &b,
                         const LLVMTypeConverter &converter, MemRefType type,
                         Value data, ValueRange dynamicSizes) {
  auto descriptor =
      MemRefDescriptor::poison(b, b.getLoc(), converter.convertType(type));
  descriptor.setAllocatedPtr(b, b.getLoc(), data);
  descriptor.setAlignedPtr(b, b.getLoc(), data);
  descriptor.setConstantOffset(b, b.getLoc(), 0);
  SmallVector<Value> sizes;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (type.isDynamicDim(d)) {
      sizes.push_back(toI64(b, dynamicSizes.front()));
      dynamicSizes = dynamicSizes.drop_front();
    } else {
      sizes.push_back(i64(b, type.getDimSize(d)));
    }
  Value stride = i64(b, 1);
  for (int64_t d = type.getRank() - 1; d >= 0; --d) {
    descriptor.setSize(b, b.getLoc(), d, sizes[d]);
    descriptor.setStride(b, b.getLoc(), d, stride);
    if (d > 0)
      stride = LLVM::MulOp::create(b, stride, sizes[d]);
  }
  return UnrealizedConversionCastOp::create(b, type, Value(descriptor))
      .getResult(0);
}

Value AbiBuilder::dataPointer(ImplicitLocOpBuilder &b,
                              const LLVMTypeConverter &converter,
                              Value memref) {
  Value descriptor = UnrealizedConversionCastOp::create(
                         b, converter.convertType(memref.getType()), memref)
                         .getResult(0);
  return MemRefDescriptor(descriptor)
      .bufferPtr(b, b.getLoc(), converter, cast<MemRefType>(memref.getType()));
}

Value AbiBuilder::entryAlloca(ImplicitLocOpBuilder &b, Type type, int64_t count,
                              int64_t alignment) {
  OpBuilder::InsertionGuard guard(b);
  auto function = b.getInsertionBlock()->getParentOp();
  if (!isa<func::FuncOp>(function))
    function = function->getParentOfType<func::FuncOp>();
  b.setInsertionPointToStart(&cast<func::FuncOp>(function).front());
  return LLVM::AllocaOp::create(b, pointerType(b), type, i64(b, count),
                                alignment);
}
