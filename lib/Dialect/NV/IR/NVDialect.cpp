// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::nv;

#include "moira/Dialect/NV/IR/NVDialect.cpp.inc"
#include "moira/Dialect/NV/IR/NVEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "moira/Dialect/NV/IR/NVAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "moira/Dialect/NV/IR/NVTypes.cpp.inc"

#define GET_OP_CLASSES
#include "moira/Dialect/NV/IR/NVOps.cpp.inc"

void NVDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "moira/Dialect/NV/IR/NVAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "moira/Dialect/NV/IR/NVTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "moira/Dialect/NV/IR/NVOps.cpp.inc"
      >();
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   Style style, ArrayRef<int64_t> tile,
                                   int64_t stages, ArrayRef<int64_t> warps) {
  auto positive = [](int64_t value) { return value > 0; };
  if (tile.size() != 3 || !llvm::all_of(tile, positive))
    return emitError() << "expected a tile of three positive extents, got ["
                       << tile << "]";
  if (warps.size() != 2 || !llvm::all_of(warps, positive))
    return emitError() << "expected two positive numbers of warps, got ["
                       << warps << "]";
  if (stages < 1)
    return emitError() << "expected at least one stage, got " << stages;
  return success();
}

//===----------------------------------------------------------------------===//
// tensor_map
//===----------------------------------------------------------------------===//

LogicalResult TensorMapOp::verify() {
  auto type = cast<MemRefType>(getSource().getType());
  // tensor_map_c1
  Type element = type.getElementType();
  if (type.getRank() < 2 || type.getRank() > 5 ||
      (!element.isBF16() && !element.isF16()) || !type.getLayout().isIdentity())
    return emitOpError("expected a memref of 2 to 5 dimensions of bf16 or f16 "
                       "with the identity layout, got ")
           << type;
  for (int64_t size : type.getShape().drop_front())
    if (ShapedType::isDynamic(size))
      return emitOpError("expected static inner dimensions, got ") << type;
  if (type.getShape().back() % 8)
    return emitOpError("expected rows of a multiple of 16 bytes, got ") << type;
  // tensor_map_c2
  ArrayRef<int64_t> box = getBox();
  if (int64_t(box.size()) != type.getRank() ||
      !llvm::all_of(box, [](int64_t size) { return size >= 1 && size <= 256; }))
    return emitOpError("expected a box of ")
           << type.getRank() << " extents of 1 to 256, got [" << box << "]";
  if (box.back() > 64)
    return emitOpError("expected a box row of at most 128 bytes, got ")
           << box.back() * 2;
  return success();
}

//===----------------------------------------------------------------------===//
// launch
//===----------------------------------------------------------------------===//

LogicalResult LaunchOp::verify() {
  // launch_c3
  for (Value operand : getArguments())
    if (auto type = dyn_cast<MemRefType>(operand.getType()))
      if (!type.getLayout().isIdentity())
        return emitOpError("expected memrefs with the identity layout, got ")
               << type;
  return success();
}

/// Whether `operand` can be given for a parameter.
static bool fits(Type operand, Type parameter, bool byValue) {
  if (isa<LLVM::LLVMPointerType>(parameter))
    return byValue ? isa<TensorMapType>(operand) : isa<MemRefType>(operand);
  return operand == parameter;
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // launch_c1
  auto kernel =
      symbols.lookupNearestSymbolFrom<LLVM::LLVMFuncOp>(*this, getKernel());
  if (!kernel)
    return emitOpError("expected a kernel, got ") << getKernel();
  // launch_c2
  ArrayRef<Type> parameters = kernel.getFunctionType().getParams();
  OperandRange given = getArguments();
  if (parameters.size() != given.size())
    return emitOpError("expected ") << parameters.size() << " operands for "
                                    << getKernel() << ", got " << given.size();
  for (auto [i, parameter] : llvm::enumerate(parameters)) {
    bool byValue =
        bool(kernel.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName()));
    Type type = given[i].getType();
    if (!fits(type, parameter, byValue))
      return emitOpError("expected operand ")
             << i << " to fit the parameter " << parameter << ", got " << type;
  }
  return success();
}
