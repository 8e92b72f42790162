// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The router, one warp per token: scores in shared memory, the best by
// exchanging between lanes. Sums run over experts (or choices) in ascending
// order in f64, as docs/routing.md has it, so that a GPU agrees with the CPU.

#include "KernelBuilder.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpFPredicate;

namespace {

class GateBuilder {
public:
  GateBuilder(gpu::GPUModuleOp module, const GateKernel &kernel);
  LLVM::LLVMFuncOp build();

private:
  void route(Value token);
  void scoreExperts(Value token);
  void softmax(Value size, Value top);
  /// The ids and keys of the choices; lane j has those of choice j.
  std::pair<Value, Value> select();
  Value weigh(Value id, Value key);
  Value finish(Value weight);

  // f32.
  Value real(double value) {
    return b.make<arith::ConstantOp>(b.builder.getF32FloatAttr(value));
  }
  Value minusInfinity() {
    return b.make<arith::ConstantOp>(b.builder.getFloatAttr(
        b.f32, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
  }
  Value compareReal(CmpFPredicate predicate, Value x, Value y) {
    return b.make<arith::CmpFOp>(predicate, x, y);
  }
  Value isDead(Value key) {
    return compareReal(CmpFPredicate::OEQ, key, minusInfinity());
  }
  /// NaN counts as -inf.
  Value sanitize(Value x) {
    return b.select(compareReal(CmpFPredicate::UNO, x, x), minusInfinity(), x);
  }
  Value score(Value logit);
  Value exp(Value x) { return b.make<math::ExpOp>(x); }

  // Rows of this warp in shared memory.
  Value keyPlace(Value expert) { return b.at(keys, b.mul(expert, 4)); }
  Value valuePlace(Value expert) { return b.at(values, b.mul(expert, 4)); }
  /// Calls body(expert) for this lane's experts.
  void forOwn(function_ref<void(Value)> body);
  Value exchange(Value value, Value offset, NVVM::ShflKind kind, MOIRA_HERE);
  void sync(MOIRA_HERE) { b.makeHere<NVVM::SyncWarpOp>(file, line, allLanes); }
  /// The largest of what the lanes have.
  Value maximumOfLanes(Value value);
  /// The sum over the choices' lanes in order, in f64.
  Value sumOfChoices(Value value);

  const GateKernel &kernel;
  RouterAttr router;
  KernelBuilder b;
  Type f64;
  Value lane, keys, values, allLanes, experts;
};

} // namespace

static SmallVector<Type> gateParameters(const GateKernel &kernel,
                                        MLIRContext *context) {
  SmallVector<Type> types(
      kernel.bias ? 4 : 3,
      LLVM::LLVMPointerType::get(context,
                                 unsigned(NVVM::NVVMMemorySpace::Global)));
  types.push_back(IntegerType::get(context, 32));
  return types;
}

GateBuilder::GateBuilder(gpu::GPUModuleOp module, const GateKernel &kernel)
    : kernel(kernel), router(kernel.router),
      b(module, kernel.name, gateParameters(kernel, module.getContext()), {},
        kRoutingThreads),
      f64(b.builder.getF64Type()) {}

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
void GateBuilder::softmax(Value size, Value top) {
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
            b.loop(size, zero,
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

void GateBuilder::scoreExperts(Value token) {
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
    softmax(experts, maximumOfLanes(top));
  forOwn([&](Value expert) {
    Value dead = isDead(b.load(keyPlace(expert), b.f32));
    Value value = b.load(valuePlace(expert), b.f32), key = value;
    if (kernel.bias)
      key = sanitize(b.make<arith::AddFOp>(
          key, b.load(b.at(b.argument(1), b.mul(b.widen(expert), 4)), b.f32)));
    b.store(b.select(dead, minusInfinity(), key), keyPlace(expert));
    if (!byLogit)
      b.store(b.select(dead, real(0), value), valuePlace(expert));
  });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

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

/// The weight of this lane's choice before normalisation.
Value GateBuilder::weigh(Value id, Value key) {
  bool byLogit = router.getAfterTopK();
  Value none = byLogit ? minusInfinity() : real(0);
  Value hasChoice = b.compare(Predicate::slt, lane, kernel.choices);
  // A choice of -inf is only there to keep ids distinct.
  Value isAlive = b.bitAnd(
      hasChoice, compareReal(CmpFPredicate::UNE, key, minusInfinity()));
  Value weight = b.select(isAlive, b.load(valuePlace(id), b.f32), none);
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

/// Normalisation and scale.
Value GateBuilder::finish(Value weight) {
  Normalize normalize = router.getNormalize();
  if (normalize != Normalize::None) {
    Value sum = sumOfChoices(weight);
    Value eps = b.make<arith::ConstantOp>(
        b.builder.getF64FloatAttr(router.getEps().convertToDouble()));
    if (normalize == Normalize::SumPlusEps)
      sum = b.make<arith::AddFOp>(sum, eps);
    else
      sum = b.select(compareReal(CmpFPredicate::OLT, sum, eps), eps, sum);
    Value divisor = b.make<arith::TruncFOp>(b.f32, sum);
    Value isZero = compareReal(CmpFPredicate::OEQ, divisor, real(0));
    weight = b.select(isZero, real(0), b.make<arith::DivFOp>(weight, divisor));
  }
  double scale = router.getScale().convertToDouble();
  return scale == 1 ? weight
                    : b.make<arith::MulFOp>(weight, real(scale)).getResult();
}

void GateBuilder::route(Value token) {
  scoreExperts(token);
  std::pair<Value, Value> chosen = select();
  Value id = chosen.first, key = chosen.second;
  // Values are read by other lanes than wrote them.
  sync();
  Value weight = finish(weigh(id, key));
  unsigned first = kernel.bias ? 2 : 1;
  b.when(b.compare(Predicate::slt, lane, kernel.choices), [&] {
    Value at =
        b.mul(b.add(b.mul(b.widen(token), kernel.choices), b.widen(lane)), 4);
    b.store(id, b.at(b.argument(first), at));
    b.store(weight, b.at(b.argument(first + 1), at));
  });
  // Before the next token's values are written.
  sync();
}

LLVM::LLVMFuncOp GateBuilder::build() {
  Value thread = b.thread();
  lane = b.rem(thread, 32);
  Value warp = b.div(thread, 32);
  allLanes = b.number(-1);
  experts = b.number(kernel.experts);
  keys = b.at(b.dynamicShared(), b.mul(warp, kernel.experts * 8));
  values = b.at(keys, kernel.experts * 4);
  Value tokens = b.argument(kernel.bias ? 4 : 3);
  Value first = b.add(b.mul(b.block(), kRoutingWarps), warp);
  Value step = b.mul(b.blocks(), kRoutingWarps);
  b.loopWhile(
      first,
      [&](ValueRange token) -> SmallVector<Value> {
        return {b.compare(Predicate::slt, token[0], tokens), token[0]};
      },
      [&](ValueRange token) -> SmallVector<Value> {
        route(token[0]);
        return {b.add(token[0], step)};
      });
  b.finish();
  return b.function;
}

LLVM::LLVMFuncOp moe::buildGateKernel(gpu::GPUModuleOp module,
                                      const GateKernel &kernel) {
  return GateBuilder(module, kernel).build();
}
