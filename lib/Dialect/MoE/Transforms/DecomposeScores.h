// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scores of a router, which the decompositions of a gate and of its
// gradient share. docs/routing.md.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESCORES_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESCORES_H

#include "DecomposeBuilder.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

namespace mlir::moe::detail {

/// Matrices are `[T, columns]` of `real`, f32 or f64.
class ScoreBuilder {
public:
  ScoreBuilder(const OpBuilder &builder, Operation *op, RouterAttr router,
               Value logits, Type real)
      : b(builder, op), router(router), real(real), rows(b.size(logits, 0)) {}

protected:
  Value minusInfinity() { return b.infinity(real, /*negative=*/true); }
  Value isMinusInfinity(Value value) {
    return b.compare(arith::CmpFPredicate::OEQ, value, minusInfinity());
  }
  Sizes shape(int64_t columns) { return {rows, b.getIndexAttr(columns)}; }
  Value matrix(int64_t columns) { return b.empty(shape(columns), real); }

  /// NaN becomes -inf and +inf the largest finite value.
  Value sanitize(Value value);
  Value sanitizedLogits(Value logits, int64_t columns);
  /// The score of one logit by itself.
  Value score(Value logit);
  /// Scores of `logits [T, columns]`.
  Value scores(Value logits, int64_t columns);

  /// Weights divided by what the router says, 0 where that is 0.
  struct Normalized {
    Value quotients;
    /// `[T]`: sums in f64, and the divisors in `real`.
    Value sums, divisors;
  };
  Normalized normalize(Value weights, int64_t columns);

  DecomposeBuilder b;
  RouterAttr router;
  Type real;
  OpFoldResult rows;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSESCORES_H
