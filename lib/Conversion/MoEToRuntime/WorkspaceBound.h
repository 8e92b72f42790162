// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How much workspace a step needs, computed from the shapes of its inputs.

#ifndef MOIRA_LIB_CONVERSION_MOETORUNTIME_WORKSPACEBOUND_H
#define MOIRA_LIB_CONVERSION_MOETORUNTIME_WORKSPACEBOUND_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::moe {

/// Adds the C function `name` (moira_workspace_entry): an upper bound, in
/// bytes, of the allocations of `step`, which still has its memref.allocs, but
/// for those that become the memory of results. It returns -1 when a size
/// depends on data without a known bound.
void emitWorkspaceBound(func::FuncOp step, StringRef name);

/// Adds the C function `name` (moira_shapes_entry): upper bounds of the sizes
/// of results, and of results that are index numbers. -1 where none is known.
void emitShapeBounds(func::FuncOp step, StringRef name);

/// The alloc in the entry block that the result `value` of `step` is, seen
/// through casts; null if there is none or the layout differs.
memref::AllocOp findResultMemory(func::FuncOp step, Value value);

/// Bytes per element of a memref: 1 for i1, 8 for index.
int64_t getElementBytes(Type element);

/// Bytes of a memref but for its dynamic dims: the factor on their product.
int64_t getStaticBytes(MemRefType type);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETORUNTIME_WORKSPACEBOUND_H
