// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The orders of moe.assign by priority: a block per expert gathers the expert's
// pairs of a token block in scratch memory, and sorts them there by radix, four
// bits at a time, the least first: each pass keeps the order of the one before
// among equals, so pairs of one priority stay in their order.

#include "AssignBuilder.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Bits of a pass, and the values that they have.
static constexpr int64_t kDigitBits = 4, kDigits = 1 << kDigitBits;

/// Passes over a key of 32 bits, and over choices.
static constexpr int64_t kKeyPasses = 32 / kDigitBits;
static int64_t choicePasses(const AssignKernel &kernel) {
  if (kernel.order != Order::BatchPrioritized || kernel.choices == 1)
    return 0;
  return llvm::divideCeil(llvm::Log2_64_Ceil(uint64_t(kernel.choices)),
                          kDigitBits);
}

/// Shared memory: how many of each digit a warp has in a round, and where the
/// next of each digit goes.
static constexpr int64_t kRunningPlace = kDigits * kRoutingWarps * 4;

int64_t AssignKernel::sharedBytes() const {
  return order == Order::BatchPrioritized || order == Order::ExpertProbability
             ? kRunningPlace + kDigits * 4
             : 0;
}

namespace mlir::moe::detail {

class PrioritySort {
public:
  explicit PrioritySort(AssignBuilder &owner)
      : owner(owner), kernel(owner.kernel), warp(owner.warp), b(owner.b),
        shared(b.dynamicShared()), thread(b.thread()),
        warpInBlock(b.div(thread, 32)),
        half(b.mul(owner.tokens, kernel.choices)) {}

  void emit();

private:
  Value keyOf(Value pair);
  Value firstRow(Value expert);
  /// The place of `count` words, `index` of them on.
  Value word(int64_t place, Value index) {
    return b.at(shared, b.add(b.mul(index, 4), place));
  }
  Value entry(Value index) {
    return b.at(owner.scratch, b.mul(b.widen(index), 8));
  }
  Value sumOfWarps(Value own);
  std::pair<Value, Value> placeInRound(Value isMine);
  Value countLower(Value expert, Value begin, Value pairs);
  Value gather(Value expert, Value begin, Value pairs, Value start);
  Value digitOf(Value entry, Value pass);
  void sweep(Value pass, Value from, Value to, Value count, bool scatters);
  void startDigits();
  Value sortPairs(Value expert, Value first, Value count, Value row);
  /// Calls body(i, exists) for 0 <= i < count, a round of a thread each; all
  /// threads take part in each round.
  void forRounds(Value count, function_ref<void(Value, Value)> body) {
    b.loop(b.ceilDiv(count, kRoutingThreads), {},
           [&](Value round, ValueRange) -> SmallVector<Value> {
             Value i = b.add(b.mul(round, kRoutingThreads), thread);
             body(i, b.compare(Predicate::slt, i, count));
             return {};
           });
  }

  AssignBuilder &owner;
  const AssignKernel &kernel;
  WarpKernel &warp;
  KernelBuilder &b;
  Value shared, thread, warpInBlock;
  /// Entries of each half of the scratch memory.
  Value half;
};

} // namespace mlir::moe::detail

/// An unsigned number that is smaller for what comes first: high priorities,
/// zeros of both signs alike, NaN last with -inf.
Value PrioritySort::keyOf(Value pair) {
  bool isByToken = kernel.order == Order::BatchPrioritized;
  Value place = isByToken ? b.div(pair, kernel.choices) : pair;
  Value value = b.load(b.at(owner.priority, b.mul(b.widen(place), 4)), b.f32);
  Value isNaN = b.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, value, value);
  Value isZero =
      b.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, value, b.zero(b.f32));
  Value last = b.make<arith::ConstantOp>(b.builder.getFloatAttr(
      b.f32, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
  value = b.select(isNaN, last, b.select(isZero, b.zero(b.f32), value));
  Value bits = b.make<arith::BitcastOp>(b.i32, value);
  // Of positive numbers larger bits are larger values, of negative ones
  // smaller; the complement turns the order round.
  Value isNegative = b.compare(Predicate::slt, bits, 0);
  return b.select(isNegative, bits, b.bitXor(bits, b.number(INT32_MAX)));
}

/// The first row of an expert.
Value PrioritySort::firstRow(Value expert) {
  if (kernel.padded)
    return b.mul(expert, owner.room());
  return b.loop(expert, b.number(0),
                [&](Value other, ValueRange sum) -> SmallVector<Value> {
                  return {b.add(sum[0], owner.sizeOf(other))};
                })[0];
}

/// What all warps have together; `own` is the same in all lanes of a warp.
Value PrioritySort::sumOfWarps(Value own) {
  b.when(b.compare(Predicate::eq, warp.lane, 0),
         [&] { b.store(own, word(0, warpInBlock)); });
  b.barrier();
  Value sum = b.number(0);
  for (int64_t w = 0; w < kRoutingWarps; ++w)
    sum = b.add(sum, b.load(word(0, b.number(w)), b.i32));
  b.barrier();
  return sum;
}

/// How many of the block's threads before this one have `isMine`, and how many
/// have it in all.
std::pair<Value, Value> PrioritySort::placeInRound(Value isMine) {
  Value mine = warp.ballot(isMine);
  b.when(b.compare(Predicate::eq, warp.lane, 0),
         [&] { b.store(warp.countBits(mine), word(0, warpInBlock)); });
  b.barrier();
  Value before = warp.countBelow(mine), all = b.number(0);
  for (int64_t w = 0; w < kRoutingWarps; ++w) {
    Value count = b.load(word(0, b.number(w)), b.i32);
    Value isEarlier = b.compare(Predicate::ugt, warpInBlock, w);
    before = b.add(before, b.select(isEarlier, count, b.number(0)));
    all = b.add(all, count);
  }
  b.barrier();
  return {before, all};
}

/// Pairs of lower experts: what others gather stands before.
Value PrioritySort::countLower(Value expert, Value begin, Value pairs) {
  Value own = b.loop(
      b.ceilDiv(pairs, kRoutingThreads), b.number(0),
      [&](Value round, ValueRange sum) -> SmallVector<Value> {
        Value at = b.add(b.mul(round, kRoutingThreads), thread);
        Value isLower = b.choose(
            b.compare(Predicate::slt, at, pairs), {b.i1},
            [&]() -> SmallVector<Value> {
              return {b.compare(Predicate::ult,
                                owner.scan.idOf(b.add(begin, at)), expert)};
            },
            [&]() -> SmallVector<Value> { return {b.zero(b.i1)}; })[0];
        return {b.add(sum[0], warp.countBits(warp.ballot(isLower)))};
      })[0];
  return sumOfWarps(own);
}

/// Writes (key, pair) of the expert's pairs from entry `start` on, in the order
/// of pairs; returns how many.
Value PrioritySort::gather(Value expert, Value begin, Value pairs,
                           Value start) {
  return b.loop(
      b.ceilDiv(pairs, kRoutingThreads), b.number(0),
      [&](Value round, ValueRange found) -> SmallVector<Value> {
        Value at = b.add(b.mul(round, kRoutingThreads), thread);
        Value pair = b.add(begin, at);
        Value isMine = b.choose(
            b.compare(Predicate::slt, at, pairs), {b.i1},
            [&]() -> SmallVector<Value> {
              return {b.compare(Predicate::eq, owner.scan.idOf(pair), expert)};
            },
            [&]() -> SmallVector<Value> { return {b.zero(b.i1)}; })[0];
        std::pair<Value, Value> place = placeInRound(isMine);
        b.when(isMine, [&] {
          Value high = b.make<arith::ShLIOp>(
              b.make<arith::ExtUIOp>(b.i64, keyOf(pair)), b.wideNumber(32));
          b.store(b.bitOr(high, b.make<arith::ExtUIOp>(b.i64, pair)),
                  entry(b.add(b.add(start, found[0]), place.first)));
        });
        return {b.add(found[0], place.second)};
      })[0];
}

Value PrioritySort::digitOf(Value entry, Value pass) {
  Value key = b.make<arith::TruncIOp>(b.i32, b.shiftRight(entry, 32));
  Value shift = b.mul(pass, kDigitBits);
  Value digit = b.make<arith::ShRUIOp>(key, b.bitAnd(shift, b.number(31)));
  if (choicePasses(kernel)) {
    // Then by choice, which goes before priority.
    Value pair = b.make<arith::TruncIOp>(b.i32, entry);
    Value late = b.maximum(b.sub(shift, b.number(32)), b.number(0));
    Value choice = b.make<arith::ShRUIOp>(b.rem(pair, kernel.choices), late);
    digit =
        b.select(b.compare(Predicate::slt, pass, kKeyPasses), digit, choice);
  }
  return b.bitAnd(digit, b.number(kDigits - 1));
}

/// Each of the first threads has a digit, whose counts it clears.
void PrioritySort::startDigits() {
  b.when(b.compare(Predicate::ult, thread, kDigits), [&] {
    for (int64_t w = 0; w < kRoutingWarps; ++w)
      b.store(b.number(0), word(0, b.add(b.mul(thread, kRoutingWarps), w)));
  });
}

/// Counts the digits of a pass, or moves the entries to where theirs go.
void PrioritySort::sweep(Value pass, Value from, Value to, Value count,
                         bool scatters) {
  forRounds(count, [&](Value i, Value exists) {
    Value value = b.choose(
        exists, {b.i64},
        [&]() -> SmallVector<Value> {
          return {b.load(entry(b.add(from, i)), b.i64)};
        },
        [&]() -> SmallVector<Value> { return {b.zero(b.i64)}; })[0];
    Value digit = digitOf(value, pass);
    // The lanes that have the same digit.
    Value same = warp.ballot(exists);
    for (int64_t bit = 0; bit < kDigitBits; ++bit) {
      Value isSet = b.compare(Predicate::ne,
                              b.bitAnd(digit, b.number(int64_t(1) << bit)), 0);
      Value lanes = warp.ballot(isSet);
      same =
          b.bitAnd(same, b.select(isSet, lanes, b.bitXor(lanes, b.number(-1))));
    }
    Value rank = warp.countBelow(same);
    Value isFirst = b.bitAnd(exists, b.compare(Predicate::eq, rank, 0));
    Value counts = b.mul(digit, kRoutingWarps);
    b.barrier();
    b.when(isFirst, [&] {
      b.store(warp.countBits(same), word(0, b.add(counts, warpInBlock)));
    });
    b.barrier();
    if (scatters) {
      b.when(exists, [&] {
        Value place = b.add(rank, b.load(word(kRunningPlace, digit), b.i32));
        for (int64_t w = 0; w + 1 < kRoutingWarps; ++w) {
          Value other = b.load(word(0, b.add(counts, w)), b.i32);
          Value isEarlier = b.compare(Predicate::ugt, warpInBlock, w);
          place = b.add(place, b.select(isEarlier, other, b.number(0)));
        }
        b.store(value, entry(b.add(to, place)));
      });
      b.barrier();
    }
    b.when(b.compare(Predicate::ult, thread, kDigits), [&] {
      Value sum = b.load(word(kRunningPlace, thread), b.i32);
      for (int64_t w = 0; w < kRoutingWarps; ++w) {
        Value at = word(0, b.add(b.mul(thread, kRoutingWarps), w));
        sum = b.add(sum, b.load(at, b.i32));
        b.store(b.number(0), at);
      }
      b.store(sum, word(kRunningPlace, thread));
    });
  });
}

/// Sorts the expert's pairs of the tokens first, ..., first + count - 1, and
/// writes their slots, of which the first is `row`; returns how many are kept.
Value PrioritySort::sortPairs(Value expert, Value first, Value count,
                              Value row) {
  Value begin = b.mul(first, kernel.choices);
  Value pairs = b.mul(count, kernel.choices);
  Value start = b.add(begin, countLower(expert, begin, pairs));
  Value found = gather(expert, begin, pairs, start);
  Value isDigit = b.compare(Predicate::ult, thread, kDigits);
  int64_t passes = kKeyPasses + choicePasses(kernel);
  // An expert without pairs has nothing to sort; all threads know it.
  Value rounds = b.select(b.compare(Predicate::eq, found, 0), b.number(0),
                          b.number(passes));
  b.loop(rounds, {}, [&](Value pass, ValueRange) {
    Value isOdd = b.compare(Predicate::ne, b.rem(pass, 2), 0);
    Value other = b.add(start, half);
    Value from = b.select(isOdd, other, start);
    Value to = b.select(isOdd, start, other);
    startDigits();
    b.when(isDigit, [&] { b.store(b.number(0), word(kRunningPlace, thread)); });
    // What the last pass moved is there.
    b.barrier();
    sweep(pass, from, to, found, /*scatters=*/false);
    b.barrier();
    // Where the entries of each digit begin.
    Value begins = b.number(0);
    for (int64_t digit = 0; digit + 1 < kDigits; ++digit) {
      Value size = b.load(word(kRunningPlace, b.number(digit)), b.i32);
      Value isLower = b.compare(Predicate::ugt, thread, digit);
      begins = b.add(begins, b.select(isLower, size, b.number(0)));
    }
    b.barrier();
    b.when(isDigit, [&] { b.store(begins, word(kRunningPlace, thread)); });
    sweep(pass, from, to, found, /*scatters=*/true);
    b.barrier();
    return SmallVector<Value>();
  });
  Value sorted = passes % 2 ? b.add(start, half) : start;
  forRounds(found, [&](Value i, Value exists) {
    b.when(exists, [&] {
      Value pair = b.make<arith::TruncIOp>(
          b.i32, b.load(entry(b.add(sorted, i)), b.i64));
      Value isKept = b.compare(Predicate::slt, i, owner.capacity);
      owner.storeSlot(b.select(isKept, b.add(row, i), b.number(-1)), pair);
    });
  });
  return b.minimum(found, owner.capacity);
}

void PrioritySort::emit() {
  // One more than experts: it writes the slots of unused choices.
  b.loopWhile(
      b.block(),
      [&](ValueRange at) -> SmallVector<Value> {
        return {b.compare(Predicate::sle, at[0], kernel.experts), at[0]};
      },
      [&](ValueRange at) -> SmallVector<Value> {
        Value expert = at[0];
        b.choose(
            b.compare(Predicate::eq, expert, kernel.experts), {},
            [&]() -> SmallVector<Value> {
              owner.writeUnused(thread, b.number(kRoutingThreads));
              return {};
            },
            [&]() -> SmallVector<Value> {
              owner.scan.forBlocks(
                  firstRow(expert),
                  [&](Value first, Value count,
                      ValueRange row) -> SmallVector<Value> {
                    return {
                        b.add(row[0], sortPairs(expert, first, count, row[0]))};
                  });
              return {};
            });
        return {b.add(expert, b.blocks())};
      });
}

LLVM::LLVMFuncOp AssignBuilder::buildSlotsByPriority() {
  PrioritySort(*this).emit();
  return warp.finish();
}
