// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// From collectives in buffer form to the calls of moira/abi.h.

#ifndef MOIRA_LIB_CONVERSION_MOETORUNTIME_COLLECTIVES_H
#define MOIRA_LIB_CONVERSION_MOETORUNTIME_COLLECTIVES_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::moe {

/// Replaces the collectives of `step`, whose first argument is the context, and
/// what each rank answers by itself. `parameterIndex` has the index in the
/// parameter table of each parameter argument, in order.
LogicalResult lowerCollectives(func::FuncOp step,
                               const LLVMTypeConverter &converter,
                               ArrayRef<int64_t> parameterIndex);

} // namespace mlir::moe

#endif // MOIRA_LIB_CONVERSION_MOETORUNTIME_COLLECTIVES_H
