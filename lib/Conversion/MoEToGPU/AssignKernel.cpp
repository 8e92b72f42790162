// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// count and assign. Without priorities a warp per expert reads all ids in the
// order of placement, 32 at a time, and a vote tells how many of its pairs come
// before. PriorityKernel.cpp has the orders by priority.

#include "AssignBuilder.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

LLVM::LLVMFuncOp AssignBuilder::buildSizes() {
  warp.forEach(b.number(kernel.experts), [&](Value expert) {
    // The order does not matter here.
    Value size = scan.forBlocks(
        b.number(0),
        [&](Value first, Value count, ValueRange before) -> SmallVector<Value> {
          Value own =
              scan.run(expert, first, count, Order::TokenMajor, nullptr);
          return {b.add(before[0], b.minimum(own, capacity))};
        })[0];
    b.when(b.compare(Predicate::eq, warp.lane, 0),
           [&] { b.store(size, b.at(sizes, b.mul(b.widen(expert), 4))); });
  });
  return warp.finish();
}

void AssignBuilder::writeUnused(Value first, Value step) {
  Value pairs = b.mul(tokens, kernel.choices);
  b.loopWhile(
      first,
      [&](ValueRange at) -> SmallVector<Value> {
        return {b.compare(Predicate::slt, at[0], pairs), at[0]};
      },
      [&](ValueRange at) -> SmallVector<Value> {
        // Unsigned: negative ids are large.
        b.when(b.compare(Predicate::uge, scan.idOf(at[0]), kernel.experts),
               [&] { storeSlot(b.number(-1), at[0]); });
        return {b.add(at[0], step)};
      });
}

LLVM::LLVMFuncOp AssignBuilder::buildSlots() {
  // One warp more than experts: it writes the slots of unused choices.
  warp.forEach(b.number(kernel.experts + 1), [&](Value expert) {
    auto writeOwn = [&]() -> SmallVector<Value> {
      Value begin = b.mul(expert, room());
      if (!kernel.padded)
        begin = b.loop(expert, b.number(0),
                       [&](Value other, ValueRange sum) -> SmallVector<Value> {
                         return {b.add(sum[0], sizeOf(other))};
                       })[0];
      scan.forBlocks(
          begin,
          [&](Value first, Value count, ValueRange row) -> SmallVector<Value> {
            Value own = scan.run(
                expert, first, count, kernel.order,
                [&](Value pair, Value isMine, Value place) {
                  b.when(isMine, [&] {
                    Value isKept = b.compare(Predicate::slt, place, capacity);
                    Value slot = b.add(row[0], place);
                    storeSlot(b.select(isKept, slot, b.number(-1)), pair);
                  });
                });
            return {b.add(row[0], b.minimum(own, capacity))};
          });
      return {};
    };
    b.choose(
        b.compare(Predicate::eq, expert, kernel.experts), {},
        [&]() -> SmallVector<Value> {
          writeUnused(warp.lane, b.number(32));
          return {};
        },
        writeOwn);
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildCountKernel(gpu::GPUModuleOp module,
                                       const AssignKernel &kernel) {
  return AssignBuilder(module, kernel, /*hasPriority=*/false,
                       /*hasSlots=*/false)
      .buildSizes();
}

LLVM::LLVMFuncOp moe::buildAssignKernel(gpu::GPUModuleOp module,
                                        const AssignKernel &kernel) {
  bool hasPriority = kernel.order == Order::BatchPrioritized ||
                     kernel.order == Order::ExpertProbability;
  AssignBuilder builder(module, kernel, hasPriority, /*hasSlots=*/true);
  return hasPriority ? builder.buildSlotsByPriority() : builder.buildSlots();
}
