// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gate: parallel over tokens; loops over experts are kept apart and free of
// branches, so that LLVM vectorises all but the sum, whose order is fixed.

#include "ScoreEmitter.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

namespace {
/// Emits one gate. Members whose name ends in `Row` emit code for one token.
class GateEmitter : ScoreEmitter {
public:
  GateEmitter(LoopBuilder &b, GateOp op);

  void emit() { router.getExpertChoice() ? expertChoice() : tokenChoice(); }

private:
  /// A token's scores (logits with `after_top_k`; 0 where the logit is -inf),
  /// and its keys, by which experts are selected.
  struct Scratch {
    Row values, keys;
  };
  /// The best keys in falling order from place 1, and their experts.
  struct Best {
    Row keys, ids;
  };

  void tokenChoice();
  void expertChoice();
  void pickTokens(Value e, Value keys, Value tokens);

  Scratch scratchOf(Value token);
  Best bestOf(Value token);
  void scoreRow(Value token, Scratch s);
  void maskGroupsRow(Row keys);
  Best selectRow(Value token, Row keys);
  void weighRow(Value token, Scratch s, std::optional<Best> best);
  void scoreChoicesRow(Row weights);
  void applyThresholdRow(Row ids, Row weights);
  void finishRow(Value token, Row ids, Row weights);

  GateOp op;
  Type i32;
  Value experts, choices;
  /// Scratch of all tokens, `[T, 2, E]` and `[T, K + 1]`, when there are too
  /// many experts for the stack.
  Value wide, wideKeys, wideIds;
};
} // namespace

GateEmitter::GateEmitter(LoopBuilder &b, GateOp op)
    : ScoreEmitter(b, op.getRouter(), op.getWeightsType().getElementType()),
      op(op), i32(b.builder.getI32Type()) {
  experts = b.index(op.getNumExperts());
  choices = b.index(op.getNumChoices());
  if (op.getNumExperts() <= kStackExperts)
    return;
  Value tokens = b.dim(op.getLogits(), 0);
  int64_t T = ShapedType::kDynamic, places = op.getNumChoices() + 1;
  wide = b.workspace(real, {T, 2, op.getNumExperts()}, tokens);
  wideKeys = b.workspace(real, {T, places}, tokens);
  wideIds = b.workspace(i32, {T, places}, tokens);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

GateEmitter::Scratch GateEmitter::scratchOf(Value token) {
  if (wide)
    return {{wide, {token, b.index(0)}}, {wide, {token, b.index(1)}}};
  return {{b.scratch(real, op.getNumExperts()), {}},
          {b.scratch(real, op.getNumExperts()), {}}};
}

GateEmitter::Best GateEmitter::bestOf(Value token) {
  if (wide)
    return {{wideKeys, {token}}, {wideIds, {token}}};
  int64_t places = op.getNumChoices() + 1;
  return {{b.scratch(real, places), {}}, {b.scratch(i32, places), {}}};
}

void GateEmitter::scoreRow(Value token, Scratch s) {
  bool byLogit = router.getAfterTopK();
  bool softmax = router.getScore() == Score::Softmax && !byLogit;
  Value top = b.loop(b.index(0), experts, b.minusInfinity(real),
                     [&](Value e, ValueRange most) -> SmallVector<Value> {
                       Value logit =
                           b.widen(b.load(op.getLogits(), {token, e}));
                       logit = b.sanitize(logit);
                       b.store(logit, s.keys, e);
                       b.store(byLogit ? logit : score(logit), s.values, e);
                       return {b.maximumReal(most[0], logit)};
                     })[0];
  if (softmax)
    softmaxRow(s.values, experts, top);
  b.loop(b.index(0), experts, [&](Value e) {
    Value dead = isDead(b.load(s.keys, e));
    Value value = b.load(s.values, e), key = value;
    if (op.getBias())
      key = b.sanitize(b.add(key, b.load(op.getBias(), e)));
    b.store(b.select(dead, b.minusInfinity(real), key), s.keys, e);
    if (!byLogit)
      b.store(b.select(dead, zero, value), s.values, e);
  });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// Sets the keys of all but the best groups to -inf.
void GateEmitter::maskGroupsRow(Row keys) {
  int64_t groups = router.getGroups(), size = op.getNumExperts() / groups;
  bool sum = router.getGroupScore() == GroupScore::SumTop2 && size > 1;
  Value lowest = b.minusInfinity(real);
  Row best{b.scratch(real, groups), {}};
  auto memberOf = [&](Value g, Value i) {
    return b.add(b.mul(g, b.index(size)), i);
  };
  b.loop(groups, [&](Value g) {
    auto top = b.loop(
        b.index(0), b.index(size), {lowest, lowest},
        [&](Value i, ValueRange top) -> SmallVector<Value> {
          Value key = b.load(keys, memberOf(g, i));
          Value above = b.compare(CmpFPredicate::OGT, key, top[0]);
          Value loser = b.select(above, top[0], key);
          return {b.select(above, key, top[0]), b.maximumReal(top[1], loser)};
        });
    b.store(sum ? b.add(top[0], top[1]) : top[0], best, g);
  });
  b.loop(groups, [&](Value g) {
    Value mine = b.load(best, g);
    Value better = b.loop(
        b.index(0), b.index(groups), b.index(0),
        [&](Value other, ValueRange count) -> SmallVector<Value> {
          Value its = b.load(best, other);
          Value above = b.compare(CmpFPredicate::OGT, its, mine);
          Value equal = b.compare(CmpFPredicate::OEQ, its, mine);
          Value lower = b.compare(CmpIPredicate::slt, other, g);
          Value first =
              b.make<arith::OrIOp>(above, b.make<arith::AndIOp>(equal, lower));
          return {b.add(count[0], b.select(first, b.index(1), b.index(0)))};
        })[0];
    Value leaves =
        b.compare(CmpIPredicate::sge, better, b.index(router.getKeep()));
    b.when(leaves, [&] {
      b.loop(size, [&](Value i) { b.store(lowest, keys, memberOf(g, i)); });
    });
  });
}

/// Insertion into the best so far: most experts cost one comparison, which
/// branch predictors get right. Equal keys stay in the order of ids.
GateEmitter::Best GateEmitter::selectRow(Value token, Row keys) {
  int64_t K = op.getNumChoices(), E = op.getNumExperts();
  Best best = bestOf(token);
  // Place 0 holds a key that is above all others and ends every search.
  Value infinity = b.constant(b.builder.getFloatAttr(
      real, APFloat::getInf(cast<FloatType>(real).getFloatSemantics())));
  b.store(infinity, best.keys, b.index(0));
  auto insert = [&](Value e, Value key, Value last) {
    auto place = b.repeatWhile(
        last,
        [&](ValueRange at) {
          Value before = b.load(best.keys, b.sub(at[0], b.index(1)));
          return b.compare(CmpFPredicate::OLT, before, key);
        },
        [&](ValueRange at) -> SmallVector<Value> {
          Value before = b.sub(at[0], b.index(1));
          b.store(b.load(best.keys, before), best.keys, at[0]);
          b.store(b.load(best.ids, before), best.ids, at[0]);
          return {before};
        })[0];
    b.store(key, best.keys, place);
    b.store(b.fromIndex(i32, e), best.ids, place);
  };
  b.loop(K, [&](Value e) { insert(e, b.load(keys, e), b.add(e, b.index(1))); });
  if (K == E)
    return best;
  b.loop(choices, experts, [&](Value e) {
    Value key = b.load(keys, e);
    Value least = b.load(best.keys, choices);
    b.when(b.compare(CmpFPredicate::OGT, key, least),
           [&] { insert(e, key, choices); });
  });
  return best;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Ids, and the scores or logits of the choices, in the destinations. Without
/// `best` ids come from `replay`.
void GateEmitter::weighRow(Value token, Scratch s, std::optional<Best> best) {
  Row ids{op.getOuts()[0], {token}}, weights{op.getOuts()[1], {token}};
  Value unused = b.integer(i32, -1), none = b.integer(i32, 0);
  Value dropped = router.getAfterTopK() ? b.minusInfinity(real) : zero;
  b.loop(b.index(0), choices, [&](Value j) {
    Value id, alive;
    if (best) {
      Value place = b.add(j, b.index(1));
      id = b.load(best->ids, place);
      Value key = b.load(best->keys, place);
      // Such a choice is only there to keep ids distinct.
      alive = b.compare(CmpFPredicate::UNE, key, b.minusInfinity(real));
    } else {
      id = b.load(op.getReplay(), {token, j});
      alive = b.inRange(id, b.integer(i32, op.getNumExperts()));
      id = b.select(alive, id, unused);
    }
    if (op.getTopK()) {
      Value used = b.compare(CmpIPredicate::slt, j, op.getTopK());
      id = b.select(used, id, unused);
      alive = b.make<arith::AndIOp>(alive, used);
    }
    Value value = b.load(s.values, b.toIndex(b.maximum(id, none)));
    b.store(id, ids, j);
    b.store(b.select(alive, value, dropped), weights, j);
  });
}

/// Scores the logits of the choices (`after_top_k`).
void GateEmitter::scoreChoicesRow(Row weights) {
  if (router.getScore() == Score::Softmax)
    return softmaxRow(weights, choices, largestOf(weights, choices));
  b.loop(b.index(0), choices,
         [&](Value j) { b.store(score(b.load(weights, j)), weights, j); });
}

void GateEmitter::applyThresholdRow(Row ids, Row weights) {
  b.loop(b.index(0), choices, [&](Value j) {
    Value weight = b.load(weights, j);
    Value used = b.compare(CmpFPredicate::OGE, weight, op.getThreshold());
    b.store(b.select(used, weight, zero), weights, j);
    b.store(b.select(used, b.load(ids, j), b.integer(i32, -1)), ids, j);
  });
}

/// Normalisation, sampled second choice, scale.
void GateEmitter::finishRow(Value token, Row ids, Row weights) {
  Type f64 = b.builder.getF64Type();
  double scale = router.getScale().convertToDouble();
  Normalize normalize = router.getNormalize();
  if (normalize == Normalize::None && scale == 1 && !op.getSample())
    return;
  Value divisor, isZero;
  if (normalize != Normalize::None) {
    Value sum = sumOf(weights, choices);
    Value eps = b.real(f64, router.getEps().convertToDouble());
    if (normalize == Normalize::SumPlusEps)
      sum = b.add(sum, eps);
    else
      sum = b.select(b.compare(CmpFPredicate::OLT, sum, eps), eps, sum);
    divisor = b.toReal(real, sum);
    isZero = b.compare(CmpFPredicate::OEQ, divisor, zero);
  }
  b.loop(b.index(0), choices, [&](Value j) {
    Value weight = b.load(weights, j);
    if (divisor)
      weight = b.select(isZero, zero, b.div(weight, divisor));
    if (op.getSample()) {
      Value draw = b.toReal(real, b.load(op.getSample(), token));
      Value twice = b.mul(b.real(real, 2), weight);
      Value used =
          b.make<arith::OrIOp>(b.compare(CmpIPredicate::ne, j, b.index(1)),
                               b.compare(CmpFPredicate::OGE, twice, draw));
      weight = b.select(used, weight, zero);
      b.store(b.select(used, b.load(ids, j), b.integer(i32, -1)), ids, j);
    }
    if (scale != 1)
      weight = b.mul(weight, b.real(real, scale));
    b.store(weight, weights, j);
  });
}

//===----------------------------------------------------------------------===//
// Token choice, expert choice
//===----------------------------------------------------------------------===//

void GateEmitter::tokenChoice() {
  auto route = [&](Value token) {
    Row ids{op.getOuts()[0], {token}}, weights{op.getOuts()[1], {token}};
    Scratch s = scratchOf(token);
    scoreRow(token, s);
    std::optional<Best> best;
    if (!op.getReplay()) {
      if (router.getGroups() > router.getKeep())
        maskGroupsRow(s.keys);
      best = selectRow(token, s.keys);
    }
    weighRow(token, s, best);
    if (router.getAfterTopK())
      scoreChoicesRow(weights);
    if (op.getThreshold())
      applyThresholdRow(ids, weights);
    finishRow(token, ids, weights);
  };
  auto skip = [&](Value token) {
    b.loop(b.index(0), choices, [&](Value j) {
      b.store(b.integer(i32, -1), op.getOuts()[0], {token, j});
      b.store(zero, op.getOuts()[1], {token, j});
    });
  };
  b.parallel(b.dim(op.getLogits(), 0), [&](Value token) {
    if (!op.getMask())
      return route(token);
    b.when(
        b.load(op.getMask(), token), [&] { route(token); },
        [&] { skip(token); });
  });
}

/// Every expert takes its best tokens. Keys become integers, stored by expert;
/// masked tokens get the least integer, which no key has.
void GateEmitter::expertChoice() {
  Value tokens = b.dim(op.getLogits(), 0);
  unsigned bits = cast<FloatType>(real).getWidth();
  Type keyType = b.builder.getIntegerType(bits);
  Value masked = b.constant(
      b.builder.getIntegerAttr(keyType, APInt::getSignedMinValue(bits)));
  Value keys =
      b.workspace(keyType, {op.getNumExperts(), ShapedType::kDynamic}, tokens);
  b.parallel(tokens, [&](Value token) {
    Scratch s = scratchOf(token);
    scoreRow(token, s);
    Value present = op.getMask() ? b.load(op.getMask(), token) : Value();
    b.loop(b.index(0), experts, [&](Value e) {
      Value key = b.orderedBits(b.load(s.keys, e));
      if (present)
        key = b.select(present, key, masked);
      b.store(key, keys, {e, token});
      b.store(b.load(s.values, e), op.getOuts()[1], {token, e});
    });
  });
  b.parallel(experts, [&](Value e) { pickTokens(e, keys, tokens); });
  b.parallel(tokens, [&](Value token) {
    finishRow(token, {op.getOuts()[0], {token}}, {op.getOuts()[1], {token}});
  });
}

/// Finds the c-th largest key bit by bit, by counting: no sort, no memory, and
/// loops that vectorise. Of the tokens with that key the first ones are taken.
void GateEmitter::pickTokens(Value e, Value keys, Value tokens) {
  Value none = b.index(0), unit = b.index(1);
  Type keyType = cast<MemRefType>(keys.getType()).getElementType();
  unsigned bits = keyType.getIntOrFloatBitWidth();
  auto literal = [&](const APInt &value) {
    return b.constant(b.builder.getIntegerAttr(keyType, value));
  };
  auto countOf = [&](CmpIPredicate predicate, Value bound) {
    return b.loop(none, tokens, none,
                  [&](Value t, ValueRange count) -> SmallVector<Value> {
                    Value holds =
                        b.compare(predicate, b.load(keys, {e, t}), bound);
                    return {b.add(count[0], b.select(holds, unit, none))};
                  })[0];
  };
  Value least = literal(APInt::getSignedMinValue(bits));
  Value wanted = b.maximum(op.getCapacity(), none);
  wanted = b.minimum(wanted, countOf(CmpIPredicate::sgt, least));

  // From the least key upwards: keep each bit that leaves enough keys above.
  Value mark = b.loop(
      none, b.index(bits), {least},
      [&](Value i, ValueRange mark) -> SmallVector<Value> {
        Value bit = b.make<arith::ShRUIOp>(least, b.fromIndex(keyType, i));
        Value next = b.add(mark[0], bit);
        Value enough = b.compare(CmpIPredicate::sge,
                                 countOf(CmpIPredicate::sge, next), wanted);
        return {b.select(enough, next, mark[0])};
      })[0];
  Value ties = b.sub(wanted, countOf(CmpIPredicate::sgt, mark));
  auto infinity = APFloat::getInf(cast<FloatType>(real).getFloatSemantics(),
                                  /*Negative=*/true);
  APInt dead = infinity.bitcastToAPInt() ^ APInt::getSignedMaxValue(bits);
  b.loop(none, tokens, {ties},
         [&](Value t, ValueRange left) -> SmallVector<Value> {
           Value key = b.load(keys, {e, t});
           Value above = b.compare(CmpIPredicate::sgt, key, mark);
           Value tie = b.make<arith::AndIOp>(
               b.compare(CmpIPredicate::eq, key, mark),
               b.compare(CmpIPredicate::sgt, left[0], none));
           Value taken = b.make<arith::OrIOp>(above, tie);
           Value alive = b.make<arith::AndIOp>(
               taken, b.compare(CmpIPredicate::ne, key, literal(dead)));
           Value weight = b.load(op.getOuts()[1], {t, e});
           b.store(b.select(alive, weight, zero), op.getOuts()[1], {t, e});
           b.store(b.select(taken, b.fromIndex(i32, e), b.integer(i32, -1)),
                   op.getOuts()[0], {t, e});
           return {b.sub(left[0], b.select(tie, unit, none))};
         });
}

namespace {
struct GateToLoops : OpRewritePattern<GateOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GateOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    GateEmitter(b, op).emit();
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populateGatePatterns(RewritePatternSet &patterns) {
  patterns.add<GateToLoops>(patterns.getContext());
}
