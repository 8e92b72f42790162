// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Losses of routers, in ops that are differentiable: what depends on logits is
// linalg with arith and math in its body, what depends on ids is integers. No
// value becomes NaN that a select would have to hide, because the gradient of
// what is not selected would be 0 times infinity.

#include "Decompose.h"
#include "DecomposeBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <cmath>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

namespace {

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
    Value none = b.compare(CmpIPredicate::eq, count, b.i32(0));
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

} // namespace

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

void LossBuilder::findBlocks() {
  Value blocks = op.getBlocks();
  if (!blocks && !op.getLengthAttr()) {
    numBlocks = attr(1);
    numRows = b.size(logits, 0);
    return;
  }
  if (!blocks) {
    int64_t length = op.getLengthAttr().getInt();
    numRows = attr(length);
    numBlocks = b.size(logits, 0);
    if (auto tokens = dyn_cast<Attribute>(numBlocks))
      numBlocks = attr(cast<IntegerAttr>(tokens).getInt() / length);
    else
      numBlocks =
          arith::DivUIOp::create(b, cast<Value>(numBlocks), b.index(length))
              .getResult();
    return;
  }
  numBlocks = b.size(blocks, 0);
  // The ends of the blocks, then how many of them a row is behind.
  Value ends = b.filled({numBlocks}, b.i32(0));
  ends = b.generic("pr", {{blocks, {1}}}, {{ends, {0}}}, [&](ValueRange args) {
    Value before =
        b.compare(CmpIPredicate::ule, b.loopIndex(1), b.loopIndex(0));
    return Values{b.add(args[1], b.select(before, args[0], b.i32(0)))};
  })[0];
  blockOf = b.filled({b.size(logits, 0)}, b.i32(0));
  blockOf =
      b.generic("pr", {{ends, {1}}}, {{blockOf, {0}}}, [&](ValueRange args) {
        Value behind =
            b.compare(CmpIPredicate::sge, b.toI32(b.loopIndex(0)), args[0]);
        return Values{b.add(args[1], b.select(behind, b.i32(1), b.i32(0)))};
      })[0];
}

/// `[T, ..]` as `[blocks, rows, ..]`.
Value LossBuilder::splitInBlocks(Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  Sizes sizes{numBlocks, numRows};
  if (auto dynamic = dyn_cast<Value>(numBlocks)) {
    // Rows behind the last whole block are in none.
    Value whole = b.mul(dynamic, b.index(op.getLengthAttr().getInt()));
    Sizes offsets(type.getRank(), attr(0)), kept{whole};
    for (int64_t d = 1; d < type.getRank(); ++d)
      kept.push_back(b.size(rows, d));
    rows = b.slice(rows, offsets, kept, type.getRank());
  }
  SmallVector<ReassociationIndices> groups{{0, 1}};
  for (int64_t d = 1; d < type.getRank(); ++d) {
    sizes.push_back(b.size(rows, d));
    groups.push_back({d + 1});
  }
  SmallVector<int64_t> shape = decomposeMixedValues(sizes).first;
  return tensor::ExpandShapeOp::create(
      b, RankedTensorType::get(shape, type.getElementType()), rows, groups,
      sizes);
}

/// Sums of `[T]` or `[T, N]` by block, `[B]` or `[B, N]`, in ascending rows.
Value LossBuilder::sumBlocks(Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  bool isMatrix = type.getRank() == 2;
  Value zero = isa<FloatType>(type.getElementType()) ? number(0) : b.i32(0);
  Sizes sizes{numBlocks};
  if (isMatrix)
    sizes.push_back(b.size(rows, 1));
  Value sums = b.filled(sizes, zero);
  SmallVector<unsigned> out =
      isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0};
  StringRef kinds = isMatrix ? "ppr" : "pr";
  unsigned row = isMatrix ? 2 : 1;
  if (!blockOf) {
    SmallVector<unsigned> in{0, row};
    if (isMatrix)
      in.push_back(1);
    return b.generic(
        kinds, {{splitInBlocks(rows), in}}, {{sums, out}},
        [&](ValueRange args) { return Values{b.add(args[1], args[0])}; })[0];
  }
  SmallVector<unsigned> in{row};
  if (isMatrix)
    in.push_back(1);
  return b.generic(
      kinds, {{rows, in}, {blockOf, {row}}}, {{sums, out}},
      [&](ValueRange args) {
        Value here =
            b.compare(CmpIPredicate::eq, args[1], b.toI32(b.loopIndex(0)));
        return Values{b.add(args[2], b.select(here, args[0], zero))};
      })[0];
}

Value LossBuilder::addOverRanks(Value mine) {
  return AllReduceOp::create(b, mine.getType(), mine, /*outs=*/ValueRange(),
                             /*layer=*/IntegerAttr())
      ->getResult(0);
}

/// What `scope = global` puts together: `[1, ..]` of `[B, ..]` and all ranks.
/// Blocks are the ranks' tokens, so this is the order of a sum over ranks.
Value LossBuilder::addUp(Value perBlock) {
  if (op.getScope() != LossScope::Global)
    return perBlock;
  auto type = cast<RankedTensorType>(perBlock.getType());
  bool isMatrix = type.getRank() == 2;
  Value zero = isa<FloatType>(type.getElementType()) ? number(0) : b.i32(0);
  Sizes sizes{attr(1)};
  SmallVector<unsigned> in{1}, out{0};
  if (isMatrix) {
    sizes.push_back(b.size(perBlock, 1));
    in = {2, 1};
    out = {0, 1};
  }
  Value sums = b.generic(
      isMatrix ? "ppr" : "pr", {{perBlock, in}}, {{b.filled(sizes, zero), out}},
      [&](ValueRange args) { return Values{b.add(args[1], args[0])}; })[0];
  if (!op.getOverRanks())
    return sums;
  return addOverRanks(sums);
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

/// Logits as a gate reads them: wide, NaN is -inf, +inf the largest number.
Value LossBuilder::cleanLogits(Value raw) {
  auto &semantics = cast<FloatType>(real).getFloatSemantics();
  Value largest = arith::ConstantOp::create(
      b, b.getFloatAttr(real, APFloat::getLargest(semantics)));
  Value lowest = b.infinity(real, /*negative=*/true);
  Value out = b.empty({b.size(raw, 0), b.size(raw, 1)}, real);
  return b.map(raw, out, [&](ValueRange args) {
    Value wide = b.toReal(args[0], real);
    Value high = b.compare(CmpFPredicate::OGT, wide, largest);
    Value clean = b.select(high, largest, wide);
    return b.select(b.isNaN(wide), lowest, clean);
  });
}

/// Scores `[T, E]` of clean logits, 0 where no expert can be chosen; `logSum`
/// becomes `[T]`, the logarithm of the sum of exponentials.
Value LossBuilder::scoreTokens(Value clean, Value *logSum) {
  OpFoldResult tokens = b.size(clean, 0), experts = b.size(clean, 1);
  Value zero = number(0), one = number(1);
  Value none = b.infinity(real, /*negative=*/true);
  Value top, powers;
  Value out = b.empty({tokens, experts}, real);
  if (op.getScore() == Score::Sigmoid) {
    // exp stays finite, and with it the gradient.
    Value least = number(real.isF64() ? -700 : -80);
    powers = b.map(clean, out, [&](ValueRange args) {
      Value bounded = b.max(args[0], least);
      Value power = math::ExpOp::create(b, arith::NegFOp::create(b, bounded));
      Value score = arith::DivFOp::create(b, one, b.add(one, power));
      Value absent = b.compare(CmpFPredicate::OEQ, args[0], none);
      return b.select(absent, zero, score);
    });
  } else {
    auto &semantics = cast<FloatType>(real).getFloatSemantics();
    Value lowest = arith::ConstantOp::create(
        b, b.getFloatAttr(real, APFloat::getLargest(semantics, true)));
    top = b.generic(
        "pr", {{clean, {0, 1}}}, {{b.filled({tokens}, lowest), {0}}},
        [&](ValueRange args) { return Values{b.max(args[1], args[0])}; })[0];
    powers = b.generic("pp", {{clean, {0, 1}}, {top, {0}}}, {{out, {0, 1}}},
                       [&](ValueRange args) {
                         return Values{
                             math::ExpOp::create(b, b.sub(args[0], args[1]))};
                       })[0];
  }
  Value sums = b.generic(
      "pr", {{powers, {0, 1}}}, {{b.filled({tokens}, zero), {0}}},
      [&](ValueRange args) { return Values{b.add(args[1], args[0])}; })[0];
  auto safe = [&](Value sum) {
    return b.select(b.compare(CmpFPredicate::OEQ, sum, zero), one, sum);
  };
  if (logSum) {
    *logSum =
        b.generic("p", {{sums, {0}}, {top, {0}}},
                  {{b.empty({tokens}, real), {0}}}, [&](ValueRange args) {
                    Value empty = b.compare(CmpFPredicate::OEQ, args[0], zero);
                    Value log = math::LogOp::create(b, safe(args[0]));
                    return Values{b.select(empty, zero, b.add(args[1], log))};
                  })[0];
    return {};
  }
  return b.generic("pp", {{powers, {0, 1}}, {sums, {0}}}, {{out, {0, 1}}},
                   [&](ValueRange args) {
                     return Values{
                         arith::DivFOp::create(b, args[0], safe(args[1]))};
                   })[0];
}

/// `[T]` or `[T, N]` with zeros for masked tokens.
Value LossBuilder::dropMasked(Value rows) {
  if (!op.getMask())
    return rows;
  auto type = cast<RankedTensorType>(rows.getType());
  Value zero = isa<FloatType>(type.getElementType()) ? number(0) : b.i32(0);
  bool isMatrix = type.getRank() == 2;
  SmallVector<unsigned> all{0};
  Sizes sizes{b.size(rows, 0)};
  if (isMatrix) {
    all.push_back(1);
    sizes.push_back(b.size(rows, 1));
  }
  Value out = b.empty(sizes, type.getElementType());
  return b.generic(isMatrix ? "pp" : "p", {{rows, all}, {op.getMask(), {0}}},
                   {{out, all}}, [&](ValueRange args) {
                     return Values{b.select(args[1], args[0], zero)};
                   })[0];
}

/// `[B]`: tokens that are not masked.
Value LossBuilder::countTokens() {
  Value ones = b.filled({b.size(logits, 0)}, b.i32(1));
  return sumBlocks(dropMasked(ones));
}

/// `[B, E]`: pairs that chose an expert, of first choices only for gshard.
Value LossBuilder::countPairs() {
  OpFoldResult tokens = b.size(logits, 0), experts = b.size(logits, 1);
  Value pairs = b.filled({tokens, experts}, b.i32(0));
  pairs = b.generic(
      "ppr", {{op.getIds(), {0, 2}}}, {{pairs, {0, 1}}}, [&](ValueRange args) {
        Value chosen =
            b.compare(CmpIPredicate::eq, args[0], b.toI32(b.loopIndex(1)));
        if (op.getKind() == LossKind::GShard)
          chosen = arith::AndIOp::create(
              b, chosen,
              b.compare(CmpIPredicate::eq, b.loopIndex(2), b.index(0)));
        Value one = b.select(chosen, b.i32(1), b.i32(0));
        return Values{b.add(args[1], one)};
      })[0];
  return sumBlocks(dropMasked(pairs));
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

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
