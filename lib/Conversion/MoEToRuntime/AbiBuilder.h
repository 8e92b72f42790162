// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Builds calls through the function table of moira/abi.h and the values that
// cross it. The only place that knows the layout of moira_ctx and moira_api.

#ifndef MOIRA_LIB_CONVERSION_MOETORUNTIME_ABIBUILDER_H
#define MOIRA_LIB_CONVERSION_MOETORUNTIME_ABIBUILDER_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::moe {

/// Attribute of functions that take the context: "step", "body" (of a parallel
/// loop) or "pack".
inline constexpr llvm::StringLiteral kKindAttrName = "moe.kind";

/// Emits ABI calls at the builder's insertion point. Index values are converted
/// to i64 here.
class AbiBuilder {
public:
  AbiBuilder(ImplicitLocOpBuilder &builder, Value context)
      : b(builder), context(context) {}

  Value alloc(Value worker, Value bytes);
  Value mark(Value worker);
  void release(Value worker, Value mark);
  /// Storage for result `index` with `sizes` (index values).
  Value result(int64_t index, ValueRange sizes);
  void parallelFor(Value body, Value captures, Value n, int64_t cost);
  void enter(Value layer, Value part);
  void loads(Value layer, Value experts, Value counts, Value sizes);
  Value chunks(int64_t layer, int64_t schedule);
  void allGather(Value mine, Value bytes, Value all);
  void gatherCounts(int64_t layer, int64_t experts, Value counts, Value matrix);
  /// `exchange` is a moira_exchange, `gather` a moira_gather, `reduce` a
  /// moira_reduce, in memory.
  Value receiveSizes(Value exchange, Value groups);
  Value exchange(Value exchange);
  Value gatherWeights(Value gather);
  Value allReduce(Value in, Value out, Value count, int64_t dtype);
  Value reduceWeights(Value reduce);
  void mergeRows(Value exchange);
  void wait(Value ticket);

  /// Calls the function at `offset` of the step's moira_device with the context
  /// and `arguments`; nothing comes back.
  void callDevice(size_t offset, ValueRange arguments);
  /// Loads a field of it.
  Value deviceField(size_t offset, Type type);

  /// The number of bodies that may run at the same time, as i32.
  Value workers();
  /// The number of this rank, as i32.
  Value rank();
  /// The slot table of the plan of the `position`-th layer; may be null.
  Value slotTable(int64_t position);
  /// Loads the pointer of parameter `index` of the context's table.
  Value parameter(int64_t index);

  /// An i64 constant, and an index value as i64.
  static Value i64(ImplicitLocOpBuilder &b, int64_t value);
  static Value toI64(ImplicitLocOpBuilder &b, Value index);
  /// `pointer + bytes`.
  static Value at(ImplicitLocOpBuilder &b, Value pointer, int64_t bytes);
  /// Loads a field of type `type` at `pointer + bytes`.
  static Value loadField(ImplicitLocOpBuilder &b, Value pointer, int64_t bytes,
                         Type type);
  /// Stores `value` at `pointer + bytes`.
  static void storeField(ImplicitLocOpBuilder &b, Value pointer, int64_t bytes,
                         Value value);
  /// A memref of type `type` over `data` with `sizes` (one index value per
  /// dynamic dim), compact and row-major.
  static Value memref(ImplicitLocOpBuilder &b,
                      const LLVMTypeConverter &converter, MemRefType type,
                      Value data, ValueRange dynamicSizes);
  /// The pointer to the first element of a memref value.
  static Value dataPointer(ImplicitLocOpBuilder &b,
                           const LLVMTypeConverter &converter, Value memref);
  /// An alloca of `count` elements of `type` in the entry block of the function
  /// around the insertion point, so that loops do not grow the stack.
  static Value entryAlloca(ImplicitLocOpBuilder &b, Type type, int64_t count,
                           int64_t alignment = 16);

private:
  /// Calls the table's function at `offset`.
  Value call(size_t offset, Type resultType, ValueRange arguments);

  ImplicitLocOpBuilder &b;
  Value context;
};

/// The worker index inside `function`: its own argument in a loop body, else 0.
Value getWorker(ImplicitLocOpBuilder &b, func::FuncOp function);

/// The kind of a function ("step", "body", "pack"), empty when it takes no
/// context.
StringRef getKind(func::FuncOp function);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETORUNTIME_ABIBUILDER_H
