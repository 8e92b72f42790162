// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A kernel whose warps share out numbers below a limit: tokens, experts, pairs.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_WARPKERNEL_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_WARPKERNEL_H

#include "KernelBuilder.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

namespace mlir::moe::detail {

class WarpKernel {
public:
  /// The parameters: pointers to global memory, then i32.
  WarpKernel(gpu::GPUModuleOp module, StringRef name, int64_t pointers,
             int64_t numbers)
      : WarpKernel(module, name,
                   parameters(module.getContext(), pointers, numbers)) {}
  WarpKernel(gpu::GPUModuleOp module, StringRef name, ArrayRef<Type> parameters)
      : b(module, name, parameters, {}, kRoutingThreads) {
    Value thread = b.thread();
    lane = b.rem(thread, 32);
    warp = b.add(b.mul(b.block(), kRoutingWarps), b.div(thread, 32));
    warps = b.mul(b.blocks(), kRoutingWarps);
  }
  static SmallVector<Type> parameters(MLIRContext *context, int64_t pointers,
                                      int64_t numbers) {
    SmallVector<Type> types(
        pointers, LLVM::LLVMPointerType::get(
                      context, unsigned(NVVM::NVVMMemorySpace::Global)));
    types.append(numbers, IntegerType::get(context, 32));
    return types;
  }

  /// body(i) for this warp's i below `limit`.
  void forEach(Value limit, function_ref<void(Value)> body) {
    share(warp, warps, limit, body);
  }
  /// body(i) for this thread's i below `limit`, over the whole grid.
  void forEachOfThread(Value limit, function_ref<void(Value)> body) {
    share(b.add(b.mul(warp, 32), lane), b.mul(warps, 32), limit, body);
  }
  /// A bit for each lane where `isSet` holds.
  Value ballot(Value isSet, MOIRA_HERE) {
    return b.makeHere<NVVM::VoteSyncOp>(file, line, b.i32, b.number(-1), isSet,
                                        NVVM::VoteSyncKind::ballot);
  }
  /// Bits set in a word, and those of lower lanes than this.
  Value countBits(Value word) { return b.make<LLVM::CtPopOp>(b.i32, word); }
  Value countBelow(Value word) {
    Value below = b.sub(b.make<arith::ShLIOp>(b.number(1), lane), b.number(1));
    return countBits(b.bitAnd(word, below));
  }
  LLVM::LLVMFuncOp finish() {
    b.finish();
    return b.function;
  }

  KernelBuilder b;
  Value lane, warp, warps;

private:
  void share(Value first, Value step, Value limit,
             function_ref<void(Value)> body) {
    b.loopWhile(
        first,
        [&](ValueRange at) -> SmallVector<Value> {
          return {b.compare(Predicate::slt, at[0], limit), at[0]};
        },
        [&](ValueRange at) -> SmallVector<Value> {
          body(at[0]);
          return {b.add(at[0], step)};
        });
  }
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_WARPKERNEL_H
