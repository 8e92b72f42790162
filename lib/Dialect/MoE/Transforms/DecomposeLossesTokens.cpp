// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What losses are made from: rows by block, scores and counts of tokens.

#include "DecomposeLosses.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

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
        b.compare(arith::CmpIPredicate::ule, b.loopIndex(1), b.loopIndex(0));
    return Values{b.add(args[1], b.select(before, args[0], b.i32(0)))};
  })[0];
  blockOf = b.filled({b.size(logits, 0)}, b.i32(0));
  blockOf =
      b.generic("pr", {{ends, {1}}}, {{blockOf, {0}}}, [&](ValueRange args) {
        Value behind = b.compare(arith::CmpIPredicate::sge,
                                 b.toI32(b.loopIndex(0)), args[0]);
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
  return b.generic(kinds, {{rows, in}, {blockOf, {row}}}, {{sums, out}},
                   [&](ValueRange args) {
                     Value here = b.compare(arith::CmpIPredicate::eq, args[1],
                                            b.toI32(b.loopIndex(0)));
                     return Values{
                         b.add(args[2], b.select(here, args[0], zero))};
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
    Value high = b.compare(arith::CmpFPredicate::OGT, wide, largest);
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
      Value absent = b.compare(arith::CmpFPredicate::OEQ, args[0], none);
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
    return b.select(b.compare(arith::CmpFPredicate::OEQ, sum, zero), one, sum);
  };
  if (logSum) {
    *logSum =
        b.generic("p", {{sums, {0}}, {top, {0}}},
                  {{b.empty({tokens}, real), {0}}}, [&](ValueRange args) {
                    Value empty =
                        b.compare(arith::CmpFPredicate::OEQ, args[0], zero);
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
        Value chosen = b.compare(arith::CmpIPredicate::eq, args[0],
                                 b.toI32(b.loopIndex(1)));
        if (op.getKind() == LossKind::GShard)
          chosen = arith::AndIOp::create(
              b, chosen,
              b.compare(arith::CmpIPredicate::eq, b.loopIndex(2), b.index(0)));
        Value one = b.select(chosen, b.i32(1), b.i32(0));
        return Values{b.add(args[1], one)};
      })[0];
  return sumBlocks(dropMasked(pairs));
}
