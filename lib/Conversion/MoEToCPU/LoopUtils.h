// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Short words for the scalar code and loops that the lowerings of routing and
// data movement emit.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_LOOPUTILS_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_LOOPUTILS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::moe::detail {

/// Bytes of a line of the caches.
inline constexpr int64_t kCacheLine = 64;

/// Bytes of a result from which it is written past the caches: it would not be
/// there any more when it is read.
inline constexpr int64_t kStreamBytes = int64_t{16} << 20;

/// The elements of a memref that differ in the last index only.
struct Row {
  Value memref;
  SmallVector<Value, 2> leading;

  Type getElementType() const {
    return cast<MemRefType>(memref.getType()).getElementType();
  }
  /// Whether neighbours of the row are known to be neighbours in memory.
  bool isContiguous() const;
};

/// Emits code at one location. Constants are kept together in front of it, so
/// that loop bodies read well before any clean-up; all of it must stay in the
/// block in which the builder stood when this was made, or nested in it.
class LoopBuilder {
public:
  LoopBuilder(OpBuilder &builder, Location loc);

  OpBuilder &builder;
  Location loc;

  template <typename OpT, typename... Args> Value make(Args &&...args) {
    return OpT::create(builder, loc, std::forward<Args>(args)...).getResult();
  }

  Value constant(TypedAttr value);
  Value index(int64_t value);
  Value integer(Type type, int64_t value);
  Value real(Type type, double value);
  /// -inf and the largest finite value of `type`.
  Value minusInfinity(Type type);
  Value largest(Type type);

  /// Of integers and indices, or of reals.
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  /// a / b: of reals, or rounded down of values that are not negative.
  Value div(Value a, Value b);
  Value compare(arith::CmpIPredicate predicate, Value a, Value b);
  Value compare(arith::CmpFPredicate predicate, Value a, Value b);
  Value select(Value condition, Value a, Value b);
  Value minimum(Value a, Value b); ///< signed integers and indices
  Value maximum(Value a, Value b); ///< signed integers and indices
  /// Maximum of two reals that are not NaN; either zero may stand for both.
  Value maximumReal(Value a, Value b);
  Value toIndex(Value integer);
  Value fromIndex(Type type, Value index);
  /// Whether `0 <= value < bound`, both of one type, in one comparison.
  Value inRange(Value value, Value bound);

  /// Extends f16 and bf16 to f32 and leaves other types (also vectors).
  Value widen(Value value);
  /// Changes the precision of a real or a vector of them to `element`.
  Value toReal(Type element, Value value);
  /// NaN becomes -inf, and +inf the largest finite value.
  Value sanitize(Value value);
  /// An integer of the same width that orders as the real does. NaN orders as
  /// -inf, -0 as +0; the least integer stands for no real.
  Value orderedBits(Value value);

  Value dim(Value memref, int64_t dim);
  Value load(Value memref, ValueRange indices);
  void store(Value value, Value memref, ValueRange indices);
  Value load(const Row &row, Value i);
  void store(Value value, const Row &row, Value i);
  /// Scratch on the stack of a static size. It is freed at the end of the
  /// enclosing parallel body or function.
  Value scratch(Type element, ArrayRef<int64_t> shape);
  /// Scratch for the rest of the function; `shape` gives the dynamic sizes.
  Value workspace(Type element, ArrayRef<int64_t> shape, ValueRange sizes);

  using Body = function_ref<void(Value)>;
  using Step = function_ref<SmallVector<Value>(Value, ValueRange)>;
  /// `body(i)` for `begin <= i < end`, in order.
  void loop(Value begin, Value end, Body body, int64_t step = 1);
  void loop(int64_t end, Body body) { loop(index(0), index(end), body); }
  /// The same with values carried from one iteration to the next.
  SmallVector<Value> loop(Value begin, Value end, ValueRange inits, Step step);
  /// Iterations that may run in any order and at the same time.
  void parallel(Value end, Body body);
  void when(Value condition, function_ref<void()> then,
            function_ref<void()> otherwise = nullptr);
  SmallVector<Value> choose(Value condition,
                            function_ref<SmallVector<Value>()> then,
                            function_ref<SmallVector<Value>()> otherwise);
  /// While `condition` of the carried values holds, steps them.
  SmallVector<Value>
  repeatWhile(ValueRange inits, function_ref<Value(ValueRange)> condition,
              function_ref<SmallVector<Value>(ValueRange)> step);

  /// Covers `0 <= i < end` by calls `body(i, lanes)` that handle elements i to
  /// i + lanes - 1, most of them many at once unless `scalarOnly`.
  void overLanes(Value end, bool scalarOnly,
                 function_ref<void(Value, int64_t)> body);
  /// Elements i to i + lanes - 1, as a vector unless `lanes` is 1.
  Value loadLanes(const Row &row, Value i, int64_t lanes);
  void storeLanes(Value value, const Row &row, Value i, int64_t lanes);
  /// Stores lanes past the caches. The place is aligned to the vector's size,
  /// or to a cache line where that is less.
  void streamLanes(Value value, const Row &row, Value i);
  /// Brings streamed lanes in order with what follows: they are in order with
  /// nothing until then.
  void orderStreams();
  /// Asks for lanes with a locality of memref.prefetch: 2 is the second-level
  /// cache, 1 those beyond it.
  void prefetchLanes(const Row &row, Value i, int64_t lanes, int64_t locality);
  /// `value` in all lanes.
  Value spread(Value value, int64_t lanes);

private:
  Operation *front = nullptr;
  llvm::DenseMap<Attribute, Value> constants;
};

/// Returns the private function `name` of the module around `op`. When it is
/// not there yet, adds it; `fill` gives it a body, or attributes.
func::FuncOp getOrAddFunction(OpBuilder &builder, Operation *op, StringRef name,
                              FunctionType type,
                              function_ref<void(func::FuncOp)> fill);

/// The families of patterns; `populateRoutingToLoopsPatterns` adds them all.
void populateGatePatterns(RewritePatternSet &patterns);
void populateAssignPatterns(RewritePatternSet &patterns);
void populateMovementPatterns(RewritePatternSet &patterns);
void populatePackPatterns(RewritePatternSet &patterns);
void populateGateGradientPatterns(RewritePatternSet &patterns);
void populatePairDotPatterns(RewritePatternSet &patterns);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_LOOPUTILS_H
