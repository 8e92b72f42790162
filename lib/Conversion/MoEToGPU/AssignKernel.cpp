// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// count and assign. Without priorities a warp per expert reads all ids in the
// order of placement, 32 at a time, and a vote tells how many of its pairs come
// before. With priorities a warp per pair counts those that come before it.

#include "WarpKernel.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
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

/// A kernel of this file, and its parameters: ids, [priority], [blocks],
/// sizes, [slots], i32 tokens, i32 capacity, [i32 blocks].
class AssignBuilder {
public:
  AssignBuilder(gpu::GPUModuleOp module, const AssignKernel &kernel,
                bool hasPriority, bool hasSlots)
      : kernel(kernel),
        warp(module, kernel.name, 2 + hasPriority + kernel.blocks + hasSlots,
             2 + kernel.blocks),
        b(warp.b), scan(readParameters(hasPriority, hasSlots)) {}

  LLVM::LLVMFuncOp buildSizes();
  LLVM::LLVMFuncOp buildSlots();
  LLVM::LLVMFuncOp buildSlotsByPriority();

private:
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
  Value priorityOf(Value place);
  Value comesBefore(Value other, Value pair, Value priority);
  Value firstRow(Value expert);
  Value slotOf(Value pair, Value id);

  const AssignKernel &kernel;
  WarpKernel warp;
  KernelBuilder &b;
  Value priority, sizes, slots, tokens, capacity, blockCount;
  PairScan scan;
};
} // namespace

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

LLVM::LLVMFuncOp AssignBuilder::buildSlots() {
  // One warp more than experts: it writes the slots of unused choices.
  warp.forEach(b.number(kernel.experts + 1), [&](Value expert) {
    auto writeUnused = [&]() -> SmallVector<Value> {
      Value pairs = b.mul(tokens, kernel.choices);
      b.loop(b.ceilDiv(pairs, 32), {},
             [&](Value round, ValueRange) -> SmallVector<Value> {
               Value pair = b.add(b.mul(round, 32), warp.lane);
               b.when(b.compare(Predicate::slt, pair, pairs), [&] {
                 // Unsigned: negative ids are large.
                 b.when(
                     b.compare(Predicate::uge, scan.idOf(pair), kernel.experts),
                     [&] { storeSlot(b.number(-1), pair); });
               });
               return {};
             });
      return {};
    };
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
    b.choose(b.compare(Predicate::eq, expert, kernel.experts), {}, writeUnused,
             writeOwn);
  });
  return warp.finish();
}

//===----------------------------------------------------------------------===//
// Priorities
//===----------------------------------------------------------------------===//

/// NaN stands behind all others, and so with -inf.
Value AssignBuilder::priorityOf(Value place) {
  Value value = b.load(b.at(priority, b.mul(b.widen(place), 4)), b.f32);
  Value isNaN = b.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, value, value);
  Value last = b.make<arith::ConstantOp>(b.builder.getFloatAttr(
      b.f32, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
  return b.select(isNaN, last, value);
}

/// Whether pair `other` is visited before `pair`, whose priority is given. Both
/// are of one expert and block.
Value AssignBuilder::comesBefore(Value other, Value pair, Value own) {
  bool byToken = kernel.order == Order::BatchPrioritized;
  Value place = byToken ? b.div(other, kernel.choices) : other;
  Value its = priorityOf(place);
  Value above = b.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, its, own);
  Value equal = b.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, its, own);
  Value isEarlier = b.compare(Predicate::ult, other, pair);
  Value before = b.bitOr(above, b.bitAnd(equal, isEarlier));
  if (!byToken || kernel.choices == 1)
    return before;
  Value choice = b.rem(other, kernel.choices);
  Value ownChoice = b.rem(pair, kernel.choices);
  Value isSame = b.compare(Predicate::eq, choice, ownChoice);
  return b.bitOr(b.compare(Predicate::ult, choice, ownChoice),
                 b.bitAnd(isSame, before));
}

/// Of an expert, by all lanes.
Value AssignBuilder::firstRow(Value expert) {
  if (kernel.padded)
    return b.mul(expert, room());
  Value sum =
      b.loop(b.ceilDiv(expert, 32), b.number(0),
             [&](Value round, ValueRange before) -> SmallVector<Value> {
               Value other = b.add(b.mul(round, 32), warp.lane);
               return {b.choose(
                   b.compare(Predicate::slt, other, expert), {b.i32},
                   [&]() -> SmallVector<Value> {
                     return {b.add(before[0], sizeOf(other))};
                   },
                   [&]() -> SmallVector<Value> { return {before[0]}; })[0]};
             })[0];
  for (int64_t distance : {16, 8, 4, 2, 1})
    sum = b.add(
        sum, b.makeHere<NVVM::ShflOp>(__FILE__, __LINE__, b.i32, b.number(-1),
                                      sum, b.number(distance), b.number(31),
                                      NVVM::ShflKind::bfly, UnitAttr()));
  return sum;
}

/// The slot of a pair of expert `id`.
Value AssignBuilder::slotOf(Value pair, Value id) {
  Value token = b.div(pair, kernel.choices);
  bool byToken = kernel.order == Order::BatchPrioritized;
  Value own = priorityOf(byToken ? token : pair);
  // Rows kept in earlier blocks, and the place in the pair's own.
  SmallVector<Value> found = scan.forBlocks(
      {b.number(0), b.number(0)},
      [&](Value first, Value count, ValueRange before) -> SmallVector<Value> {
        Value end = b.add(first, count);
        Value isPast = b.compare(Predicate::sge, token, end);
        Value isOwn = b.bitAnd(b.compare(Predicate::sge, token, first),
                               b.compare(Predicate::slt, token, end));
        Value begin = b.mul(first, kernel.choices);
        Value pairs = b.select(b.bitOr(isPast, isOwn),
                               b.mul(count, kernel.choices), b.number(0));
        Value sum = b.loop(
            b.ceilDiv(pairs, 32), b.number(0),
            [&](Value round, ValueRange sum) -> SmallVector<Value> {
              Value at = b.add(b.mul(round, 32), warp.lane);
              Value other = b.add(begin, at);
              auto no = [&]() -> SmallVector<Value> { return {b.zero(b.i1)}; };
              Value counts = b.choose(
                  b.compare(Predicate::slt, at, pairs), {b.i1},
                  [&]() -> SmallVector<Value> {
                    Value isSame =
                        b.compare(Predicate::eq, scan.idOf(other), id);
                    return b.choose(
                        isSame, {b.i1},
                        [&]() -> SmallVector<Value> {
                          return {
                              b.bitOr(isPast, comesBefore(other, pair, own))};
                        },
                        no);
                  },
                  no)[0];
              return {b.add(sum[0], warp.countBits(warp.ballot(counts)))};
            })[0];
        Value kept = b.add(before[0], b.minimum(sum, capacity));
        return {b.select(isPast, kept, before[0]),
                b.select(isOwn, sum, before[1])};
      });
  Value row = b.add(b.add(firstRow(id), found[0]), found[1]);
  return b.select(b.compare(Predicate::slt, found[1], capacity), row,
                  b.number(-1));
}

LLVM::LLVMFuncOp AssignBuilder::buildSlotsByPriority() {
  warp.forEach(b.mul(tokens, kernel.choices), [&](Value pair) {
    Value id = scan.idOf(pair);
    Value slot = b.choose(
        b.compare(Predicate::ult, id, kernel.experts), {b.i32},
        [&]() -> SmallVector<Value> { return {slotOf(pair, id)}; },
        [&]() -> SmallVector<Value> { return {b.number(-1)}; })[0];
    b.when(b.compare(Predicate::eq, warp.lane, 0),
           [&] { storeSlot(slot, pair); });
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
