// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the kernels of moe.count and moe.assign share.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_ASSIGNBUILDER_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_ASSIGNBUILDER_H

#include "WarpKernel.h"

namespace mlir::moe::detail {

/// The token blocks, and the ids within them.
class PairScan {
public:
  /// `blocks` is null where all tokens are one block.
  PairScan(WarpKernel &warp, const AssignKernel &kernel, Value ids,
           Value tokens, Value blocks, Value blockCount)
      : warp(warp), b(warp.b), kernel(kernel), ids(ids), tokens(tokens),
        blocks(blocks), blockCount(blockCount) {}

  Value idOf(Value pair) {
    return b.load(b.at(ids, b.mul(b.widen(pair), 4)), b.i32);
  }

  /// Calls body(first token, tokens, carried) for each block in turn.
  SmallVector<Value>
  forBlocks(ValueRange start,
            function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
    if (!blocks)
      return body(b.number(0), tokens, start);
    SmallVector<Value> carried{b.number(0)};
    llvm::append_range(carried, start);
    carried = b.loop(
        blockCount, carried,
        [&](Value block, ValueRange before) -> SmallVector<Value> {
          Value size = b.load(b.at(blocks, b.mul(b.widen(block), 4)), b.i32);
          size =
              b.minimum(b.maximum(size, b.number(0)), b.sub(tokens, before[0]));
          SmallVector<Value> after = body(before[0], size, before.drop_front());
          after.insert(after.begin(), b.add(before[0], size));
          return after;
        });
    carried.erase(carried.begin());
    return carried;
  }

  /// Calls body(pair, isMine, place) for each lane's pair of a block, in every
  /// round for all lanes; returns how many pairs the expert has there.
  Value run(Value expert, Value first, Value count, Order order,
            function_ref<void(Value, Value, Value)> body) {
    Value pairs = b.mul(count, kernel.choices);
    return b.loop(
        b.ceilDiv(pairs, 32), b.number(0),
        [&](Value round, ValueRange before) -> SmallVector<Value> {
          Value at = b.add(b.mul(round, 32), warp.lane);
          Value exists = b.compare(Predicate::slt, at, pairs);
          Value pair = pairAt(at, first, count, order);
          Value id = b.choose(
              exists, {b.i32},
              [&]() -> SmallVector<Value> { return {idOf(pair)}; },
              [&]() -> SmallVector<Value> { return {b.number(-1)}; })[0];
          Value isMine = b.compare(Predicate::eq, id, expert);
          Value mine = warp.ballot(isMine);
          if (body)
            body(pair, isMine, b.add(before[0], warp.countBelow(mine)));
          return {b.add(before[0], warp.countBits(mine))};
        })[0];
  }

private:
  /// Where the pair of this place stands in ids: (token, choice), choice last.
  Value pairAt(Value place, Value first, Value count, Order order) {
    if (order == Order::TokenMajor)
      return b.add(b.mul(first, kernel.choices), place);
    Value divisor = b.maximum(count, b.number(1));
    Value choice = b.make<arith::DivUIOp>(place, divisor);
    Value token = b.add(first, b.make<arith::RemUIOp>(place, divisor));
    return b.add(b.mul(token, kernel.choices), choice);
  }

  WarpKernel &warp;
  KernelBuilder &b;
  const AssignKernel &kernel;
  Value ids, tokens, blocks, blockCount;
};

/// A kernel of moe.count or moe.assign, and its parameters: ids, [priority],
/// [blocks], sizes, [slots], [scratch], i32 tokens, i32 capacity,
/// [i32 blocks]. Who has slots by priority has scratch.
class AssignBuilder {
public:
  AssignBuilder(gpu::GPUModuleOp module, const AssignKernel &kernel,
                bool hasPriority, bool hasSlots)
      : kernel(kernel),
        warp(module, kernel.name,
             2 + 2 * hasPriority + kernel.blocks + hasSlots, 2 + kernel.blocks),
        b(warp.b), scan(readParameters(hasPriority, hasSlots)) {}

  LLVM::LLVMFuncOp buildSizes();
  LLVM::LLVMFuncOp buildSlots();
  LLVM::LLVMFuncOp buildSlotsByPriority();

private:
  friend class PrioritySort;
  PairScan readParameters(bool hasPriority, bool hasSlots) {
    unsigned next = 0;
    auto take = [&](bool isGiven) {
      return isGiven ? b.argument(next++) : Value();
    };
    Value ids = take(true);
    priority = take(hasPriority);
    Value blocks = take(kernel.blocks);
    sizes = take(true);
    slots = take(hasSlots);
    scratch = take(hasPriority);
    tokens = take(true);
    capacity = take(true);
    blockCount = take(kernel.blocks);
    return PairScan(warp, kernel, ids, tokens, blocks, blockCount);
  }
  Value sizeOf(Value expert) {
    return b.load(b.at(sizes, b.mul(b.widen(expert), 4)), b.i32);
  }
  void storeSlot(Value slot, Value pair) {
    b.store(slot, b.at(slots, b.mul(b.widen(pair), 4)));
  }
  /// Rows of a padded group.
  Value room() { return blockCount ? b.mul(capacity, blockCount) : capacity; }
  /// Gives pairs of no expert the slot -1: `first`, first + step, ...
  void writeUnused(Value first, Value step);

  const AssignKernel &kernel;
  WarpKernel warp;
  KernelBuilder &b;
  Value priority, sizes, slots, scratch, tokens, capacity, blockCount;
  PairScan scan;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_ASSIGNBUILDER_H
