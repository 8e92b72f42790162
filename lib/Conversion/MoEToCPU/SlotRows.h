// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rows that slots name.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_SLOTROWS_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_SLOTROWS_H

#include "LoopUtils.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::moe::detail {

/// Finds the row of a slot in a ragged or a padded buffer.
class SlotRows {
public:
  SlotRows(LoopBuilder &b, Value rows) : b(b), rows(rows) {
    auto type = cast<MemRefType>(rows.getType());
    bound = b.dim(rows, 0);
    if (type.getRank() == 2)
      return;
    perExpert = b.dim(rows, 1);
    bound = b.mul(bound, perExpert);
    if (!type.getLayout().isIdentity())
      return;
    // One dimension for both, so that a slot is a row without a division.
    SmallVector<ReassociationIndices> flat = {{0, 1}, {2}};
    this->rows = b.make<memref::CollapseShapeOp>(rows, flat);
    perExpert = nullptr;
  }

  /// False for -1, and for anything that is not a row of the buffer.
  Value isRow(Value slot) { return b.inRange(slot, bound); }

  Row operator[](Value slot) {
    if (!perExpert)
      return {rows, {slot}};
    return {rows,
            {b.div(slot, perExpert), b.make<arith::RemUIOp>(slot, perExpert)}};
  }

private:
  LoopBuilder &b;
  Value rows, bound, perExpert;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_SLOTROWS_H
