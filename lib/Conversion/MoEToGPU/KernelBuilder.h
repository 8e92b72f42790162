// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Short names for what kernels are made of. Every op that touches memory or
// synchronises carries the position of the builder's line that made it: the
// emulated device reports it.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_KERNELBUILDER_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_KERNELBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#define MOIRA_HERE                                                             \
  const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

namespace mlir::moe::detail {

using Predicate = arith::CmpIPredicate;

class KernelBuilder {
public:
  /// Makes `kernel(parameters)` with `threads` per block in `module`, and
  /// builds into it. `byValue` tells which pointers lead to tensor maps.
  KernelBuilder(gpu::GPUModuleOp module, StringRef name,
                ArrayRef<Type> parameters, ArrayRef<bool> byValue,
                int64_t threads);

  // Types and constants.
  Type i1, i16, i32, i64, f32, global, shared, generic;
  Value number(int64_t value);     ///< i32
  Value wideNumber(int64_t value); ///< i64
  Value zero(Type type);

  // Integers, all operands of one type.
  Value add(Value a, Value b);
  Value add(Value a, int64_t b) { return b ? add(a, like(b, a)) : a; }
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value mul(Value a, int64_t b) { return b == 1 ? a : mul(a, like(b, a)); }
  /// Unsigned.
  Value div(Value a, int64_t b);
  Value rem(Value a, int64_t b);
  Value bitXor(Value a, Value b);
  Value bitAnd(Value a, Value b);
  Value bitOr(Value a, Value b);
  Value shiftRight(Value a, int64_t bits);
  Value ceilDiv(Value a, int64_t b) { return div(add(a, b - 1), b); }
  Value minimum(Value a, Value b); ///< signed
  Value maximum(Value a, Value b);
  Value compare(Predicate predicate, Value a, Value b);
  Value compare(Predicate predicate, Value a, int64_t b) {
    return compare(predicate, a, like(b, a));
  }
  Value select(Value condition, Value a, Value b);
  Value widen(Value value); ///< i32 to i64, with sign

  // Control.
  void when(Value condition, function_ref<void()> body);
  /// An scf.if with results.
  SmallVector<Value> choose(Value condition, TypeRange types,
                            function_ref<SmallVector<Value>()> yes,
                            function_ref<SmallVector<Value>()> no);
  /// for i from 0 below `end`: body(i, carried) returns what is carried on.
  SmallVector<Value>
  loop(Value end, ValueRange start,
       function_ref<SmallVector<Value>(Value, ValueRange)> body);
  /// while condition(values): values = body(values). `condition` returns the
  /// i1 first, then the values.
  SmallVector<Value>
  loopWhile(ValueRange start,
            function_ref<SmallVector<Value>(ValueRange)> condition,
            function_ref<SmallVector<Value>(ValueRange)> body);

  // Memory. Offsets are bytes, i32 for shared and i64 for global memory.
  Value at(Value base, Value offset);
  Value at(Value base, int64_t offset);
  Value load(Value address, Type type, MOIRA_HERE);
  void store(Value value, Value address, MOIRA_HERE);
  Value argument(unsigned index) { return function.getArgument(index); }
  /// The dynamic shared memory of the kernel, aligned to 1024 bytes.
  Value dynamicShared();

  // Threads.
  Value thread();
  Value block();
  Value blocks();
  void barrier(MOIRA_HERE);

  /// Ops by their create functions, at a position.
  template <typename Op, typename... Arguments>
  auto make(Arguments &&...arguments) {
    return Op::create(builder, location, std::forward<Arguments>(arguments)...);
  }
  template <typename Op, typename... Arguments>
  auto makeHere(const char *file, unsigned line, Arguments &&...arguments) {
    return Op::create(builder, position(file, line),
                      std::forward<Arguments>(arguments)...);
  }
  Location position(const char *file, unsigned line);
  /// Ops that are made without a position get this one.
  void setLocation(Location given) { location = given; }
  void finish();

  OpBuilder builder;
  LLVM::LLVMFuncOp function;

private:
  Value like(int64_t value, Value other);

  gpu::GPUModuleOp module;
  Location location;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_KERNELBUILDER_H
