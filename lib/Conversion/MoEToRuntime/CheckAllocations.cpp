// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/abi.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <cstddef>

namespace mlir::moe {
#define GEN_PASS_DEF_CHECKALLOCATIONSPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;

/// Whether `call` goes through the ABI table to a function that gives memory:
/// those are the only indirect calls that return a pointer.
static bool givesMemory(LLVM::CallOp call) {
  return !call.getCallee() && call.getNumResults() == 1 &&
         isa<LLVM::LLVMPointerType>(call.getResult().getType());
}

namespace {
struct CheckAllocations
    : public moe::impl::CheckAllocationsPassBase<CheckAllocations> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      SmallVector<LLVM::CallOp> calls;
      function.walk([&](LLVM::CallOp call) {
        if (givesMemory(call))
          calls.push_back(call);
      });
      if (calls.empty())
        continue;
      if (!isa<LLVM::LLVMVoidType>(
              function.getFunctionType().getReturnType())) {
        function.emitError("expected a function that allocates to return "
                           "nothing, got ")
            << function.getFunctionType().getReturnType();
        return signalPassFailure();
      }
      check(function, calls);
    }
  }

private:
  static void check(LLVM::LLVMFuncOp function, ArrayRef<LLVM::CallOp> calls) {
    ImplicitLocOpBuilder b(function.getLoc(), function.getContext());
    Block *exit = b.createBlock(&function.getBody(), function.getBody().end());
    LLVM::ReturnOp::create(b, ValueRange{});
    for (LLVM::CallOp call : calls) {
      Block *block = call->getBlock();
      Block *rest = block->splitBlock(std::next(call->getIterator()));
      b.setInsertionPointToEnd(block);
      b.setLoc(call.getLoc());
      Value null = LLVM::ZeroOp::create(b, call.getResult().getType());
      Value failed = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::eq,
                                          call.getResult(), null);
      LLVM::CondBrOp::create(b, failed, exit, rest);
    }
  }
};
} // namespace
