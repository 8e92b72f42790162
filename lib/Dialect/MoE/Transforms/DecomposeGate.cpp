// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"
#include "DecomposeScores.h"
#include "DecomposeSort.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

namespace {

/// The steps of docs/routing.md, in their order. Matrices are [T, E] before
/// the selection and [T, K] after it.
class GateBuilder : ScoreBuilder {
public:
  GateBuilder(RewriterBase &rewriter, GateOp op)
      : ScoreBuilder(rewriter, op, op.getRouter(), op.getLogits(),
                     op.getWeightsType().getElementType()),
        op(op), experts(op.getNumExperts()), choices(op.getNumChoices()),
        zero(b.index(0)), tokens(b.dim(op.getLogits(), 0)) {}

  Values build();

private:
  /// Ids and weights of the selected pairs, as they go from step to step.
  struct Selection {
    Value ids, weights;
  };

  Value keys(Value logits, Value scores);
  Value maskGroups(Value keys);
  Value groupScores(Value grouped);
  Value bestExpert(Value keys, Value t);
  Selection select(Value keys, Value values);
  Selection replay(Value logits, Value values);
  Selection chooseTokens(Value keys, Value scores);
  Selection applyThreshold(Selection selection);
  Selection sampleSecond(Selection selection);
  Selection applyMask(Selection selection);

  /// Neither ids nor weights: what an unused choice holds.
  Selection nothing(Value weight) {
    return {b.filled(shape(choices), b.i32(-1)),
            b.filled(shape(choices), weight)};
  }
  /// The weight of a choice that only keeps ids distinct.
  Value deadWeight() {
    return router.getAfterTopK() ? minusInfinity() : b.real(real, 0);
  }
  /// How many choices are used at most.
  Value usedChoices() {
    if (!op.getTopK())
      return b.index(choices);
    return b.min(b.max(op.getTopK(), zero), b.index(choices));
  }
  /// New ids and weights where `keep(id, weight, ..)` is false: -1 and 0.
  Selection filter(Selection selection,
                   ArrayRef<DecomposeBuilder::Access> others,
                   llvm::function_ref<Value(ValueRange)> keep);

  GateOp op;
  int64_t experts, choices;
  Value zero;
  Value tokens;
};

} // namespace

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// What selection goes by: score (or logit) plus bias; -inf for a logit of
/// -inf, whatever the bias.
Value GateBuilder::keys(Value logits, Value scores) {
  Value values = router.getAfterTopK() ? logits : scores;
  SmallVector<DecomposeBuilder::Access> ins = {{logits, {0, 1}},
                                               {values, {0, 1}}};
  if (op.getBias())
    ins.push_back({op.getBias(), {1}});
  return b.generic(
      "pp", ins, {{matrix(experts), {0, 1}}}, [&](ValueRange args) {
        Value key = args[1];
        if (op.getBias())
          key = sanitize(b.add(key, args[2]));
        return Values{b.select(isMinusInfinity(args[0]), minusInfinity(), key)};
      })[0];
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// [T, groups] from keys [T, groups, members].
Value GateBuilder::groupScores(Value grouped) {
  Value lowest = b.filled(shape(router.getGroups()), minusInfinity());
  if (router.getGroupScore() == GroupScore::Max)
    return b.generic(
        "ppr", {{grouped, {0, 1, 2}}}, {{lowest, {0, 1}}},
        [&](ValueRange args) { return Values{b.max(args[0], args[1])}; })[0];
  Values topTwo =
      b.generic("ppr", {{grouped, {0, 1, 2}}},
                {{lowest, {0, 1}}, {lowest, {0, 1}}}, [&](ValueRange args) {
                  Value second = b.max(args[2], b.min(args[0], args[1]));
                  return Values{b.max(args[0], args[1]), second};
                });
  return b.map(topTwo, matrix(router.getGroups()),
               [&](ValueRange args) { return b.add(args[0], args[1]); });
}

/// Keys of experts outside the `keep` best groups become -inf.
Value GateBuilder::maskGroups(Value keys) {
  int64_t groups = router.getGroups(), members = experts / groups;
  auto type = cast<RankedTensorType>(keys.getType());
  auto groupedType =
      RankedTensorType::get({type.getDimSize(0), groups, members}, real);
  SmallVector<ReassociationIndices> split = {{0}, {1, 2}};
  Sizes groupedShape = {rows, b.getIndexAttr(groups), b.getIndexAttr(members)};
  Value grouped =
      tensor::ExpandShapeOp::create(b, groupedType, keys, split, groupedShape);
  Value best = groupScores(grouped);
  // How many groups go before each: the better ones, and equal lower ones.
  Value ranks = b.generic(
      "ppr", {{best, {0, 1}}, {best, {0, 2}}},
      {{b.filled(shape(groups), b.i32(0)), {0, 1}}}, [&](ValueRange args) {
        Value better = b.compare(CmpFPredicate::OGT, args[1], args[0]);
        Value equal = b.compare(CmpFPredicate::OEQ, args[1], args[0]);
        Value lower =
            b.compare(CmpIPredicate::ult, b.loopIndex(2), b.loopIndex(1));
        equal = arith::AndIOp::create(b, equal, lower);
        Value before = arith::OrIOp::create(b, better, equal);
        before = arith::ExtUIOp::create(b, b.getI32Type(), before);
        return Values{b.add(args[2], before)};
      })[0];
  Value masked = b.generic(
      "ppp", {{grouped, {0, 1, 2}}, {ranks, {0, 1}}},
      {{b.empty(groupedShape, real), {0, 1, 2}}}, [&](ValueRange args) {
        Value kept =
            b.compare(CmpIPredicate::slt, args[1], b.i32(router.getKeep()));
        return Values{b.select(kept, args[0], minusInfinity())};
      })[0];
  return tensor::CollapseShapeOp::create(b, type, masked, split);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// The expert with the largest key of token t, ties to the lowest. Keys of
/// experts that were taken are NaN.
Value GateBuilder::bestExpert(Value keys, Value t) {
  Value nan = b.real(real, std::numeric_limits<double>::quiet_NaN());
  return b.loop(zero, b.index(experts), {zero, nan},
                [&](Value e, ValueRange best) {
                  Value key = b.extract(keys, {t, e});
                  // Greater than NaN counts: the first that is not taken.
                  Value better = b.compare(CmpFPredicate::UGT, key, best[1]);
                  Value open = b.compare(CmpFPredicate::ORD, key, key);
                  better = arith::AndIOp::create(b, better, open);
                  return Values{b.select(better, e, best[0]),
                                b.select(better, key, best[1])};
                })[0];
}

/// The largest keys of every token, with the values of their experts.
GateBuilder::Selection GateBuilder::select(Value keys, Value values) {
  Selection none = nothing(deadWeight());
  Value used = usedChoices();
  Value nan = b.real(real, std::numeric_limits<double>::quiet_NaN());
  Values results = b.loop(
      zero, tokens, {none.ids, none.weights, keys},
      [&](Value t, ValueRange outer) {
        return b.loop(zero, used, outer, [&](Value j, ValueRange carried) {
          Value e = bestExpert(carried[2], t);
          Value key = b.extract(carried[2], {t, e});
          Value weight = b.select(isMinusInfinity(key), deadWeight(),
                                  b.extract(values, {t, e}));
          return Values{b.insert(b.toI32(e), carried[0], {t, j}),
                        b.insert(weight, carried[1], {t, j}),
                        b.insert(nan, carried[2], {t, e})};
        });
      });
  return {results[0], results[1]};
}

/// The ids that were given, -1 for one that is no expert.
GateBuilder::Selection GateBuilder::replay(Value logits, Value values) {
  Selection none = nothing(deadWeight());
  Value used = usedChoices();
  Values results = b.loop(
      zero, tokens, {none.ids, none.weights}, [&](Value t, ValueRange outer) {
        return b.loop(zero, used, outer, [&](Value j, ValueRange carried) {
          Value id = b.extract(op.getReplay(), {t, j});
          Value isExpert = b.compare(CmpIPredicate::ult, id, b.i32(experts));
          return b.when(isExpert, carried, [&] {
            Value e = b.toIndex(id);
            Value dead = isMinusInfinity(b.extract(logits, {t, e}));
            Value weight =
                b.select(dead, deadWeight(), b.extract(values, {t, e}));
            return Values{b.insert(id, carried[0], {t, j}),
                          b.insert(weight, carried[1], {t, j})};
          });
        });
      });
  return {results[0], results[1]};
}

/// Expert choice: column e holds e where expert e took the token.
GateBuilder::Selection GateBuilder::chooseTokens(Value keys, Value scores) {
  Selection none = nothing(b.real(real, 0));
  Value order = b.empty({rows}, b.getI32Type());
  Value scratch = b.empty({rows}, b.getI32Type());
  Values results = b.loop(
      zero, b.index(experts), {none.ids, none.weights, order, scratch},
      [&](Value e, ValueRange outer) {
        // The tokens that may be taken, then in descending order of keys.
        Values open = b.loop(
            zero, tokens, {outer[2], zero}, [&](Value t, ValueRange args) {
              auto append = [&] {
                return Values{b.insert(b.toI32(t), args[0], args[1]),
                              b.add(args[1], b.index(1))};
              };
              if (!op.getMask())
                return append();
              return b.when(b.extract(op.getMask(), t), args, append);
            });
        SortBuffers sorted =
            buildStableSort(b, {open[0], outer[3]}, zero, open[1],
                            [&](Value t) { return b.extract(keys, {t, e}); });
        Value taken = b.min(b.max(op.getCapacity(), zero), open[1]);
        Values next = b.loop(
            zero, taken, outer.take_front(2), [&](Value i, ValueRange args) {
              Value t = b.toIndex(b.extract(sorted.order, i));
              Value dead = isMinusInfinity(b.extract(keys, {t, e}));
              Value weight =
                  b.select(dead, b.real(real, 0), b.extract(scores, {t, e}));
              return Values{b.insert(b.toI32(e), args[0], {t, e}),
                            b.insert(weight, args[1], {t, e})};
            });
        next.push_back(sorted.order);
        next.push_back(sorted.scratch);
        return next;
      });
  return {results[0], results[1]};
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

GateBuilder::Selection
GateBuilder::filter(Selection selection,
                    ArrayRef<DecomposeBuilder::Access> others,
                    llvm::function_ref<Value(ValueRange)> keep) {
  SmallVector<DecomposeBuilder::Access> ins = {{selection.ids, {0, 1}},
                                               {selection.weights, {0, 1}}};
  llvm::append_range(ins, others);
  Value ids = b.empty(shape(choices), b.getI32Type());
  Values results =
      b.generic("pp", ins, {{ids, {0, 1}}, {matrix(choices), {0, 1}}},
                [&](ValueRange args) {
                  Value kept = keep(args);
                  return Values{b.select(kept, args[0], b.i32(-1)),
                                b.select(kept, args[1], b.real(real, 0))};
                });
  return {results[0], results[1]};
}

GateBuilder::Selection GateBuilder::applyThreshold(Selection selection) {
  return filter(selection, {}, [&](ValueRange args) {
    return b.compare(CmpFPredicate::OGE, args[1], op.getThreshold());
  });
}

/// Choice 1 stays if 2 w >= u.
GateBuilder::Selection GateBuilder::sampleSecond(Selection selection) {
  return filter(selection, {{op.getSample(), {0}}}, [&](ValueRange args) {
    Value isOther = b.compare(CmpIPredicate::ne, b.loopIndex(1), b.index(1));
    Value twice = b.mul(b.real(real, 2), args[1]);
    Value passes =
        b.compare(CmpFPredicate::OGE, twice, b.toReal(args[2], real));
    return arith::OrIOp::create(b, isOther, passes).getResult();
  });
}

GateBuilder::Selection GateBuilder::applyMask(Selection selection) {
  return filter(selection, {{op.getMask(), {0}}},
                [&](ValueRange args) { return args[2]; });
}

Values GateBuilder::build() {
  Value logits = sanitizedLogits(op.getLogits(), experts);
  Value values = router.getAfterTopK() ? logits : scores(logits, experts);
  Selection selection;
  if (op.getReplay()) {
    selection = replay(logits, values);
  } else {
    Value selectBy = keys(logits, values);
    if (router.getGroups() > 1)
      selectBy = maskGroups(selectBy);
    selection = router.getExpertChoice() ? chooseTokens(selectBy, values)
                                         : select(selectBy, values);
  }
  if (router.getAfterTopK())
    selection.weights = scores(selection.weights, choices);
  if (op.getThreshold())
    selection = applyThreshold(selection);
  if (router.getNormalize() != Normalize::None)
    selection.weights = normalize(selection.weights, choices).quotients;
  if (op.getSample())
    selection = sampleSecond(selection);
  double scale = router.getScale().convertToDouble();
  if (scale != 1)
    selection.weights =
        b.map(selection.weights, matrix(choices), [&](ValueRange args) {
          return b.mul(args[0], b.real(real, scale));
        });
  if (op.getMask() && !router.getExpertChoice())
    selection = applyMask(selection);
  return {b.castTo(selection.ids, op->getResult(0).getType()),
          b.castTo(selection.weights, op->getResult(1).getType())};
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, GateOp op) {
  rewriter.replaceOp(op, GateBuilder(rewriter, op).build());
}
