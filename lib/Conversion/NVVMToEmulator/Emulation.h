// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the files of this folder share: one GPU module on its way to host code.

#ifndef MOIRA_LIB_CONVERSION_NVVMTOEMULATOR_EMULATION_H
#define MOIRA_LIB_CONVERSION_NVVMTOEMULATOR_EMULATION_H

#include "moira/emulator_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::moe::detail {

/// Where a shared global stands in the window, and its size.
struct SharedPlace {
  int64_t offset = 0;
  bool isDynamic = false;
};

class Emulation {
public:
  /// `instrument`: calls before loads and stores, which checks need.
  Emulation(ModuleOp host, gpu::GPUModuleOp module, bool instrument);

  /// Moves the functions of the GPU module into the host module and removes it.
  LogicalResult run();

private:
  struct Kernel {
    LLVM::LLVMFuncOp function;
    std::string name;
    SmallVector<Type> parameters;
    SmallVector<bool> byValue;
    int64_t threads = 0;
  };

  // EmulateNVVM.cpp
  LogicalResult placeShared();
  LogicalResult collectKernels();
  void moveOut();
  void dropAddressSpaces();
  LogicalResult checkCalls();

  // EmulateMemory.cpp
  void watchAccesses();
  void watchAccumulators();
  void lowerSharedPointers();
  LogicalResult lowerRounding();

  // EmulateOps.cpp
  LogicalResult lowerOps();
  LogicalResult lowerOp(Operation *op);
  LogicalResult lowerCopy(Operation *op);
  LogicalResult lowerMatrix(Operation *op);
  LogicalResult lowerBarrier(Operation *op);
  LogicalResult lowerWarp(Operation *op);
  LogicalResult lowerRegister(Operation *op);

  // EmulateModule.cpp
  LLVM::LLVMFuncOp makeEntry(Kernel &kernel);
  void makeDescription();
  LLVM::GlobalOp makeGlobal(StringRef name, Type type, Attribute value,
                            bool isConstant, bool isExported = false);
  LLVM::GlobalOp makeArray(StringRef name, Type element, ValueRange values);

  // Building.
  /// The site's number of an op.
  Value site(Operation *op);
  Value call(moira_emu_function function, Type result, ValueRange arguments);
  /// A call for `op`, with its site.
  Value callFor(Operation *op, moira_emu_function function, Type result,
                ArrayRef<Value> arguments);
  Value constant32(int64_t value);
  Value constant64(int64_t value);
  /// Memory of the function's frame.
  Value frame(Operation *op, Type element, int64_t count);
  Value element(Value base, Type type, int64_t index);
  void put(Value value, Value base, Type type, int64_t index);
  Value get(Value base, Type type, int64_t index);
  /// Replaces a struct (or single) result by what stands at `base`.
  void replaceByMemory(Operation *op, Value base);
  /// Calls `build` where the optional predicate holds.
  void when(Value predicate, Operation *op, function_ref<void()> build);
  std::string symbol(StringRef name) const;

  ModuleOp host;
  gpu::GPUModuleOp module;
  MLIRContext *context;
  OpBuilder builder;
  Location location;
  std::string moduleName;
  bool instrument;
  Type i1, i32, i64, f32, pointer, none;
  std::string tableName;
  llvm::StringMap<SharedPlace> shared;
  int64_t staticBytes = 0, dynamicOffset = 0;
  SmallVector<Kernel> kernels;
  llvm::MapVector<StringRef, int32_t> sites; ///< texts, kept by the context
  SmallVector<Operation *> moved;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_NVVMTOEMULATOR_EMULATION_H
