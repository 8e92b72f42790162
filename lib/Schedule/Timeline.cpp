// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Timeline.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::moe::detail;

InFlightDiagnostic &Timeline::addPlace(InFlightDiagnostic &diagnostic,
                                       StringRef reason) const {
  diagnostic << ", got " << reason;
  if (iteration >= 0)
    return diagnostic << " in chunk " << iteration << " of " << chunks;
  return diagnostic << " with " << chunks
                    << (chunks == 1 ? " chunk" : " chunks");
}

LogicalResult Timeline::report(InFlightDiagnostic diagnostic, StringRef reason,
                               const Transfer &transfer) const {
  addPlace(diagnostic, reason);
  Diagnostic &note = diagnostic.attachNote(transfer.op->getLoc());
  note << "'" << transfer.op->getName() << "' starts it here";
  if (transfer.iteration >= 0)
    note << ", in chunk " << transfer.iteration;
  return diagnostic;
}

LogicalResult Timeline::access(Operation *op, const ByteRange &region,
                               bool isWrite) {
  for (const Transfer &transfer : inFlight()) {
    if (transfer.write.overlaps(region))
      return report(op->emitOpError("expected a wait for the transfer that "
                                    "writes this memory before it is ")
                        << (isWrite ? "written" : "read"),
                    "none", transfer);
    if (isWrite && llvm::any_of(transfer.reads, [&](const ByteRange &read) {
          return read.overlaps(region);
        }))
      return report(op->emitOpError("expected a wait for the transfer that "
                                    "reads this memory before it is written"),
                    "none", transfer);
  }
  return success();
}

FailureOr<int64_t> Timeline::start(Operation *op, ArrayRef<ByteRange> reads,
                                   const ByteRange &write, bool isOwner) {
  for (const Transfer &transfer : inFlight())
    if (isOwner && transfer.isOwner && transfer.write.overlaps(write))
      return report(op->emitOpError("expected memory that no other transfer in "
                                    "flight writes"),
                    "the same", transfer);
  transfers.push_back(
      {op, iteration, SmallVector<ByteRange, 2>(reads), write, isOwner});
  return static_cast<int64_t>(transfers.size()) - 1;
}

LogicalResult Timeline::endLife(Operation *op, int64_t buffer, StringRef how) {
  ByteRange all;
  all.buffer = buffer;
  for (const Transfer &transfer : inFlight())
    if (transfer.write.overlaps(all) ||
        llvm::any_of(transfer.reads,
                     [&](const ByteRange &read) { return read.overlaps(all); }))
      return report(op->emitOpError("expected a wait for the transfer of this "
                                    "memory before ")
                        << how,
                    "none", transfer);
  return success();
}

LogicalResult Timeline::finish() {
  for (const Transfer &transfer : inFlight()) {
    InFlightDiagnostic diagnostic = transfer.op->emitOpError(
        "expected a wait for this transfer before the function ends");
    diagnostic << ", got none";
    if (transfer.iteration >= 0)
      diagnostic << " for chunk " << transfer.iteration << " of " << chunks;
    return diagnostic;
  }
  return success();
}
