// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One op of a step, or the iterations of one, moved into a kernel.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_OUTLINER_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_OUTLINER_H

#include "KernelBuilder.h"
#include "Launches.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::moe::detail {

/// Moves one op, or the iterations of one, into a kernel.
class Outliner {
public:
  Outliner(Operation *op, Launches &launches)
      : op(op), launches(launches), b(op), loc(op->getLoc()),
        converter(op->getContext()) {}

  /// Iterations of a parallel loop, one per thread.
  void outlineParallel(scf::ParallelOp loop);
  /// The op as it is, by one thread; its results come back through memory.
  LogicalResult outlineSerial();

private:
  void collect(Region &region, ValueRange operands);
  void addCapture(Value value);
  void addMemRef(Value memref);
  /// The values inside that stand for the captures.
  void enter(KernelBuilder &kernel, IRMapping &mapping);
  Value rebuild(KernelBuilder &kernel, MemRefType type, unsigned &next);
  Value toIndex(KernelBuilder &kernel, Value i64) {
    return kernel.make<arith::IndexCastOp>(kernel.builder.getIndexType(), i64);
  }
  Value toI64(Value index) {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), index);
  }
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value);
  }

  Operation *op;
  Launches &launches;
  OpBuilder b;
  Location loc;
  LLVMTypeConverter converter;
  llvm::SetVector<Value> captures;
  SmallVector<Operation *> constants;
  SmallVector<Value> arguments;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_OUTLINER_H
