// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// An abstract interpreter of one rank's program.

#ifndef MOIRA_LIB_SCHEDULE_INTERPRETER_H
#define MOIRA_LIB_SCHEDULE_INTERPRETER_H

#include "Memory.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::moe::detail {

/// Runs one function with `chunks` chunks, and reports the first access that
/// meets a transfer in flight. Control flow around transfers must be known: it
/// is what the ranks share. Everything else is seen by its effects on memory.
class Interpreter {
public:
  Interpreter(func::FuncOp function, int64_t chunks)
      : function(function), chunks(chunks), timeline(chunks) {}

  LogicalResult run();

private:
  LogicalResult runBlock(Block &block);
  /// Runs `op` wherever control flow is known.
  LogicalResult runOp(Operation *op);
  /// Runs the ops of regions whose control flow is not followed, once.
  LogicalResult runOnce(Operation *op);
  /// Whether each iteration is run.
  bool isFollowed(scf::ForOp loop);
  LogicalResult run(scf::ForOp loop);
  /// Runs the body of a loop whose iterations are not followed.
  LogicalResult runUnknown(scf::ForOp loop);
  LogicalResult run(scf::IfOp branch);
  LogicalResult run(StartExchangeOp op);
  LogicalResult run(StartGatherOp op);
  LogicalResult run(StartAllReduceOp op);
  LogicalResult run(StartReduceOp op);
  /// A transfer from `from` to `to`, which it alone writes.
  LogicalResult startTransfer(Operation *op, Value from, Value to);
  LogicalResult run(WaitOp op);
  LogicalResult run(memref::LoadOp op);
  LogicalResult run(memref::StoreOp op);
  LogicalResult runAlloc(Operation *op);
  LogicalResult runEffects(Operation *op);
  void runView(ViewLikeOpInterface op);
  void runNumbers(Operation *op);
  Number receive(ReceiveSizesOp op);

  func::FuncOp function;
  int64_t chunks;
  Timeline timeline;
  Memory memory;
  llvm::StringMap<View> globals;
  /// Buffers that the running iteration has allocated.
  SmallVector<std::pair<Operation *, Value>> *scope = nullptr;
};

/// The first collective in `op`, or null.
Operation *findCollective(Operation *op);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SCHEDULE_INTERPRETER_H
