// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What an interpreted program knows of numbers and memory.

#ifndef MOIRA_LIB_SCHEDULE_MEMORY_H
#define MOIRA_LIB_SCHEDULE_MEMORY_H

#include "Timeline.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Value.h"

namespace mlir::moe::detail {

/// An integer of the program, as far as it is known.
struct Number {
  std::optional<int64_t> value;
  /// Whether all ranks have the same.
  bool isShared = false;
  /// Whether it is the ticket of a transfer.
  bool isTicket = false;

  static Number shared(int64_t value) { return {value, true, false}; }
};

/// Memory that a memref value names.
struct View {
  ByteRange region;
  SmallVector<Number, 4> sizes;
};

/// The values of a run and the numbers that its buffers hold.
class Memory {
public:
  /// Memory of a new buffer for `memref`, with the dynamic `sizes` in order.
  View allocate(Value memref, ArrayRef<Number> dynamicSizes);

  Number getNumber(Value value) const { return numbers.lookup(value); }
  void set(Value value, Number number) { numbers[value] = number; }
  void set(Value value, View view) { views[value] = std::move(view); }
  /// `memref` names some memory of `buffer`, with sizes of its type only.
  void setSomewhere(Value memref, int64_t buffer);
  /// The memory of `memref`; any, if nothing is known.
  View getView(Value memref) const;
  /// A number, a memref or something else: whatever is known of `from`.
  void copy(Value from, Value to);
  void forget(Value value);

  Number getNumber(OpFoldResult value) const;
  /// The bytes of the element at `indices`, or all of the memref's.
  ByteRange getElement(Value memref, ValueRange indices) const;
  /// The bytes of a box of `memref`: `offsets`, `sizes` and `strides` per dim.
  ByteRange getBox(Value memref, ArrayRef<OpFoldResult> offsets,
                   ArrayRef<OpFoldResult> sizes,
                   ArrayRef<OpFoldResult> strides) const;

  /// Numbers in memory: known are those that were stored one by one.
  Number load(const ByteRange &region) const;
  void store(const ByteRange &region, Number number);
  /// Anything may stand in `region` from now on.
  void clobber(const ByteRange &region);

private:
  llvm::DenseMap<Value, Number> numbers;
  llvm::DenseMap<Value, View> views;
  llvm::DenseMap<std::pair<int64_t, int64_t>, Number> contents;
  int64_t numBuffers = 0;
};

/// Bytes of an element of `type`.
int64_t getElementBytes(MemRefType type);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SCHEDULE_MEMORY_H
