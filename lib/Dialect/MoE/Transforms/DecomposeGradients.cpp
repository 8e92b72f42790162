// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"
#include "DecomposeRows.h"
#include "DecomposeScores.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

//===----------------------------------------------------------------------===//
// moe.gate_gradient
//===----------------------------------------------------------------------===//

namespace {

/// The steps of a gate from back to front. Matrices are [T, K] for choices and
/// [T, E] for experts; a choice without a gradient has the id -1.
class GateGradientBuilder : ScoreBuilder {
public:
  GateGradientBuilder(RewriterBase &rewriter, GateGradientOp op)
      : ScoreBuilder(rewriter, op, op.getRouter(), op.getLogits(),
                     getElementTypeOrSelf(op.getDweights().getType())),
        op(op), experts(op.getNumExperts()), choices(op.getNumChoices()),
        logits(sanitizedLogits(op.getLogits(), experts)) {}

  Value build();

private:
  Value isExpert(Value id) {
    return b.compare(CmpIPredicate::ult, id, b.i32(experts));
  }
  /// `matrix[t, id]` for a choice of the token whose row the loops are at.
  Value atExpert(Value matrix, Value id) {
    Value e = b.toIndex(b.select(isExpert(id), id, b.i32(0)));
    return b.extract(matrix, {b.loopIndex(0), e});
  }
  Value isZero(Value value) {
    return b.compare(CmpFPredicate::OEQ, value, b.real(real, 0));
  }

  Value aliveIds(Value scores);
  Value selectedIds(Value alive);
  Value choose(Value ids, Value matrix, Value otherwise);
  Value throughNormalization(Value weights, Value gradients, Value ids);
  Value throughSoftmax(Value scores, Value gradients, Value sums,
                       int64_t columns);
  Value sumOfProducts(Value a, Value c);
  Value throughScore(Value logit, Value score, Value gradient);
  Value scatter(Value ids, Value values);

  GateGradientOp op;
  int64_t experts, choices;
  Value logits;
};

} // namespace

/// The ids of choices whose weight depends on their logit; `scores` of all
/// experts, null with `after_top_k`.
Value GateGradientBuilder::aliveIds(Value scores) {
  SmallVector<DecomposeBuilder::Access> ins = {{op.getIds(), {0, 1}}};
  if (op.getWeights())
    ins.push_back({op.getWeights(), {0, 1}});
  Value out = b.empty(shape(choices), b.getI32Type());
  return b.generic("pp", ins, {{out, {0, 1}}}, [&](ValueRange args) {
    Value dead = isMinusInfinity(atExpert(logits, args[0]));
    if (op.getWeights()) {
      Value constant = isZero(args[1]);
      if (scores)
        constant = b.select(isZero(atExpert(scores, args[0])), dead, constant);
      dead = arith::OrIOp::create(b, dead, constant);
    }
    Value id = b.select(dead, b.i32(-1), args[0]);
    return Values{b.select(isExpert(args[0]), id, b.i32(-1))};
  })[0];
}

/// The ids of choices that take part in the softmax over choices.
Value GateGradientBuilder::selectedIds(Value alive) {
  if (!op.getSelected())
    return alive;
  Value out = b.empty(shape(choices), b.getI32Type());
  return b.generic(
      "pp",
      {{op.getSelected(), {0, 1}}, {op.getIds(), {0, 1}}, {alive, {0, 1}}},
      {{out, {0, 1}}}, [&](ValueRange args) {
        Value dead = isMinusInfinity(atExpert(logits, args[0]));
        Value id = b.select(dead, b.i32(-1), args[0]);
        id = b.select(isExpert(args[0]), id, b.i32(-1));
        return Values{b.select(isExpert(args[1]), args[2], id)};
      })[0];
}

/// `matrix[t, ids[t, j]]`, and `otherwise` for choices without a gradient.
Value GateGradientBuilder::choose(Value ids, Value matrix, Value otherwise) {
  return b.generic("pp", {{ids, {0, 1}}}, {{this->matrix(choices), {0, 1}}},
                   [&](ValueRange args) {
                     Value value = atExpert(matrix, args[0]);
                     return Values{
                         b.select(isExpert(args[0]), value, otherwise)};
                   })[0];
}

/// `sums[t] = sum over j of a[t, j] c[t, j]`, in f64.
Value GateGradientBuilder::sumOfProducts(Value a, Value c) {
  Type f64 = b.getF64Type();
  return b.generic("pr", {{a, {0, 1}}, {c, {0, 1}}},
                   {{b.filled({rows}, b.real(f64, 0)), {0}}},
                   [&](ValueRange args) {
                     return Values{b.fma(b.toReal(args[0], f64),
                                         b.toReal(args[1], f64), args[2])};
                   })[0];
}

/// d weight / d sum is -quotient / divisor, unless eps took the sum's place.
Value GateGradientBuilder::throughNormalization(Value weights, Value gradients,
                                                Value ids) {
  Type f64 = b.getF64Type();
  Normalized n = normalize(weights, choices);
  Value common = sumOfProducts(gradients, n.quotients);
  return b.generic(
      "pp",
      {{ids, {0, 1}},
       {gradients, {0, 1}},
       {common, {0}},
       {n.sums, {0}},
       {n.divisors, {0}}},
      {{matrix(choices), {0, 1}}}, [&](ValueRange args) {
        Value own = args[1];
        Value change = b.toReal(b.sub(b.toReal(own, f64), args[2]), real);
        if (router.getNormalize() == Normalize::MaxSumEps) {
          Value eps = b.real(f64, router.getEps().convertToDouble());
          change = b.select(b.compare(CmpFPredicate::OGE, args[3], eps), change,
                            own);
        }
        Value quotient = arith::DivFOp::create(b, change, args[4]);
        quotient = b.select(isZero(args[4]), b.real(real, 0), quotient);
        return Values{b.select(isExpert(args[0]), quotient, b.real(real, 0))};
      })[0];
}

/// `scores * (gradients - sums)`.
Value GateGradientBuilder::throughSoftmax(Value scores, Value gradients,
                                          Value sums, int64_t columns) {
  Type f64 = b.getF64Type();
  return b.generic("pp", {{scores, {0, 1}}, {gradients, {0, 1}}, {sums, {0}}},
                   {{matrix(columns), {0, 1}}}, [&](ValueRange args) {
                     Value change = b.sub(b.toReal(args[1], f64), args[2]);
                     return Values{b.mul(args[0], b.toReal(change, real))};
                   })[0];
}

/// The gradient of a logit from that of its score.
Value GateGradientBuilder::throughScore(Value logit, Value score,
                                        Value gradient) {
  Value one = b.real(real, 1), none = b.real(real, 0);
  switch (router.getScore()) {
  case Score::Sigmoid:
    return b.mul(gradient, b.mul(score, b.sub(one, score)));
  case Score::SqrtSoftplus: {
    // sigmoid(l) / (2 s), from the exponential that the score has.
    Value magnitude = math::AbsFOp::create(b, logit);
    Value exp = math::ExpOp::create(b, arith::NegFOp::create(b, magnitude));
    Value above = b.compare(CmpFPredicate::OGE, logit, none);
    Value sigmoid =
        arith::DivFOp::create(b, b.select(above, one, exp), b.add(one, exp));
    Value slope =
        arith::DivFOp::create(b, sigmoid, b.mul(b.real(real, 2), score));
    return b.mul(gradient, b.select(isZero(score), none, slope));
  }
  case Score::Identity:
  case Score::Softmax:
    return gradient;
  }
  llvm_unreachable("covered switch");
}

/// Adds every choice's value to its expert's, from 0 and in choice order.
Value GateGradientBuilder::scatter(Value ids, Value values) {
  Value zero = b.index(0);
  Value none = b.filled(shape(experts), b.real(real, 0));
  return b.loop(
      zero, b.dim(op.getIds(), 0), none, [&](Value t, ValueRange outer) {
        return b.loop(zero, b.index(choices), outer,
                      [&](Value j, ValueRange carried) {
                        Value id = b.extract(ids, {t, j});
                        return b.when(isExpert(id), carried, [&] {
                          Value e = b.toIndex(id);
                          Value sum = b.add(b.extract(carried[0], {t, e}),
                                            b.extract(values, {t, j}));
                          return Values{b.insert(sum, carried[0], {t, e})};
                        });
                      });
      })[0];
}

Value GateGradientBuilder::build() {
  bool after = router.getAfterTopK();
  bool softmax = router.getScore() == Score::Softmax;
  Value none = b.real(real, 0);
  Value all = after ? Value() : scores(logits, experts);
  Value ids = aliveIds(all), selected = after ? selectedIds(ids) : ids;
  // Scores of the choices, of all that the softmax has.
  Value chosenLogits = choose(selected, logits, minusInfinity());
  Value chosen = after ? scores(chosenLogits, choices) : choose(ids, all, none);
  double scale = router.getScale().convertToDouble();
  Value gradients = b.generic(
      "pp", {{ids, {0, 1}}, {op.getDweights(), {0, 1}}},
      {{matrix(choices), {0, 1}}}, [&](ValueRange args) {
        Value own = scale == 1 ? args[1] : b.mul(args[1], b.real(real, scale));
        return Values{b.select(isExpert(args[0]), own, none)};
      })[0];
  if (router.getNormalize() != Normalize::None) {
    Value used =
        b.generic("pp", {{ids, {0, 1}}, {chosen, {0, 1}}},
                  {{matrix(choices), {0, 1}}}, [&](ValueRange args) {
                    return Values{b.select(isExpert(args[0]), args[1], none)};
                  })[0];
    gradients = throughNormalization(used, gradients, ids);
  }
  Value result;
  if (softmax) {
    Value sums = sumOfProducts(chosen, gradients);
    result = after
                 ? scatter(selected,
                           throughSoftmax(chosen, gradients, sums, choices))
                 : throughSoftmax(all, scatter(ids, gradients), sums, experts);
  } else {
    Value ofLogits = b.map({chosenLogits, chosen, gradients}, matrix(choices),
                           [&](ValueRange args) {
                             return throughScore(args[0], args[1], args[2]);
                           });
    result = scatter(ids, ofLogits);
  }
  Type element = getElementTypeOrSelf(op.getLogits().getType());
  result =
      b.map({op.getLogits(), result}, b.empty(shape(experts), element),
            [&](ValueRange args) {
              Value size = math::AbsFOp::create(b, b.toReal(args[0], real));
              Value finite = b.compare(CmpFPredicate::OLT, size,
                                       b.infinity(real, /*negative=*/false));
              return b.toReal(b.select(finite, args[1], none), element);
            });
  return b.castTo(result, op->getResult(0).getType());
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, GateGradientOp op) {
  rewriter.replaceOp(op, GateGradientBuilder(rewriter, op).build());
}

//===----------------------------------------------------------------------===//
// moe.pair_dot
//===----------------------------------------------------------------------===//

void mlir::moe::detail::decompose(RewriterBase &rewriter, PairDotOp op) {
  DecomposeBuilder b(rewriter, op);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  Type real = type.getElementType();
  Value slots = op.getSlots();
  Value dots = forEachSlot(
      b, slots, b.filled({b.size(slots, 0), b.size(slots, 1)}, b.real(real, 0)),
      [&](Value t, Value j, Value slot, Value dots) {
        Value row = TensorRow{b, op.getRows(), slot}.read();
        Value x = TensorRow{b, op.getX(), t}.read();
        Value zero = b.filled({b.getIndexAttr(1)}, b.real(real, 0));
        Value sum =
            b.generic("pr", {{row, {0, 1}}, {x, {0, 1}}}, {{zero, {0}}},
                      [&](ValueRange args) {
                        return Values{b.fma(b.toReal(args[0], real),
                                            b.toReal(args[1], real), args[2])};
                      })[0];
        return b.insert(b.extract(sum, b.index(0)), dots, {t, j});
      });
  rewriter.replaceOp(op, b.castTo(dots, type));
}
