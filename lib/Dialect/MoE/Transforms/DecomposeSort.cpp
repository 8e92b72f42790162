// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DecomposeSort.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

/// How often runs must double until one has `count` elements.
static Value numPasses(DecomposeBuilder &b, Value count) {
  Value one = b.index(1);
  Value last = b.sub(b.max(count, one), one);
  Value bits = arith::IndexCastOp::create(b, b.getI64Type(), last);
  Value zeros = math::CountLeadingZerosOp::create(b, bits);
  return b.sub(b.index(64), b.toIndex(zeros));
}

/// The number at `order[i]` and its key.
static std::pair<Value, Value> load(DecomposeBuilder &b, Value order, Value i,
                                    llvm::function_ref<Value(Value)> keyOf) {
  Value number = b.extract(order, i);
  Value key = keyOf(b.toIndex(number));
  return {number, b.select(b.isNaN(key), b.infinity(key.getType(), true), key)};
}

/// Merges order[low..middle] and order[middle..high] into the same elements of
/// `merged`.
static Value mergeRuns(DecomposeBuilder &b, Value order, Value merged,
                       Value low, Value middle, Value high,
                       llvm::function_ref<Value(Value)> keyOf) {
  Value one = b.index(1), last = b.sub(high, one);
  auto less = [&](Value x, Value y) {
    return b.compare(CmpIPredicate::slt, x, y);
  };
  return b.loop(
      low, high, {merged, low, middle}, [&](Value out, ValueRange args) {
        Value left = args[1], right = args[2];
        // An index past its run is not used, but must not leave the tensor.
        auto [leftNumber, leftKey] = load(b, order, b.min(left, last), keyOf);
        auto [rightNumber, rightKey] =
            load(b, order, b.min(right, last), keyOf);
        Value hasLeft = less(left, middle), hasRight = less(right, high);
        Value first = b.compare(CmpFPredicate::OGE, leftKey, rightKey);
        Value takeLeft = b.select(hasRight, first, hasLeft);
        takeLeft = arith::AndIOp::create(b, takeLeft, hasLeft);
        Value number = b.select(takeLeft, leftNumber, rightNumber);
        return Values{b.insert(number, args[0], out),
                      b.select(takeLeft, b.add(left, one), left),
                      b.select(takeLeft, right, b.add(right, one))};
      })[0];
}

SortBuffers
mlir::moe::detail::buildStableSort(DecomposeBuilder &b, SortBuffers buffers,
                                   Value begin, Value end,
                                   llvm::function_ref<Value(Value)> keyOf) {
  Value zero = b.index(0), one = b.index(1);
  Value count = b.sub(end, begin);
  Values sorted =
      b.loop(zero, numPasses(b, count), {buffers.order, buffers.scratch, one},
             [&](Value, ValueRange pass) {
               Value width = pass[2], twice = b.add(width, width);
               Value runs = arith::CeilDivUIOp::create(b, count, twice);
               auto mergeRun = [&](Value run, ValueRange args) {
                 Value low = b.add(begin, b.mul(run, twice));
                 Value middle = b.min(b.add(low, width), end);
                 Value high = b.min(b.add(low, twice), end);
                 return Values{
                     mergeRuns(b, pass[0], args[0], low, middle, high, keyOf)};
               };
               Value merged = b.loop(zero, runs, pass[1], mergeRun)[0];
               auto copyBack = [&](Value i, ValueRange args) {
                 return Values{b.insert(b.extract(merged, i), args[0], i)};
               };
               Value copied = b.loop(begin, end, pass[0], copyBack)[0];
               return Values{copied, merged, twice};
             });
  return {sorted[0], sorted[1]};
}

SortBuffers mlir::moe::detail::buildDescendingOrder(
    DecomposeBuilder &b, SortBuffers buffers, Value begin, Value end,
    llvm::function_ref<Value(Value)> keyOf) {
  auto number = [&](Value i, ValueRange args) {
    return Values{b.insert(b.toI32(i), args[0], i)};
  };
  buffers.order = b.loop(begin, end, buffers.order, number)[0];
  return buildStableSort(b, buffers, begin, end, keyOf);
}
