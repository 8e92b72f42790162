// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DeviceCalls.h"

#include "AbiBuilder.h"
#include "WorkspaceBound.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/NV/IR/NVDialect.h"
#include "moira/device_abi.h"

#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::moe;

namespace {
class DeviceLowering {
public:
  DeviceLowering(func::FuncOp step, const LLVMTypeConverter &converter,
                 const KernelTable &kernels)
      : step(step), converter(converter), kernels(kernels),
        b(step.getLoc(), step.getContext()), abi(b, step.getArgument(0)) {}

  LogicalResult run();

private:
  void lower(nv::ProcessorsOp op) {
    lowerField(op, offsetof(moira_device, processors));
  }
  void lower(nv::ArchitectureOp op) {
    lowerField(op, offsetof(moira_device, architecture));
  }
  /// A number of the device.
  void lowerField(Operation *op, size_t offset);
  void lower(nv::TensorMapOp op);
  LogicalResult lower(nv::LaunchOp op);
  void lower(memref::LoadOp op);
  void lower(memref::StoreOp op);
  void lower(memref::CopyOp op);

  Type pointer() { return LLVM::LLVMPointerType::get(b.getContext()); }
  Value elementPointer(Value memref, ValueRange indices);
  /// The size of a dim, as i64.
  Value size(Value memref, int64_t dim) {
    return AbiBuilder::toI64(b,
                             memref::DimOp::create(b, memref, dim).getResult());
  }

  func::FuncOp step;
  const LLVMTypeConverter &converter;
  const KernelTable &kernels;
  ImplicitLocOpBuilder b;
  AbiBuilder abi;
  llvm::DenseMap<Value, Value> maps; ///< of tensor maps, their memory
};
} // namespace

void DeviceLowering::lowerField(Operation *op, size_t offset) {
  Value number = abi.deviceField(offset, b.getI32Type());
  op->getResult(0).replaceAllUsesWith(
      arith::IndexCastOp::create(b, b.getIndexType(), number).getResult());
}

void DeviceLowering::lower(nv::TensorMapOp op) {
  auto type = cast<MemRefType>(op.getSource().getType());
  int64_t rank = type.getRank();
  Value box =
      AbiBuilder::entryAlloca(b, b.getI64Type(), sizeof(moira_tensor_box) / 8);
  auto put = [&](size_t offset, Value value) {
    AbiBuilder::storeField(b, box, static_cast<int64_t>(offset), value);
  };
  auto small = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(b, b.getI32Type(), value);
  };
  put(offsetof(moira_tensor_box, base),
      AbiBuilder::dataPointer(b, converter, op.getSource()));
  put(offsetof(moira_tensor_box, rank), small(rank));
  put(offsetof(moira_tensor_box, is_float16),
      small(type.getElementType().isF16()));
  for (int64_t i = 0; i < rank; ++i) {
    put(offsetof(moira_tensor_box, sizes) + i * 8,
        size(op.getSource(), rank - 1 - i));
    put(offsetof(moira_tensor_box, box) + i * 8,
        AbiBuilder::i64(b, op.getBox()[rank - 1 - i]));
  }
  // Kernels take it by value from memory aligned to 64 bytes.
  Value map = AbiBuilder::entryAlloca(b, b.getI8Type(), MOIRA_TENSOR_MAP_BYTES,
                                      /*alignment=*/64);
  abi.callDevice(offsetof(moira_device, encode), {box, map});
  maps[op.getMap()] = map;
}

LogicalResult DeviceLowering::lower(nv::LaunchOp op) {
  int64_t kernel = kernels.find(op.getKernel());
  if (kernel < 0)
    return op.emitOpError("expected a kernel of the module, got ")
           << op.getKernel();
  OperandRange given = op.getArguments();
  Value arguments =
      AbiBuilder::entryAlloca(b, pointer(), std::max<size_t>(1, given.size()));
  for (auto [i, argument] : llvm::enumerate(given)) {
    Value place = maps.lookup(argument);
    if (!place) {
      Value value = argument;
      if (isa<MemRefType>(argument.getType()))
        value = AbiBuilder::dataPointer(b, converter, argument);
      place = AbiBuilder::entryAlloca(b, value.getType(), 1);
      LLVM::StoreOp::create(b, value, place);
    }
    AbiBuilder::storeField(b, arguments, int64_t(i) * 8, place);
  }
  Value base = LLVM::LoadOp::create(
      b, b.getI64Type(),
      LLVM::AddressOfOp::create(b, pointer(), kKernelBaseName));
  Value number = LLVM::AddOp::create(b, base, AbiBuilder::i64(b, kernel));
  abi.callDevice(offsetof(moira_device, launch),
                 {number, AbiBuilder::toI64(b, op.getGrid()), arguments});
  return success();
}

Value DeviceLowering::elementPointer(Value memref, ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  Value descriptor =
      UnrealizedConversionCastOp::create(b, converter.convertType(type), memref)
          .getResult(0);
  SmallVector<Value> wide;
  for (Value index : indices)
    wide.push_back(AbiBuilder::toI64(b, index));
  return LLVM::getStridedElementPtr(b, b.getLoc(), converter, type, descriptor,
                                    wide);
}

void DeviceLowering::lower(memref::LoadOp op) {
  // One byte for i1, as everywhere.
  Type type = converter.convertType(op.getType());
  Value place = AbiBuilder::entryAlloca(b, type, 1);
  abi.callDevice(offsetof(moira_device, read),
                 {place, elementPointer(op.getMemRef(), op.getIndices()),
                  AbiBuilder::i64(b, getElementBytes(op.getType()))});
  Value value = LLVM::LoadOp::create(b, type, place);
  if (value.getType() != op.getType())
    value = arith::IndexCastOp::create(b, op.getType(), value);
  op.replaceAllUsesWith(value);
}

void DeviceLowering::lower(memref::StoreOp op) {
  Value value = op.getValueToStore();
  if (value.getType().isIndex())
    value = AbiBuilder::toI64(b, value);
  Value place = AbiBuilder::entryAlloca(b, value.getType(), 1);
  LLVM::StoreOp::create(b, value, place);
  abi.callDevice(
      offsetof(moira_device, write),
      {elementPointer(op.getMemRef(), op.getIndices()), place,
       AbiBuilder::i64(b, getElementBytes(op.getValueToStore().getType()))});
}

void DeviceLowering::lower(memref::CopyOp op) {
  auto type = cast<MemRefType>(op.getSource().getType());
  Value bytes = AbiBuilder::i64(b, getStaticBytes(type));
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (type.isDynamicDim(d))
      bytes = LLVM::MulOp::create(b, bytes, size(op.getSource(), d));
  bool isConstant = op.getSource().getDefiningOp<memref::GetGlobalOp>();
  abi.callDevice(
      isConstant ? offsetof(moira_device, write) : offsetof(moira_device, copy),
      {AbiBuilder::dataPointer(b, converter, op.getTarget()),
       AbiBuilder::dataPointer(b, converter, op.getSource()), bytes});
}

/// Whether `op` accesses memory that stays with the host.
static bool isOnHost(Operation *op) {
  Value memref;
  if (auto load = dyn_cast<memref::LoadOp>(op))
    memref = load.getMemRef();
  else if (auto store = dyn_cast<memref::StoreOp>(op))
    memref = store.getMemRef();
  auto alloc = memref ? memref.getDefiningOp<memref::AllocOp>() : nullptr;
  return alloc && alloc->hasAttr(nv::kOnHostAttrName);
}

LogicalResult DeviceLowering::run() {
  SmallVector<Operation *> ops;
  step.walk([&](Operation *op) {
    if (isa<nv::NVDialect>(op->getDialect()) ||
        (isa<memref::LoadOp, memref::StoreOp, memref::CopyOp>(op) &&
         !isOnHost(op)))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    b.setInsertionPoint(op);
    b.setLoc(op->getLoc());
    LogicalResult result =
        llvm::TypeSwitch<Operation *, LogicalResult>(op)
            .Case<nv::LaunchOp>(
                [&](nv::LaunchOp launch) { return lower(launch); })
            .Case<nv::ProcessorsOp, nv::ArchitectureOp, nv::TensorMapOp,
                  memref::LoadOp, memref::StoreOp, memref::CopyOp>(
                [&](auto known) {
                  lower(known);
                  return success();
                })
            .Default([](Operation *other) {
              return other->emitOpError("expected a call for it, got none");
            });
    if (failed(result))
      return failure();
  }
  // Tensor maps are read by launches that are still there.
  for (Operation *op : llvm::reverse(ops))
    op->erase();
  return success();
}

LogicalResult mlir::moe::lowerDeviceOps(func::FuncOp step,
                                        const LLVMTypeConverter &converter,
                                        const KernelTable &kernels) {
  return DeviceLowering(step, converter, kernels).run();
}

Value mlir::moe::copyToDevice(ImplicitLocOpBuilder &b, AbiBuilder &abi,
                              Value data, int64_t bytes) {
  Value size = AbiBuilder::i64(b, bytes);
  Value place = abi.alloc(AbiBuilder::i64(b, 0), size);
  abi.callDevice(offsetof(moira_device, write), {place, data, size});
  return place;
}
