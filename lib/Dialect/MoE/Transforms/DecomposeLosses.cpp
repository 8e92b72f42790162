// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DecomposeLosses.h"
#include "Decompose.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpIPredicate;

/// gshard, switch and sequence: `[B]`.
Value LossBuilder::buildBalance(Value tokens) {
  Value scores = dropMasked(scoreTokens(cleanLogits(logits)));
  Value sums = addUp(sumBlocks(scores));
  Value pairs = addUp(countPairs());
  OpFoldResult blocks = b.size(sums, 0);
  Value products = b.generic(
      "pr", {{sums, {0, 1}}, {pairs, {0, 1}}},
      {{b.filled({blocks}, number(0)), {0}}}, [&](ValueRange args) {
        return Values{b.add(args[2], b.mul(args[0], toReal(args[1])))};
      })[0];
  Value chosen = tokens;
  if (op.getKind() != LossKind::GShard)
    chosen = b.generic(
        "pr", {{pairs, {0, 1}}}, {{b.filled({blocks}, b.i32(0)), {0}}},
        [&](ValueRange args) { return Values{b.add(args[1], args[0])}; })[0];
  Value out = b.empty({blocks}, real);
  return b.generic("p", {{products, {0}}, {chosen, {0}}, {tokens, {0}}},
                   {{out, {0}}}, [&](ValueRange args) {
                     Value zero = b.i32(0), one = number(1);
                     Value none = arith::OrIOp::create(
                         b, b.compare(CmpIPredicate::eq, args[1], zero),
                         b.compare(CmpIPredicate::eq, args[2], zero));
                     Value divisor = b.mul(toReal(args[1]), toReal(args[2]));
                     divisor = b.select(none, one, divisor);
                     Value product = b.mul(number(op.getNumExperts()), args[0]);
                     Value loss = arith::DivFOp::create(b, product, divisor);
                     return Values{b.select(none, number(0), loss)};
                   })[0];
}

Value LossBuilder::buildZ(Value tokens) {
  Value logSums;
  scoreTokens(cleanLogits(logits), &logSums);
  Value squares = b.generic(
      "p", {{logSums, {0}}}, {{b.empty({b.size(logits, 0)}, real), {0}}},
      [&](ValueRange args) { return Values{b.mul(args[0], args[0])}; })[0];
  Value sums = addUp(sumBlocks(dropMasked(squares)));
  Value out = b.empty({b.size(sums, 0)}, real);
  return b.generic(
      "p", {{sums, {0}}, {tokens, {0}}}, {{out, {0}}},
      [&](ValueRange args) { return Values{divide(args[0], args[1])}; })[0];
}

/// `[T]`: the expert of a token's last used choice, or -1.
Value LossBuilder::findThresholds() {
  Value last = b.filled({b.size(logits, 0)}, b.i32(-1));
  Value experts = b.i32(op.getNumExperts());
  return b.generic(
      "pr", {{op.getIds(), {0, 1}}}, {{last, {0}}}, [&](ValueRange args) {
        Value used = b.compare(CmpIPredicate::ult, args[0], experts);
        return Values{b.select(used, args[0], args[1])};
      })[0];
}

/// `[T, E]`: the chance that noise lifts an expert over the token's threshold.
Value LossBuilder::buildLoads(Value scores) {
  OpFoldResult tokens = b.size(logits, 0), experts = b.size(logits, 1);
  Value last = findThresholds(), zero = number(0);
  // Logits of -inf would make the difference of two of them NaN.
  auto finite = [&](Value clean) {
    auto &semantics = cast<FloatType>(real).getFloatSemantics();
    APFloat lowest = APFloat::getLargest(semantics, /*Negative=*/true);
    Value least = arith::ConstantOp::create(b, b.getFloatAttr(real, lowest));
    Value out = b.empty({tokens, experts}, real);
    return b.map(clean, out,
                 [&](ValueRange args) { return b.max(args[0], least); });
  };
  Value noisy = finite(cleanLogits(op.getNoisy() ? op.getNoisy() : logits));
  Value threshold =
      b.generic("pr", {{noisy, {0, 1}}, {last, {0}}},
                {{b.filled({tokens}, zero), {0}}}, [&](ValueRange args) {
                  Value here = b.compare(CmpIPredicate::eq, args[1],
                                         b.toI32(b.loopIndex(1)));
                  return Values{b.add(args[2], b.select(here, args[0], zero))};
                })[0];
  Value compared = op.getCompareLogits() ? finite(cleanLogits(logits)) : scores;
  double deviation = op.getNoiseAttr().getValueAsDouble() / op.getNumExperts();
  Value factor = number(1 / (deviation * std::sqrt(2.0)));
  Value out = b.empty({tokens, experts}, real);
  return b.generic(
      "pp", {{compared, {0, 1}}, {threshold, {0}}, {last, {0}}},
      {{out, {0, 1}}}, [&](ValueRange args) {
        Value difference = b.mul(b.sub(args[0], args[1]), factor);
        Value chance = b.mul(
            number(0.5), b.add(number(1), math::ErfOp::create(b, difference)));
        Value none = b.compare(CmpIPredicate::slt, args[2], b.i32(0));
        return Values{b.select(none, zero, chance)};
      })[0];
}

/// `[B]` of `[B, E]`: unbiased variance by the mean's square.
Value LossBuilder::buildVariation(Value sums) {
  OpFoldResult blocks = b.size(sums, 0);
  Value experts = number(op.getNumExperts());
  Value zeros = b.filled({blocks}, number(0));
  Value total =
      b.generic("pr", {{sums, {0, 1}}}, {{zeros, {0}}}, [&](ValueRange args) {
        return Values{b.add(args[1], args[0])};
      })[0];
  auto mean = [&](Value sum) -> Value {
    return arith::DivFOp::create(b, sum, experts);
  };
  Value squares =
      b.generic("pr", {{sums, {0, 1}}, {total, {0}}}, {{zeros, {0}}},
                [&](ValueRange args) {
                  Value difference = b.sub(args[0], mean(args[1]));
                  return Values{b.add(args[2], b.mul(difference, difference))};
                })[0];
  // The variance of one number is not 0 / 0.
  Value degrees = number(std::max<int64_t>(1, op.getNumExperts() - 1));
  return b.generic("p", {{squares, {0}}, {total, {0}}},
                   {{b.empty({blocks}, real), {0}}}, [&](ValueRange args) {
                     Value average = mean(args[1]);
                     Value divisor =
                         b.add(b.mul(average, average), number(1e-10));
                     Value variance =
                         arith::DivFOp::create(b, args[0], degrees);
                     return Values{arith::DivFOp::create(b, variance, divisor)};
                   })[0];
}

Value LossBuilder::buildLoadImportance() {
  Value scores = scoreTokens(cleanLogits(logits));
  Value importance = buildVariation(addUp(sumBlocks(dropMasked(scores))));
  Value load = buildVariation(addUp(sumBlocks(dropMasked(buildLoads(scores)))));
  Value out = b.empty({b.size(importance, 0)}, real);
  return b.generic("p", {{importance, {0}}, {load, {0}}}, {{out, {0}}},
                   [&](ValueRange args) {
                     return Values{b.mul(number(0.5), b.add(args[0], args[1]))};
                   })[0];
}

/// The mean of `losses [B]` over blocks and ranks that have tokens.
Value LossBuilder::average(Value losses, Value tokens) {
  auto total = [&](Value perBlock, Value zero,
                   llvm::function_ref<Value(Value)> element) {
    Value sum = b.generic("r", {{perBlock, {0}}}, {{b.filled({}, zero), {}}},
                          [&](ValueRange args) {
                            return Values{b.add(args[1], element(args[0]))};
                          })[0];
    // A global loss is the same on all ranks already.
    if (!op.getOverRanks() || op.getScope() == LossScope::Global)
      return sum;
    return addOverRanks(sum);
  };
  Value sum = total(losses, number(0), [](Value loss) { return loss; });
  Value count = total(tokens, b.i32(0), [&](Value number) {
    Value some = b.compare(CmpIPredicate::sgt, number, b.i32(0));
    return b.select(some, b.i32(1), b.i32(0));
  });
  return b.generic(
      "", {{sum, {}}, {count, {}}}, {{b.empty({}, real), {}}},
      [&](ValueRange args) { return Values{divide(args[0], args[1])}; })[0];
}

Value LossBuilder::build() {
  findBlocks();
  Value tokens = addUp(countTokens());
  switch (op.getKind()) {
  case LossKind::GShard:
  case LossKind::Switch:
  case LossKind::Sequence:
    return average(buildBalance(tokens), tokens);
  case LossKind::Z:
    return average(buildZ(tokens), tokens);
  case LossKind::LoadImportance:
    return average(buildLoadImportance(), tokens);
  }
  llvm_unreachable("not a loss");
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, LossOp op) {
  DecomposeBuilder b(rewriter, op);
  rewriter.replaceOp(op, b.castTo(LossBuilder(b, op).build(), op.getType()));
}
