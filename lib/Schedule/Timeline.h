// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What happens before what: transfers in flight and the memory that they hold.

#ifndef MOIRA_LIB_SCHEDULE_TIMELINE_H
#define MOIRA_LIB_SCHEDULE_TIMELINE_H

#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

#include <limits>

namespace mlir::moe::detail {

/// Bytes of a buffer, `begin` to `end`.
struct ByteRange {
  /// A buffer that may be any.
  static constexpr int64_t kAnyBuffer = -1;
  static constexpr int64_t kUnknownEnd = std::numeric_limits<int64_t>::max();

  int64_t buffer = kAnyBuffer;
  int64_t begin = 0, end = kUnknownEnd;

  bool overlaps(const ByteRange &other) const {
    if (begin >= end || other.begin >= other.end)
      return false;
    if (buffer == kAnyBuffer || other.buffer == kAnyBuffer)
      return true;
    return buffer == other.buffer && begin < other.end && other.begin < end;
  }
};

/// The one order of a rank's accesses, and the transfers beside it, which their
/// queue ends in the order of their starts. Reports the first conflict.
class Timeline {
public:
  /// `chunks` is the number of chunks that the run is for.
  explicit Timeline(int64_t chunks) : chunks(chunks) {}

  /// Loops tell where the run is; -1 outside of loops over chunks.
  void setIteration(int64_t number) { iteration = number; }
  int64_t getIteration() const { return iteration; }

  LogicalResult access(Operation *op, const ByteRange &region, bool isWrite);
  /// Starts a transfer and gives its ticket. With `isOwner` what it writes may
  /// be written by no other transfer in flight.
  FailureOr<int64_t> start(Operation *op, ArrayRef<ByteRange> reads,
                           const ByteRange &write, bool isOwner);
  /// Ends the transfer `ticket` and those before it.
  void wait(int64_t ticket) { ended = std::max(ended, ticket + 1); }
  void waitForAll() { ended = transfers.size(); }
  /// `op` ends the life of `buffer`; `how` says by what.
  LogicalResult endLife(Operation *op, int64_t buffer, StringRef how);
  /// The function ends.
  LogicalResult finish();
  /// Adds ", got REASON in chunk i of n" to a diagnostic.
  InFlightDiagnostic &addPlace(InFlightDiagnostic &diagnostic,
                               StringRef reason) const;

private:
  struct Transfer {
    Operation *op;
    int64_t iteration;
    SmallVector<ByteRange, 2> reads;
    ByteRange write;
    bool isOwner;
  };
  ArrayRef<Transfer> inFlight() const {
    return ArrayRef(transfers).drop_front(ended);
  }
  LogicalResult report(InFlightDiagnostic diagnostic, StringRef reason,
                       const Transfer &transfer) const;

  int64_t chunks, iteration = -1;
  /// Transfers in the order of their tickets; so many have ended.
  SmallVector<Transfer> transfers;
  int64_t ended = 0;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SCHEDULE_TIMELINE_H
