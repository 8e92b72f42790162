// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scores of a router for one token, which the lowerings of a gate and of
// its gradient share.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_SCOREEMITTER_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_SCOREEMITTER_H

#include "LoopUtils.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::moe::detail {

/// Experts up to which a token's scratch is on the stack.
inline constexpr int64_t kStackExperts = 2048;

class ScoreEmitter {
public:
  ScoreEmitter(LoopBuilder &b, RouterAttr router, Type real)
      : b(b), router(router), real(real), zero(b.real(real, 0)),
        one(b.real(real, 1)) {}

protected:
  /// The score of a logit by itself; -inf gives 0, or -inf with `identity`.
  Value score(Value logit);
  /// Replaces logits, of which `top` is the largest, by exp(l - top) / sum.
  /// When all are -inf the result is 0.
  void softmaxRow(Row row, Value size, Value top);
  /// Ascending, in f64, whatever the type of the row.
  Value sumOf(Row row, Value size);
  Value largestOf(Row row, Value size);

  Value exp(Value x) { return b.make<math::ExpOp>(x); }
  Value isDead(Value key) {
    return b.compare(arith::CmpFPredicate::OEQ, key, b.minusInfinity(real));
  }

  LoopBuilder &b;
  RouterAttr router;
  Type real;
  Value zero, one;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_SCOREEMITTER_H
