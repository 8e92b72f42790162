// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// From launches and accesses of a device's memory to the calls of
// moira/device_abi.h.

#ifndef MOIRA_LIB_CONVERSION_MOETORUNTIME_DEVICECALLS_H
#define MOIRA_LIB_CONVERSION_MOETORUNTIME_DEVICECALLS_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

namespace mlir::moe {

class AbiBuilder;

/// The kernels of a module, by the number that launches call them by.
class KernelTable {
public:
  explicit KernelTable(ModuleOp module);

  /// Whether the module is for a GPU.
  bool isForDevice() const { return forDevice; }
  /// The number of a kernel, or -1.
  int64_t find(SymbolRefAttr kernel) const;
  /// What the manifest says; puts the code into an attribute of the module,
  /// and the number that launches count from beside its functions.
  llvm::json::Object describe();

private:
  ModuleOp module;
  bool forDevice = false;
  llvm::MapVector<Attribute, int64_t> shared; ///< by kernel, bytes
};

/// Replaces the launches of `step`, whose first argument is the context, and
/// its accesses of memory.
LogicalResult lowerDeviceOps(func::FuncOp step,
                             const LLVMTypeConverter &converter,
                             const KernelTable &kernels);

/// Copies a number of the host, in memory at `data`, to new memory of the
/// device.
Value copyToDevice(ImplicitLocOpBuilder &b, AbiBuilder &abi, Value data,
                   int64_t bytes);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETORUNTIME_DEVICECALLS_H
