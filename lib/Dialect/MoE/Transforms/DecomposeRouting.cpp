// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"
#include "DecomposeBuilder.h"
#include "DecomposeSort.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;
using arith::CmpIPredicate;

/// Whether 0 <= id < experts.
static Value isExpert(DecomposeBuilder &b, Value id, int64_t experts) {
  return b.compare(CmpIPredicate::ult, id, b.i32(experts));
}

//===----------------------------------------------------------------------===//
// moe.count
//===----------------------------------------------------------------------===//

void mlir::moe::detail::decompose(RewriterBase &rewriter, CountOp op) {
  DecomposeBuilder b(rewriter, op);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t experts = type.getDimSize(0);
  Value ids = op.getIds(), zero = b.index(0);
  Value tokens = b.dim(ids, 0), choices = b.dim(ids, 1);
  Value none = b.filled({b.getIndexAttr(experts)}, b.i32(0));
  Values counts = b.loop(zero, tokens, none, [&](Value t, ValueRange outer) {
    return b.loop(zero, choices, outer, [&](Value j, ValueRange inner) {
      Value id = b.extract(ids, {t, j});
      return b.when(isExpert(b, id, experts), inner, [&] {
        Value e = b.toIndex(id);
        Value count = b.add(b.extract(inner[0], e), b.i32(1));
        return Values{b.insert(count, inner[0], e)};
      });
    });
  });
  rewriter.replaceOp(op, counts);
}

//===----------------------------------------------------------------------===//
// moe.capacity
//===----------------------------------------------------------------------===//

namespace {
/// Capacity is computed on i64; only the factor is f64.
struct CapacityFormula {
  DecomposeBuilder &b;

  Value constant(int64_t value) {
    return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
  }
  Value toReal(Value integer) {
    return arith::SIToFPOp::create(b, b.getF64Type(), integer);
  }
  /// Truncates; NaN and what is negative become 0, and 2^50 is the most: no sum
  /// or product below overflows.
  Value truncate(Value value) {
    Value positive = b.compare(CmpFPredicate::OGT, value, b.real(f64(), 0));
    value = b.select(positive, value, b.real(f64(), 0));
    value = b.min(value, b.real(f64(), 0x1p50));
    return arith::FPToSIOp::create(b, b.getI64Type(), value);
  }
  Value ceil(Value value) { return math::CeilOp::create(b, value); }
  Type f64() { return b.getF64Type(); }
};
} // namespace

/// The largest of `counts`, as i64.
static Value largestCount(DecomposeBuilder &b, Value counts) {
  Value zero = b.index(0);
  Value most =
      b.loop(zero, b.dim(counts, 0), b.i32(0), [&](Value e, ValueRange most) {
        return Values{b.max(most[0], b.extract(counts, e))};
      })[0];
  return arith::ExtSIOp::create(b, b.getI64Type(), most);
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, CapacityOp op) {
  DecomposeBuilder b(rewriter, op);
  CapacityFormula c = {b};
  Value tokens = arith::IndexCastOp::create(b, b.getI64Type(), op.getTokens());
  Value k = arith::IndexCastOp::create(b, b.getI64Type(), op.getTopK());
  Value experts = c.constant(op.getExperts()), factor = op.getFactor();
  Value capacity;
  switch (op.getRule()) {
  case CapacityRule::Tutel: {
    Value share = arith::CeilDivSIOp::create(b, tokens, experts);
    Value magnitude = math::AbsFOp::create(b, factor);
    capacity = b.mul(k, c.truncate(b.mul(magnitude, c.toReal(share))));
    if (op.getCounts()) {
      // f = 0: what is needed; f < 0: that, but no more than the formula.
      Value need = largestCount(b, op.getCounts());
      Value zero = b.real(c.f64(), 0);
      Value isNegative = b.compare(CmpFPredicate::OLT, factor, zero);
      Value isZero = b.compare(CmpFPredicate::OEQ, factor, zero);
      capacity = b.select(isNegative, b.min(need, capacity), capacity);
      capacity = b.select(isZero, need, capacity);
    }
    break;
  }
  case CapacityRule::GShard: {
    Value rows = c.truncate(c.ceil(b.mul(factor, c.toReal(tokens))));
    capacity = arith::DivSIOp::create(b, b.mul(rows, k), experts);
    break;
  }
  case CapacityRule::Switch: {
    Value rows = b.mul(b.mul(factor, c.toReal(k)), c.toReal(tokens));
    Value each = arith::DivFOp::create(b, rows, c.toReal(experts));
    capacity = c.truncate(c.ceil(each));
    break;
  }
  case CapacityRule::Fixed:
    capacity = c.truncate(factor);
    break;
  }
  capacity = b.max(capacity, c.constant(op.getMinimum()));
  if (op.getAlignment() != 1) {
    Value alignment = c.constant(op.getAlignment());
    capacity =
        b.mul(arith::CeilDivSIOp::create(b, capacity, alignment), alignment);
  }
  rewriter.replaceOp(op, b.toIndex(capacity));
}

//===----------------------------------------------------------------------===//
// moe.assign
//===----------------------------------------------------------------------===//

namespace {

/// Places pairs block by block. `slots` holds positions within an expert's
/// group until the sizes of all groups are known.
class AssignBuilder {
public:
  AssignBuilder(RewriterBase &rewriter, AssignOp op)
      : b(rewriter, op), op(op), ids(op.getIds()), experts(op.getNumExperts()),
        zero(b.index(0)), tokens(b.dim(ids, 0)), choices(b.dim(ids, 1)) {}

  Values build();

private:
  /// What is carried through all loops: slots, sizes and, with a capacity, the
  /// size that each group may reach in this block.
  Values placePair(Value t, Value j, ValueRange carried);
  Values placeBlock(Value begin, Value end, ValueRange carried);
  /// The pairs, or tokens, begin..end in descending priority.
  Value sortedOrder(Value begin, Value end);
  Value addOffsets(Value slots, Value sizes);

  DecomposeBuilder b;
  AssignOp op;
  Value ids;
  int64_t experts;
  Value zero, tokens, choices;
  /// Buffers of the sort, for the orders by priority.
  SortBuffers buffers;
};

} // namespace

Values AssignBuilder::placePair(Value t, Value j, ValueRange carried) {
  Value id = b.extract(ids, {t, j});
  Value used = isExpert(b, id, experts);
  Value e = b.toIndex(b.select(used, id, b.i32(0)));
  // A pair of a group that has dropped one is dropped as well, so the size of
  // a group is the position of its next pair.
  Value size = b.extract(carried[1], e), kept = used;
  if (op.getCapacity()) {
    Value room = b.compare(CmpIPredicate::slt, b.toIndex(size),
                           b.extract(carried[2], e));
    kept = arith::AndIOp::create(b, used, room);
  }
  Value one = arith::ExtUIOp::create(b, b.getI32Type(), kept);
  Values next(carried);
  next[0] = b.insert(b.select(kept, size, b.i32(-1)), carried[0], {t, j});
  next[1] = b.insert(b.add(size, one), carried[1], e);
  return next;
}

Value AssignBuilder::sortedOrder(Value begin, Value end) {
  return buildDescendingOrder(b, buffers, begin, end,
                              [&](Value i) {
                                if (op.getOrder() == Order::BatchPrioritized)
                                  return b.extract(op.getPriority(), i);
                                Value t = arith::DivUIOp::create(b, i, choices);
                                Value j = arith::RemUIOp::create(b, i, choices);
                                return b.extract(op.getPriority(), {t, j});
                              })
      .order;
}

Values AssignBuilder::placeBlock(Value begin, Value end, ValueRange carried) {
  switch (op.getOrder()) {
  case Order::ChoiceMajor:
    return b.loop(zero, choices, carried, [&](Value j, ValueRange outer) {
      return b.loop(begin, end, outer, [&](Value t, ValueRange inner) {
        return placePair(t, j, inner);
      });
    });
  case Order::TokenMajor:
    return b.loop(begin, end, carried, [&](Value t, ValueRange outer) {
      return b.loop(zero, choices, outer, [&](Value j, ValueRange inner) {
        return placePair(t, j, inner);
      });
    });
  case Order::BatchPrioritized: {
    Value sorted = sortedOrder(begin, end);
    return b.loop(zero, choices, carried, [&](Value j, ValueRange outer) {
      return b.loop(begin, end, outer, [&](Value i, ValueRange inner) {
        return placePair(b.toIndex(b.extract(sorted, i)), j, inner);
      });
    });
  }
  case Order::ExpertProbability: {
    Value first = b.mul(begin, choices), last = b.mul(end, choices);
    Value sorted = sortedOrder(first, last);
    return b.loop(first, last, carried, [&](Value i, ValueRange inner) {
      Value pair = b.toIndex(b.extract(sorted, i));
      return placePair(arith::DivUIOp::create(b, pair, choices),
                       arith::RemUIOp::create(b, pair, choices), inner);
    });
  }
  }
  llvm_unreachable("covered switch");
}

Value AssignBuilder::addOffsets(Value slots, Value sizes) {
  Value offsets;
  if (!op.getPadded()) {
    // Exclusive prefix sum of the sizes.
    Value none = b.filled({b.getIndexAttr(experts)}, b.i32(0));
    offsets = b.loop(zero, b.index(experts), {none, b.i32(0)},
                     [&](Value e, ValueRange carried) {
                       Value out = b.insert(carried[1], carried[0], e);
                       Value size = b.extract(sizes, e);
                       return Values{out, b.add(carried[1], size)};
                     })[0];
  } else {
    Value perExpert = op.getCapacity();
    if (op.getBlocks())
      perExpert = b.mul(perExpert, b.dim(op.getBlocks(), 0));
    offsets = b.toI32(perExpert);
  }
  return b.map(ids, slots, [&](ValueRange args) {
    Value id = args[0], position = args[1];
    Value stands = b.compare(CmpIPredicate::sge, position, b.i32(0));
    Value offset =
        op.getPadded()
            ? b.mul(id, offsets)
            : b.extract(offsets, b.toIndex(b.select(stands, id, b.i32(0))));
    return b.select(stands, b.add(position, offset), position);
  });
}

Values AssignBuilder::build() {
  Value bound = op.buildBound(b, op.getLoc());
  OpFoldResult expertSize = b.getIndexAttr(experts);
  Sizes pairs = {b.size(ids, 0), b.size(ids, 1)};
  Values carried = {b.filled(pairs, b.i32(-1)),
                    b.filled({expertSize}, b.i32(0))};
  if (op.getCapacity())
    carried.push_back(b.filled({expertSize}, op.getCapacity()));
  if (op.getOrder() == Order::BatchPrioritized) {
    buffers.order = b.empty({pairs[0]}, b.getI32Type());
    buffers.scratch = b.empty({pairs[0]}, b.getI32Type());
  } else if (op.getOrder() == Order::ExpertProbability) {
    OpFoldResult count = getAsOpFoldResult(b.mul(tokens, choices));
    buffers.order = b.empty({count}, b.getI32Type());
    buffers.scratch = b.empty({count}, b.getI32Type());
  }

  if (!op.getBlocks()) {
    carried = placeBlock(zero, tokens, carried);
  } else {
    carried.push_back(zero); // first token of the block
    carried = b.loop(
        zero, b.dim(op.getBlocks(), 0), carried,
        [&](Value block, ValueRange args) {
          Value rows = b.toIndex(b.extract(op.getBlocks(), block));
          Value begin = args.back();
          Value end = b.min(b.add(begin, b.max(rows, zero)), tokens);
          Values inner(args.drop_back());
          if (op.getCapacity())
            inner[2] = b.generic(
                "p", {{inner[1], {0}}}, {{inner[2], {0}}},
                [&](ValueRange sizes) {
                  return Values{b.add(b.toIndex(sizes[0]), op.getCapacity())};
                })[0];
          Values next = placeBlock(begin, end, inner);
          next.push_back(end);
          return next;
        });
  }
  Value slots = addOffsets(carried[0], carried[1]);
  if (op.getPadded()) {
    // The same number, but no constant: MLIR refuses every slice of a static
    // dimension of 0, which a capacity of 0 would give.
    Value size = b.toIndex(b.extract(carried[1], zero));
    bound = b.min(bound, b.max(bound, size));
  }
  return {b.castTo(slots, op->getResult(0).getType()),
          b.castTo(carried[1], op->getResult(1).getType()), bound};
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, AssignOp op) {
  rewriter.replaceOp(op, AssignBuilder(rewriter, op).build());
}

//===----------------------------------------------------------------------===//
// moe.noise
//===----------------------------------------------------------------------===//

/// Ten rounds of Philox4x32.
static Values buildPhilox(DecomposeBuilder &b, Values counter, Values key) {
  counter.append(key);
  auto unsignedConstant = [&](uint32_t value) {
    return b.i32(static_cast<int32_t>(value));
  };
  auto product = [&](uint32_t factor, Value value) {
    return arith::MulUIExtendedOp::create(b, unsignedConstant(factor), value);
  };
  auto exclusiveOr = [&](Value x, Value y, Value z) -> Value {
    return arith::XOrIOp::create(b, arith::XOrIOp::create(b, x, y), z);
  };
  return b.loop(b.index(0), b.index(10), counter, [&](Value, ValueRange c) {
    auto left = product(0xD2511F53, c[0]), right = product(0xCD9E8D57, c[2]);
    return Values{exclusiveOr(right.getHigh(), c[1], c[4]),
                  right.getLow(),
                  exclusiveOr(left.getHigh(), c[3], c[5]),
                  left.getLow(),
                  b.add(c[4], unsignedConstant(0x9E3779B9)),
                  b.add(c[5], unsignedConstant(0xBB67AE85))};
  });
}

/// (word / 512 + 1/2) / 2^23, in f64: inside (0, 1) and exact in f32.
static Value buildUniform(DecomposeBuilder &b, Value word) {
  Type f64 = b.getF64Type();
  Value bits = arith::ShRUIOp::create(b, word, b.i32(9));
  Value number = arith::UIToFPOp::create(b, f64, bits);
  return b.mul(b.add(number, b.real(f64, 0.5)), b.real(f64, 0x1p-23));
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, NoiseOp op) {
  DecomposeBuilder b(rewriter, op);
  Type i32 = b.getI32Type(), i64 = b.getI64Type(), f64 = b.getF64Type();
  auto low = [&](Value wide) -> Value {
    return arith::TruncIOp::create(b, i32, wide);
  };
  auto high = [&](Value wide) -> Value {
    Value shift = arith::ConstantOp::create(b, b.getI64IntegerAttr(32));
    return low(arith::ShRUIOp::create(b, wide, shift));
  };
  uint32_t layer = static_cast<uint32_t>(op.getLayer()) * 0x9E3779B9u;
  Value layerKey = arith::XOrIOp::create(b, high(op.getSeed()),
                                         b.i32(static_cast<int32_t>(layer)));
  Values key = {low(op.getSeed()), layerKey};
  Value step = low(op.getStep());
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  OpFoldResult rows = type.isDynamicDim(0) ? OpFoldResult(op.getRows())
                                           : b.getIndexAttr(type.getDimSize(0));
  Value out =
      b.empty({rows, b.getIndexAttr(type.getDimSize(1))}, b.getF32Type());
  Value noise = b.map({}, out, [&](ValueRange) -> Value {
    Value token = b.add(op.getFirst(), b.loopIndex(0));
    token = arith::IndexCastOp::create(b, i64, token);
    Values counter = {low(token), high(token), b.toI32(b.loopIndex(1)), step};
    Values words = buildPhilox(b, counter, key);
    Value number = buildUniform(b, words[0]);
    if (op.getDistribution() == Distribution::Normal) {
      // Box-Muller.
      Value log = math::LogOp::create(b, number);
      Value radius = math::SqrtOp::create(b, b.mul(b.real(f64, -2), log));
      Value angle = b.mul(b.real(f64, 6.283185307179586476925286766559),
                          buildUniform(b, words[1]));
      number = b.mul(radius, math::CosOp::create(b, angle));
    }
    return b.toReal(number, b.getF32Type());
  });
  rewriter.replaceOp(op, noise);
}
