// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gate_gradient: parallel over tokens, O(E + K) each.

#include "ScoreEmitter.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;

namespace {
/// Emits one gradient. Members whose name ends in `Row` emit code for one
/// token; the order of operations is that of the decomposition.
class GateGradientEmitter : ScoreEmitter {
public:
  GateGradientEmitter(LoopBuilder &b, GateGradientOp op);

  void emit();

private:
  /// Of a token: scores and gradients of all experts; of its choices the ids
  /// with a gradient, the ids that the softmax has, scores and gradients.
  struct Scratch {
    Row scores, result, ids, selected, chosen, gradients;
  };

  Scratch scratchOf(Value token);
  void scoreRow(Value token, Scratch s);
  void chooseRow(Value token, Scratch s);
  void normalizeRow(Scratch s);
  void softmaxGradientRow(Scratch s);
  void scatterRow(Row ids, Row values, Row result);
  void storeRow(Value token, Row result);

  Value logitOf(Value token, Value e) {
    return b.sanitize(b.widen(b.load(op.getLogits(), {token, e})));
  }
  Value isExpert(Value id) {
    return b.inRange(id, b.integer(i32, op.getNumExperts()));
  }
  Value expertOf(Value id) { return b.toIndex(b.maximum(id, none)); }
  Value isZero(Value value) {
    return b.compare(CmpFPredicate::OEQ, value, zero);
  }
  Value sumOfProducts(Row a, Row c);
  Value slope(Value logit, Value score);

  GateGradientOp op;
  Type i32, f64;
  bool after, softmax;
  Value experts, choices, none, unused;
  /// Scratch of all tokens when there is too much of it for the stack:
  /// `[T, 2, E]`, `[T, 2, K]` of reals and of ids.
  Value wide, wideChoices, wideIds;
};
} // namespace

GateGradientEmitter::GateGradientEmitter(LoopBuilder &b, GateGradientOp op)
    : ScoreEmitter(b, op.getRouter(),
                   getElementTypeOrSelf(op.getDweights().getType())),
      op(op), i32(b.builder.getI32Type()), f64(b.builder.getF64Type()),
      after(router.getAfterTopK()),
      softmax(router.getScore() == Score::Softmax) {
  experts = b.index(op.getNumExperts());
  choices = b.index(op.getNumChoices());
  none = b.integer(i32, 0);
  unused = b.integer(i32, -1);
  if (op.getNumExperts() + op.getNumChoices() <= kStackExperts)
    return;
  Value tokens = b.dim(op.getLogits(), 0);
  int64_t T = ShapedType::kDynamic;
  wide = b.workspace(real, {T, 2, op.getNumExperts()}, tokens);
  wideChoices = b.workspace(real, {T, 2, op.getNumChoices()}, tokens);
  wideIds = b.workspace(i32, {T, 2, op.getNumChoices()}, tokens);
}

GateGradientEmitter::Scratch GateGradientEmitter::scratchOf(Value token) {
  auto rowOf = [&](Value all, Type element, int64_t size, int64_t i) -> Row {
    if (all)
      return {all, {token, b.index(i)}};
    return {b.scratch(element, size), {}};
  };
  int64_t E = op.getNumExperts(), K = op.getNumChoices();
  Scratch s;
  s.scores = rowOf(wide, real, E, 0);
  s.result = rowOf(wide, real, E, 1);
  s.ids = rowOf(wideIds, i32, K, 0);
  s.selected = op.getSelected() && after ? rowOf(wideIds, i32, K, 1) : s.ids;
  s.chosen = rowOf(wideChoices, real, K, 0);
  s.gradients = rowOf(wideChoices, real, K, 1);
  return s;
}

/// Scores of all experts, and gradients of 0.
void GateGradientEmitter::scoreRow(Value token, Scratch s) {
  b.loop(b.index(0), experts, [&](Value e) {
    b.store(zero, s.result, e);
    if (!after)
      b.store(score(logitOf(token, e)), s.scores, e);
  });
  if (softmax && !after)
    softmaxRow(s.scores, experts, largestOf(s.scores, experts));
}

/// Which choices have a gradient, their scores, and the gradients of their
/// weights before the scale.
void GateGradientEmitter::chooseRow(Value token, Scratch s) {
  double scale = router.getScale().convertToDouble();
  b.loop(b.index(0), choices, [&](Value j) {
    Value id = b.load(op.getIds(), {token, j}), used = isExpert(id);
    Value e = expertOf(b.select(used, id, none));
    Value logit = logitOf(token, e), dead = isDead(logit);
    Value given = after ? Value() : b.load(s.scores, e);
    if (op.getWeights()) {
      Value constant = isZero(b.load(op.getWeights(), {token, j}));
      if (!after)
        constant = b.select(isZero(given), dead, constant);
      dead = b.make<arith::OrIOp>(dead, constant);
    }
    Value alive = b.select(dead, unused, id);
    alive = b.select(used, alive, unused);
    b.store(alive, s.ids, j);
    Value isAlive = isExpert(alive);
    Value own = b.load(op.getDweights(), {token, j});
    if (scale != 1)
      own = b.mul(own, b.real(real, scale));
    b.store(b.select(isAlive, own, zero), s.gradients, j);
    if (!after)
      return b.store(b.select(isAlive, given, zero), s.chosen, j);
    Value takesPart = isAlive;
    if (op.getSelected()) {
      Value other = b.load(op.getSelected(), {token, j});
      Value isOther = isExpert(other);
      Value otherLogit =
          logitOf(token, expertOf(b.select(isOther, other, none)));
      other = b.select(isDead(otherLogit), unused, other);
      other = b.select(isOther, other, unused);
      other = b.select(used, alive, other);
      b.store(other, s.selected, j);
      takesPart = isExpert(other);
      logit = b.select(used, logit, otherLogit);
    }
    b.store(b.select(takesPart, logit, b.minusInfinity(real)), s.chosen, j);
  });
  if (!after)
    return;
  if (softmax)
    return softmaxRow(s.chosen, choices, largestOf(s.chosen, choices));
  b.loop(b.index(0), choices,
         [&](Value j) { b.store(score(b.load(s.chosen, j)), s.chosen, j); });
}

Value GateGradientEmitter::sumOfProducts(Row a, Row c) {
  return b.loop(b.index(0), choices, b.real(f64, 0),
                [&](Value j, ValueRange sum) -> SmallVector<Value> {
                  return {b.make<math::FmaOp>(b.toReal(f64, b.load(a, j)),
                                              b.toReal(f64, b.load(c, j)),
                                              sum[0])};
                })[0];
}

void GateGradientEmitter::normalizeRow(Scratch s) {
  auto used = [&](Value j, Value value) {
    return b.select(isExpert(b.load(s.ids, j)), value, zero);
  };
  Value sum = b.loop(b.index(0), choices, b.real(f64, 0),
                     [&](Value j, ValueRange sum) -> SmallVector<Value> {
                       Value own = used(j, b.load(s.chosen, j));
                       return {b.add(sum[0], b.toReal(f64, own))};
                     })[0];
  Value eps = b.real(f64, router.getEps().convertToDouble());
  Value least = b.compare(CmpFPredicate::OLT, sum, eps), divisor;
  if (router.getNormalize() == Normalize::SumPlusEps)
    divisor = b.add(sum, eps);
  else
    divisor = b.select(least, eps, sum);
  divisor = b.toReal(real, divisor);
  Value isNone = isZero(divisor);
  Value common = b.loop(
      b.index(0), choices, b.real(f64, 0),
      [&](Value j, ValueRange sum) -> SmallVector<Value> {
        Value own = used(j, b.load(s.chosen, j));
        Value quotient = b.select(isNone, zero, b.div(own, divisor));
        return {b.make<math::FmaOp>(b.toReal(f64, b.load(s.gradients, j)),
                                    b.toReal(f64, quotient), sum[0])};
      })[0];
  b.loop(b.index(0), choices, [&](Value j) {
    Value own = b.load(s.gradients, j);
    Value change = b.toReal(real, b.sub(b.toReal(f64, own), common));
    if (router.getNormalize() == Normalize::MaxSumEps)
      change = b.select(least, own, change);
    Value quotient = b.select(isNone, zero, b.div(change, divisor));
    b.store(used(j, quotient), s.gradients, j);
  });
}

/// Adds every choice's value to its expert's.
void GateGradientEmitter::scatterRow(Row ids, Row values, Row result) {
  b.loop(b.index(0), choices, [&](Value j) {
    Value id = b.load(ids, j);
    b.when(isExpert(id), [&] {
      Value e = b.toIndex(id);
      b.store(b.add(b.load(result, e), b.load(values, j)), result, e);
    });
  });
}

void GateGradientEmitter::softmaxGradientRow(Scratch s) {
  Value sum = sumOfProducts(s.chosen, s.gradients);
  auto through = [&](Row scores, Row gradients, Value size) {
    b.loop(b.index(0), size, [&](Value i) {
      Value change = b.sub(b.toReal(f64, b.load(gradients, i)), sum);
      b.store(b.mul(b.load(scores, i), b.toReal(real, change)), gradients, i);
    });
  };
  if (after) {
    through(s.chosen, s.gradients, choices);
    return scatterRow(s.selected, s.gradients, s.result);
  }
  scatterRow(s.ids, s.gradients, s.result);
  through(s.scores, s.result, experts);
}

/// d score / d logit.
Value GateGradientEmitter::slope(Value logit, Value score) {
  if (router.getScore() == Score::Sigmoid)
    return b.mul(score, b.sub(one, score));
  Value size = b.make<math::AbsFOp>(logit);
  Value power = exp(b.make<arith::NegFOp>(size));
  Value above = b.compare(CmpFPredicate::OGE, logit, zero);
  Value sigmoid = b.div(b.select(above, one, power), b.add(one, power));
  Value result = b.div(sigmoid, b.mul(b.real(real, 2), score));
  return b.select(isZero(score), zero, result);
}

void GateGradientEmitter::storeRow(Value token, Row result) {
  Value out = op.getOuts().front();
  Type element = cast<MemRefType>(out.getType()).getElementType();
  auto &semantics = cast<FloatType>(real).getFloatSemantics();
  Value infinity =
      b.constant(b.builder.getFloatAttr(real, APFloat::getInf(semantics)));
  b.loop(b.index(0), experts, [&](Value e) {
    Value size =
        b.make<math::AbsFOp>(b.widen(b.load(op.getLogits(), {token, e})));
    Value finite = b.compare(CmpFPredicate::OLT, size, infinity);
    Value value = b.select(finite, b.load(result, e), zero);
    b.store(b.toReal(element, value), out, {token, e});
  });
}

void GateGradientEmitter::emit() {
  b.parallel(b.dim(op.getLogits(), 0), [&](Value token) {
    Scratch s = scratchOf(token);
    scoreRow(token, s);
    chooseRow(token, s);
    if (router.getNormalize() != Normalize::None)
      normalizeRow(s);
    if (softmax) {
      softmaxGradientRow(s);
    } else {
      if (router.getScore() != Score::Identity)
        b.loop(b.index(0), choices, [&](Value j) {
          Value id = b.load(s.ids, j);
          Value logit = logitOf(token, expertOf(id));
          logit = b.select(isExpert(id), logit, b.minusInfinity(real));
          Value own = b.load(s.gradients, j);
          b.store(b.mul(own, slope(logit, b.load(s.chosen, j))), s.gradients,
                  j);
        });
      scatterRow(s.ids, s.gradients, s.result);
    }
    storeRow(token, s.result);
  });
}

namespace {
struct GateGradientToLoops : OpRewritePattern<GateGradientOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GateGradientOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    GateGradientEmitter(b, op).emit();
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populateGateGradientPatterns(
    RewritePatternSet &patterns) {
  patterns.add<GateGradientToLoops>(patterns.getContext());
}
