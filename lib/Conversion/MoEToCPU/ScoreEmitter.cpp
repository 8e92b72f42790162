// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ScoreEmitter.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;

Value ScoreEmitter::sumOf(Row row, Value size) {
  Type f64 = b.builder.getF64Type();
  return b.loop(b.index(0), size, b.real(f64, 0),
                [&](Value i, ValueRange sum) -> SmallVector<Value> {
                  return {b.add(sum[0], b.toReal(f64, b.load(row, i)))};
                })[0];
}

Value ScoreEmitter::score(Value logit) {
  switch (router.getScore()) {
  case Score::Sigmoid:
    return b.div(one, b.add(one, exp(b.make<arith::NegFOp>(logit))));
  case Score::SqrtSoftplus: {
    Value size = b.make<math::AbsFOp>(logit);
    Value tail = b.make<math::Log1pOp>(exp(b.make<arith::NegFOp>(size)));
    return b.make<math::SqrtOp>(b.add(b.maximumReal(logit, zero), tail));
  }
  case Score::Identity:
  case Score::Softmax:
    return logit;
  }
  llvm_unreachable("unknown score");
}

void ScoreEmitter::softmaxRow(Row row, Value size, Value top) {
  Value shift = b.select(isDead(top), zero, top);
  b.loop(b.index(0), size,
         [&](Value i) { b.store(exp(b.sub(b.load(row, i), shift)), row, i); });
  Value sum = b.toReal(real, sumOf(row, size));
  // The largest term is 1, so a sum of 0 means that there was none.
  Value isZero = b.compare(CmpFPredicate::OEQ, sum, zero);
  sum = b.select(isZero, one, sum);
  b.loop(b.index(0), size,
         [&](Value i) { b.store(b.div(b.load(row, i), sum), row, i); });
}

Value ScoreEmitter::largestOf(Row row, Value size) {
  return b.loop(b.index(0), size, b.minusInfinity(real),
                [&](Value i, ValueRange most) -> SmallVector<Value> {
                  return {b.maximumReal(most[0], b.load(row, i))};
                })[0];
}
