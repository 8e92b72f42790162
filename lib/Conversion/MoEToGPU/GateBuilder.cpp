// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GateBuilder.h"

#include <limits>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

GateBuilder::GateBuilder(gpu::GPUModuleOp module, const GateKernel &kernel,
                         ArrayRef<Type> parameters)
    : b(module, kernel.name, parameters, {}, kRoutingThreads),
      f64(b.builder.getF64Type()), kernel(kernel), router(kernel.router) {
  Value thread = b.thread();
  lane = b.rem(thread, 32);
  warp = b.div(thread, 32);
  allLanes = b.number(-1);
  experts = b.number(kernel.experts);
  keys = b.at(b.dynamicShared(),
              b.mul(warp, kernel.sharedBytes() / kRoutingWarps));
  values = b.at(keys, kernel.experts * 4);
  groups = b.at(keys, kernel.experts * 8);
}

LLVM::LLVMFuncOp GateBuilder::forEachToken(Value tokens,
                                           function_ref<void(Value)> body) {
  Value first = b.add(b.mul(b.block(), kRoutingWarps), warp);
  Value step = b.mul(b.blocks(), kRoutingWarps);
  b.loopWhile(
      first,
      [&](ValueRange token) -> SmallVector<Value> {
        return {b.compare(Predicate::slt, token[0], tokens), token[0]};
      },
      [&](ValueRange token) -> SmallVector<Value> {
        body(token[0]);
        return {b.add(token[0], step)};
      });
  b.finish();
  return b.function;
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

void GateBuilder::forOwn(function_ref<void(Value)> body) {
  // The same number of rounds in all lanes.
  Value rounds = b.number(llvm::divideCeil(kernel.experts, 32));
  b.loop(rounds, {}, [&](Value round, ValueRange) -> SmallVector<Value> {
    Value expert = b.add(b.mul(round, 32), lane);
    if (kernel.experts % 32 == 0)
      body(expert);
    else
      b.when(b.compare(Predicate::slt, expert, kernel.experts),
             [&] { body(expert); });
    return {};
  });
}

Value GateBuilder::exchange(Value value, Value offset, NVVM::ShflKind kind,
                            const char *file, unsigned line) {
  return b.makeHere<NVVM::ShflOp>(file, line, value.getType(), allLanes, value,
                                  offset, b.number(31), kind, UnitAttr());
}

Value GateBuilder::maximumOfLanes(Value value) {
  for (int64_t distance : {16, 8, 4, 2, 1})
    value = b.make<arith::MaximumFOp>(
        value, exchange(value, b.number(distance), NVVM::ShflKind::bfly));
  return value;
}

Value GateBuilder::sumOfChoices(Value value) {
  Value sum = b.make<arith::ConstantOp>(b.builder.getF64FloatAttr(0));
  for (int64_t j = 0; j < kernel.choices; ++j) {
    Value one = exchange(value, b.number(j), NVVM::ShflKind::idx);
    sum = b.make<arith::AddFOp>(sum, b.make<arith::ExtFOp>(f64, one));
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value GateBuilder::sanitize(Value x) {
  Value isNaN = compareReal(CmpFPredicate::UNO, x, x);
  Value largest = real(std::numeric_limits<float>::max());
  Value isLarger = compareReal(CmpFPredicate::OGT, x, largest);
  return b.select(isNaN, minusInfinity(), b.select(isLarger, largest, x));
}

Value GateBuilder::score(Value logit) {
  switch (router.getScore()) {
  case Score::Sigmoid: {
    Value power = exp(b.make<arith::NegFOp>(logit));
    return b.make<arith::DivFOp>(real(1),
                                 b.make<arith::AddFOp>(real(1), power));
  }
  case Score::SqrtSoftplus: {
    Value size = b.make<math::AbsFOp>(logit);
    Value tail = b.make<math::Log1pOp>(exp(b.make<arith::NegFOp>(size)));
    Value head = b.make<arith::MaximumFOp>(logit, real(0));
    return b.make<math::SqrtOp>(b.make<arith::AddFOp>(head, tail));
  }
  case Score::Identity:
  case Score::Softmax:
    return logit;
  }
  llvm_unreachable("unknown score");
}

/// exp(value - top) / sum for all experts; 0 where all logits are -inf.
void GateBuilder::softmax(Value top) {
  Value shift = b.select(isDead(top), real(0), top);
  forOwn([&](Value expert) {
    Value place = valuePlace(expert);
    b.store(exp(b.make<arith::SubFOp>(b.load(place, b.f32), shift)), place);
  });
  sync();
  // One lane adds: the order is part of the result.
  SmallVector<Value> total = b.choose(
      b.compare(Predicate::eq, lane, 0), {b.f32},
      [&]() -> SmallVector<Value> {
        Value zero = b.make<arith::ConstantOp>(b.builder.getF64FloatAttr(0));
        Value sum =
            b.loop(experts, zero,
                   [&](Value expert, ValueRange before) -> SmallVector<Value> {
                     Value one = b.load(valuePlace(expert), b.f32);
                     return {b.make<arith::AddFOp>(
                         before[0], b.make<arith::ExtFOp>(f64, one))};
                   })[0];
        return {b.make<arith::TruncFOp>(b.f32, sum)};
      },
      [&]() -> SmallVector<Value> { return {real(0)}; });
  Value sum = exchange(total[0], b.number(0), NVVM::ShflKind::idx);
  // An exchange orders no memory: the lane that added has read them all.
  sync();
  sum = b.select(compareReal(CmpFPredicate::OEQ, sum, real(0)), real(1), sum);
  forOwn([&](Value expert) {
    Value place = valuePlace(expert);
    b.store(b.make<arith::DivFOp>(b.load(place, b.f32), sum), place);
  });
}

void GateBuilder::scoreExperts(Value token, Value bias) {
  bool byLogit = router.getAfterTopK();
  int64_t bytes = kernel.logits.getIntOrFloatBitWidth() / 8;
  Value row =
      b.at(b.argument(0), b.mul(b.widen(token), kernel.experts * bytes));
  Value rounds = b.number(llvm::divideCeil(kernel.experts, 32));
  Value top = b.loop(
      rounds, minusInfinity(),
      [&](Value round, ValueRange most) -> SmallVector<Value> {
        Value expert = b.add(b.mul(round, 32), lane);
        return b.choose(
            b.compare(Predicate::slt, expert, kernel.experts), {b.f32},
            [&]() -> SmallVector<Value> {
              Value logit = b.load(b.at(row, b.mul(b.widen(expert), bytes)),
                                   kernel.logits);
              if (!kernel.logits.isF32())
                logit = b.make<arith::ExtFOp>(b.f32, logit);
              logit = sanitize(logit);
              b.store(logit, keyPlace(expert));
              b.store(byLogit ? logit : score(logit), valuePlace(expert));
              return {b.make<arith::MaximumFOp>(most[0], logit)};
            },
            [&]() -> SmallVector<Value> { return {most[0]}; });
      })[0];
  if (router.getScore() == Score::Softmax && !byLogit)
    softmax(maximumOfLanes(top));
  forOwn([&](Value expert) {
    Value dead = isDead(b.load(keyPlace(expert), b.f32));
    Value value = b.load(valuePlace(expert), b.f32), key = value;
    if (bias)
      key = sanitize(b.make<arith::AddFOp>(
          key, b.load(b.at(bias, b.mul(b.widen(expert), 4)), b.f32)));
    b.store(b.select(dead, minusInfinity(), key), keyPlace(expert));
    if (!byLogit)
      b.store(b.select(dead, real(0), value), valuePlace(expert));
  });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// A lane per group looks at its members; a vote per 32 groups tells all lanes
/// which are kept.
void GateBuilder::maskGroups() {
  int64_t count = router.getGroups(), size = kernel.experts / count;
  bool isSum = router.getGroupScore() == GroupScore::SumTop2 && size > 1;
  int64_t rounds = llvm::divideCeil(count, 32);
  auto forGroups = [&](int64_t round, function_ref<void(Value)> body) {
    Value group = b.add(lane, round * 32);
    b.when(b.compare(Predicate::slt, group, count), [&] { body(group); });
  };
  // Keys are read by other lanes than wrote them.
  sync();
  for (int64_t round = 0; round < rounds; ++round)
    forGroups(round, [&](Value group) {
      Value first = b.mul(group, size);
      SmallVector<Value> best =
          b.loop(b.number(size), {minusInfinity(), minusInfinity()},
                 [&](Value i, ValueRange most) -> SmallVector<Value> {
                   // Each lane begins elsewhere, in a bank of its own.
                   Value member = b.add(first, b.rem(b.add(i, lane), size));
                   Value key = b.load(keyPlace(member), b.f32);
                   Value above = compareReal(CmpFPredicate::OGT, key, most[0]);
                   Value second = b.make<arith::MaximumFOp>(most[1], key);
                   return {b.select(above, key, most[0]),
                           b.select(above, most[0], second)};
                 });
      b.store(isSum ? b.make<arith::AddFOp>(best[0], best[1]).getResult()
                    : best[0],
              groupPlace(group));
    });
  sync();
  SmallVector<Value> kept;
  for (int64_t round = 0; round < rounds; ++round) {
    Value group = b.add(lane, round * 32);
    Value isKept = b.choose(
        b.compare(Predicate::slt, group, count), {b.i1},
        [&]() -> SmallVector<Value> {
          Value own = b.load(groupPlace(group), b.f32);
          Value better = b.loop(
              b.number(count), b.number(0),
              [&](Value other, ValueRange before) -> SmallVector<Value> {
                Value score = b.load(groupPlace(other), b.f32);
                Value above = compareReal(CmpFPredicate::OGT, score, own);
                Value equal = compareReal(CmpFPredicate::OEQ, score, own);
                Value lower = b.compare(Predicate::slt, other, group);
                Value isBetter = b.bitOr(above, b.bitAnd(equal, lower));
                return {
                    b.add(before[0], b.make<arith::ExtUIOp>(b.i32, isBetter))};
              })[0];
          return {b.compare(Predicate::slt, better, router.getKeep())};
        },
        [&]() -> SmallVector<Value> { return {b.zero(b.i1)}; })[0];
    kept.push_back(ballot(isKept));
  }
  forOwn([&](Value expert) {
    Value group = b.div(expert, size), word = b.div(group, 32);
    Value bits = kept[0];
    for (int64_t round = 1; round < rounds; ++round)
      bits = b.select(b.compare(Predicate::eq, word, round), kept[round], bits);
    bits = b.make<arith::ShRUIOp>(bits, b.rem(group, 32));
    Value isKept = b.compare(Predicate::ne, b.bitAnd(bits, b.number(1)), 0);
    Value key = b.load(keyPlace(expert), b.f32);
    b.store(b.select(isKept, key, minusInfinity()), keyPlace(expert));
  });
}

std::pair<Value, Value> GateBuilder::select() {
  Value id = b.number(0), key = minusInfinity();
  // Whether (x, i) comes before (y, j): ties go to the lower id.
  auto before = [&](Value x, Value i, Value y, Value j) {
    Value above = compareReal(CmpFPredicate::OGT, x, y);
    Value equal = compareReal(CmpFPredicate::OEQ, x, y);
    Value lower = b.compare(Predicate::slt, i, j);
    return b.bitOr(above, b.bitAnd(equal, lower));
  };
  Value taken = b.make<arith::ConstantOp>(
      b.builder.getFloatAttr(b.f32, APFloat::getNaN(APFloat::IEEEsingle())));
  Value rounds = b.number(llvm::divideCeil(kernel.experts, 32));
  for (int64_t j = 0; j < kernel.choices; ++j) {
    // Of this lane's experts; one that was taken is NaN, and before none.
    SmallVector<Value> best = b.loop(
        rounds, {minusInfinity(), experts},
        [&](Value round, ValueRange most) -> SmallVector<Value> {
          Value expert = b.add(b.mul(round, 32), lane);
          return b.choose(
              b.compare(Predicate::slt, expert, kernel.experts), {b.f32, b.i32},
              [&]() -> SmallVector<Value> {
                Value own = b.load(keyPlace(expert), b.f32);
                Value better = before(own, expert, most[0], most[1]);
                return {b.select(better, own, most[0]),
                        b.select(better, expert, most[1])};
              },
              [&]() -> SmallVector<Value> { return {most[0], most[1]}; });
        });
    // Of all lanes.
    for (int64_t distance : {16, 8, 4, 2, 1}) {
      Value offset = b.number(distance);
      Value otherKey = exchange(best[0], offset, NVVM::ShflKind::bfly);
      Value otherId = exchange(best[1], offset, NVVM::ShflKind::bfly);
      Value better = before(otherKey, otherId, best[0], best[1]);
      best[0] = b.select(better, otherKey, best[0]);
      best[1] = b.select(better, otherId, best[1]);
    }
    b.when(b.compare(Predicate::eq, b.rem(best[1], 32), lane),
           [&] { b.store(taken, keyPlace(best[1])); });
    Value isMine = b.compare(Predicate::eq, lane, j);
    key = b.select(isMine, best[0], key);
    id = b.select(isMine, best[1], id);
  }
  return {id, key};
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Value GateBuilder::weigh(Value id, Value isAlive) {
  bool byLogit = router.getAfterTopK();
  Value none = byLogit ? minusInfinity() : real(0);
  Value safe = b.select(isAlive, id, b.number(0));
  Value weight = b.select(isAlive, b.load(valuePlace(safe), b.f32), none);
  if (!byLogit)
    return weight;
  if (router.getScore() != Score::Softmax)
    return score(weight);
  Value top = maximumOfLanes(weight);
  Value shift = b.select(isDead(top), real(0), top);
  weight = exp(b.make<arith::SubFOp>(weight, shift));
  Value sum = b.make<arith::TruncFOp>(b.f32, sumOfChoices(weight));
  sum = b.select(compareReal(CmpFPredicate::OEQ, sum, real(0)), real(1), sum);
  return b.make<arith::DivFOp>(weight, sum);
}

Value GateBuilder::normalize(Value weight, Value sum) {
  Value eps = b.make<arith::ConstantOp>(
      b.builder.getF64FloatAttr(router.getEps().convertToDouble()));
  if (router.getNormalize() == Normalize::SumPlusEps)
    sum = b.make<arith::AddFOp>(sum, eps);
  else
    sum = b.select(compareReal(CmpFPredicate::OLT, sum, eps), eps, sum);
  Value divisor = b.make<arith::TruncFOp>(b.f32, sum);
  Value isZero = compareReal(CmpFPredicate::OEQ, divisor, real(0));
  return b.select(isZero, real(0), b.make<arith::DivFOp>(weight, divisor));
}

Value GateBuilder::scale(Value weight) {
  double factor = router.getScale().convertToDouble();
  return factor == 1 ? weight
                     : b.make<arith::MulFOp>(weight, real(factor)).getResult();
}
