// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Transfers and products that overlap: loops over chunks, split, and transfers
// in straight code.

#ifndef MOIRA_LIB_SCHEDULE_SPLITCHUNKS_H
#define MOIRA_LIB_SCHEDULE_SPLITCHUNKS_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::moe::detail {

/// Queues what `op`, an exchange in buffer form, does; returns the ticket.
Value startExchange(OpBuilder &builder, ExchangeOp op);

/// The memref that `memref` is a view of, itself if it is none.
Value findRoot(Value memref);

/// The first op after `start`, in its block, that uses memory of `root` or
/// contains an op that does; the terminator if there is none.
Operation *findFirstUse(Operation *start, Value root);

/// Queues what `op`, an exchange or a sum in buffer form, does; returns the
/// ticket.
Value startTransfer(OpBuilder &builder, Operation *op);

/// Replaces an exchange or a sum in buffer form by a start, as early in its
/// block as its operands allow, and a wait as late as its memory allows.
void overlapTransfer(Operation *op);

/// Splits a loop over chunks with exchanges of the queue `communication`.
/// Returns false, and changes nothing, where memory that a chunk travels in
/// cannot be kept for each chunk.
bool splitChunks(scf::ForOp loop);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SCHEDULE_SPLITCHUNKS_H
