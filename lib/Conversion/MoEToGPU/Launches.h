// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the files of `convert-moe-to-gpu` share.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_LAUNCHES_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_LAUNCHES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::moe::detail {

/// The kernels of a module and their launches.
class Launches {
public:
  explicit Launches(ModuleOp module) : module(module) {}

  /// The GPU module, made when it is first asked for.
  gpu::GPUModuleOp getModule();
  /// A new name, "grouped_3".
  std::string makeName(StringRef stem);
  /// Launches kernel `name` of that module in front of `builder`, on `perUnit`
  /// blocks for each multiprocessor.
  void launch(OpBuilder &builder, Location loc, StringRef name, int64_t perUnit,
              int64_t threads, int64_t sharedBytes, ValueRange arguments);
  /// The same on `blocks` blocks, an index value.
  void launchOn(OpBuilder &builder, Location loc, StringRef name, Value blocks,
                int64_t threads, int64_t sharedBytes, ValueRange arguments);
  int64_t count() const { return number; }

private:
  ModuleOp module;
  int64_t number = 0;
};

/// Whether the function's memrefs are memory of the device: a step, and where
/// functions have no kind yet any.
bool isOfDevice(func::FuncOp function);

/// Replaces an op of routing or movement in buffer form by launches.
LogicalResult convertRouting(Operation *op, Launches &launches);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_LAUNCHES_H
