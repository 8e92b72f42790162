// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moira_nv dialect: everything that a user of its ops includes.

#ifndef MOIRA_DIALECT_NV_IR_NVDIALECT_H
#define MOIRA_DIALECT_NV_IR_NVDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "moira/Dialect/NV/IR/NVDialect.h.inc"
#include "moira/Dialect/NV/IR/NVEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "moira/Dialect/NV/IR/NVAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "moira/Dialect/NV/IR/NVTypes.h.inc"

#define GET_OP_CLASSES
#include "moira/Dialect/NV/IR/NVOps.h.inc"

namespace mlir::nv {

/// Name of the attribute of an op that says how its kernel is cut
/// (ScheduleAttr).
inline constexpr llvm::StringLiteral kScheduleAttrName = "moira_nv.schedule";
/// Attribute of an allocation of a step: memory of the host, unlike the others.
inline constexpr llvm::StringLiteral kOnHostAttrName = "moira_nv.on_host";
/// Attribute of a gpu.module: the architecture that it is for.
inline constexpr llvm::StringLiteral kArchAttrName = "moira.arch";
/// Attributes of a gpu.module: its code, where it was made.
inline constexpr llvm::StringLiteral kPTXAttrName = "moira.ptx",
                                     kCubinAttrName = "moira.cubin";
/// Attribute of a gpu.module that becomes code of the host too.
inline constexpr llvm::StringLiteral kEmulatedAttrName = "moira.emulated";

} // namespace mlir::nv

#endif // MOIRA_DIALECT_NV_IR_NVDIALECT_H
