// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Losses of routers, in ops that are differentiable: what depends on logits is
// linalg with arith and math in its body, what depends on ids is integers. No
// value becomes NaN that a select would have to hide, because the gradient of
// what is not selected would be 0 times infinity.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSELOSSES_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSELOSSES_H

#include "DecomposeBuilder.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe::detail {

/// Builds the value of one loss before it.
class LossBuilder {
public:
  LossBuilder(DecomposeBuilder &b, LossOp op)
      : b(b), op(op), real(op.getResult().getType().getElementType()),
        logits(op.getLogits()) {}

  Value build();

private:
  //===--- Blocks ---------------------------------------------------------===//

  void findBlocks();
  Value splitInBlocks(Value rows);
  Value sumBlocks(Value rows);
  Value addOverRanks(Value mine);
  Value addUp(Value perBlock);

  //===--- Tokens ---------------------------------------------------------===//

  Value cleanLogits(Value raw);
  Value scoreTokens(Value clean, Value *logSum = nullptr);
  Value dropMasked(Value rows);
  Value countTokens();
  Value countPairs();
  Value findThresholds();
  Value buildLoads(Value scores);

  //===--- Losses ---------------------------------------------------------===//

  Value buildBalance(Value tokens);
  Value buildZ(Value tokens);
  Value buildLoadImportance();
  Value buildVariation(Value sums);
  Value average(Value losses, Value tokens);

  Value number(double value) { return b.real(real, value); }
  Value toReal(Value count) { return arith::SIToFPOp::create(b, real, count); }
  OpFoldResult attr(int64_t value) { return b.getIndexAttr(value); }
  /// `sum / count`, 0 where there is nothing.
  Value divide(Value sum, Value count) {
    Value none = b.compare(arith::CmpIPredicate::eq, count, b.i32(0));
    Value divisor = b.select(none, number(1), toReal(count));
    return b.select(none, number(0), arith::DivFOp::create(b, sum, divisor));
  }

  DecomposeBuilder &b;
  LossOp op;
  Type real;
  Value logits;
  /// Number of blocks; rows of each where they are equal.
  OpFoldResult numBlocks, numRows;
  /// `[T]`, the block of each row, where they are not.
  Value blockOf;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSELOSSES_H
