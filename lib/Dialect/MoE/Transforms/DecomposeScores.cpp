// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DecomposeScores.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;

Value ScoreBuilder::sanitize(Value value) {
  const llvm::fltSemantics &semantics =
      cast<FloatType>(real).getFloatSemantics();
  Value largest = arith::ConstantOp::create(
      b, b.getFloatAttr(real, APFloat::getLargest(semantics)));
  value = b.select(b.isNaN(value), minusInfinity(), value);
  return b.min(value, largest);
}

Value ScoreBuilder::sanitizedLogits(Value logits, int64_t columns) {
  return b.map(logits, matrix(columns), [&](ValueRange args) {
    return sanitize(b.toReal(args[0], real));
  });
}

Value ScoreBuilder::score(Value logit) {
  switch (router.getScore()) {
  case Score::Sigmoid: {
    Value one = b.real(real, 1);
    Value exp = math::ExpOp::create(b, arith::NegFOp::create(b, logit));
    return arith::DivFOp::create(b, one, b.add(one, exp));
  }
  case Score::SqrtSoftplus: {
    Value magnitude = math::AbsFOp::create(b, logit);
    Value exp = math::ExpOp::create(b, arith::NegFOp::create(b, magnitude));
    Value tail = math::Log1pOp::create(b, exp);
    return math::SqrtOp::create(b, b.add(b.max(logit, b.real(real, 0)), tail));
  }
  case Score::Identity:
  case Score::Softmax:
    return logit;
  }
  llvm_unreachable("covered switch");
}

Value ScoreBuilder::scores(Value logits, int64_t columns) {
  if (router.getScore() != Score::Softmax)
    return b.map(logits, matrix(columns),
                 [&](ValueRange args) { return score(args[0]); });
  Value top = b.generic(
      "pr", {{logits, {0, 1}}}, {{b.filled({rows}, minusInfinity()), {0}}},
      [&](ValueRange args) { return Values{b.max(args[0], args[1])}; })[0];
  // A row of -inf alone has the scores 0.
  Value exps = b.generic(
      "pp", {{logits, {0, 1}}, {top, {0}}}, {{matrix(columns), {0, 1}}},
      [&](ValueRange args) {
        Value exp = math::ExpOp::create(b, b.sub(args[0], args[1]));
        return Values{b.select(isMinusInfinity(args[1]), b.real(real, 0), exp)};
      })[0];
  Value sums = b.generic("pr", {{exps, {0, 1}}},
                         {{b.filled({rows}, b.real(b.getF64Type(), 0)), {0}}},
                         [&](ValueRange args) {
                           Value exp = b.toReal(args[0], b.getF64Type());
                           return Values{b.add(args[1], exp)};
                         })[0];
  return b.generic("pp", {{exps, {0, 1}}, {sums, {0}}},
                   {{matrix(columns), {0, 1}}}, [&](ValueRange args) {
                     Value sum = b.toReal(args[1], real),
                           none = b.real(real, 0);
                     Value isZero = b.compare(CmpFPredicate::OEQ, sum, none);
                     Value quotient = arith::DivFOp::create(b, args[0], sum);
                     return Values{b.select(isZero, none, quotient)};
                   })[0];
}

ScoreBuilder::Normalized ScoreBuilder::normalize(Value weights,
                                                 int64_t columns) {
  Type f64 = b.getF64Type();
  Value sums = b.generic(
      "pr", {{weights, {0, 1}}}, {{b.filled({rows}, b.real(f64, 0)), {0}}},
      [&](ValueRange args) {
        return Values{b.add(args[1], b.toReal(args[0], f64))};
      })[0];
  Value eps = b.real(f64, router.getEps().convertToDouble());
  Value divisors = b.generic(
      "p", {{sums, {0}}}, {{b.empty({rows}, real), {0}}}, [&](ValueRange args) {
        Value divisor = router.getNormalize() == Normalize::SumPlusEps
                            ? b.add(args[0], eps)
                            : b.max(args[0], eps);
        return Values{b.toReal(divisor, real)};
      })[0];
  Value quotients =
      b.generic("pp", {{weights, {0, 1}}, {divisors, {0}}},
                {{matrix(columns), {0, 1}}}, [&](ValueRange args) {
                  Value none = b.real(real, 0);
                  Value isZero = b.compare(CmpFPredicate::OEQ, args[1], none);
                  Value quotient = arith::DivFOp::create(b, args[0], args[1]);
                  return Values{b.select(isZero, none, quotient)};
                })[0];
  return {quotients, sums, divisors};
}
