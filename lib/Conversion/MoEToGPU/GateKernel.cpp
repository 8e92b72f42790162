// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// moe.gate by token, with all its options: one launch.

#include "GateBuilder.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static SmallVector<Type> parametersOf(const GateKernel &kernel,
                                      MLIRContext *context) {
  int64_t pointers =
      3 + kernel.bias + kernel.mask + kernel.replay + kernel.sample;
  SmallVector<Type> types(
      pointers, LLVM::LLVMPointerType::get(
                    context, unsigned(NVVM::NVVMMemorySpace::Global)));
  types.append(1 + kernel.topK, IntegerType::get(context, 32));
  if (kernel.threshold)
    types.push_back(Float32Type::get(context));
  return types;
}

namespace {
/// The kernel's parameters; null where it has none.
struct Parameters {
  Parameters(KernelBuilder &b, const GateKernel &kernel) {
    unsigned next = 1;
    auto take = [&](bool isGiven) {
      return isGiven ? b.argument(next++) : Value();
    };
    bias = take(kernel.bias);
    mask = take(kernel.mask);
    replay = take(kernel.replay);
    sample = take(kernel.sample);
    ids = take(true);
    weights = take(true);
    tokens = take(true);
    topK = take(kernel.topK);
    threshold = take(kernel.threshold);
  }
  Value bias, mask, replay, sample, ids, weights, tokens, topK, threshold;
};

class TokenGate {
public:
  TokenGate(gpu::GPUModuleOp module, const GateKernel &kernel)
      : kernel(kernel),
        gate(module, kernel, parametersOf(kernel, module.getContext())),
        b(gate.b), given(b, kernel) {}

  LLVM::LLVMFuncOp build() {
    return gate.forEachToken(given.tokens, [&](Value token) { route(token); });
  }

private:
  void route(Value token);
  SmallVector<Value> choose(Value token);
  /// The ids that this lane got, and whether its choice has a weight.
  std::pair<Value, Value> chooseIds(Value token);

  const GateKernel &kernel;
  GateBuilder gate;
  KernelBuilder &b;
  Parameters given;
};
} // namespace

std::pair<Value, Value> TokenGate::chooseIds(Value token) {
  Value hasChoice = b.compare(Predicate::slt, gate.lane, kernel.choices);
  if (!given.replay) {
    if (kernel.router.getGroups() > kernel.router.getKeep())
      gate.maskGroups();
    auto [id, key] = gate.select();
    Value isAlive =
        gate.compareReal(CmpFPredicate::UNE, key, gate.minusInfinity());
    return {id, b.bitAnd(hasChoice, isAlive)};
  }
  Value id = b.choose(
      hasChoice, {b.i32},
      [&]() -> SmallVector<Value> {
        return {b.load(
            gate.place(given.replay, token, kernel.choices, gate.lane), b.i32)};
      },
      [&]() -> SmallVector<Value> { return {b.number(-1)}; })[0];
  // Unsigned: negative ids are large.
  Value isExpert = b.compare(Predicate::ult, id, kernel.experts);
  return {b.select(isExpert, id, b.number(-1)), isExpert};
}

/// The id and weight of this lane's choice.
SmallVector<Value> TokenGate::choose(Value token) {
  gate.scoreExperts(token, given.bias);
  Value id, isAlive;
  std::tie(id, isAlive) = chooseIds(token);
  Value none = b.number(-1);
  if (given.topK) {
    Value isUsed = b.compare(Predicate::slt, gate.lane, given.topK);
    id = b.select(isUsed, id, none);
    isAlive = b.bitAnd(isAlive, isUsed);
  }
  // Values are read by other lanes than wrote them.
  gate.sync();
  Value weight = gate.weigh(id, isAlive);
  auto keepIf = [&](Value isUsed) {
    id = b.select(isUsed, id, none);
    weight = b.select(isUsed, weight, gate.real(0));
  };
  if (given.threshold)
    keepIf(gate.compareReal(CmpFPredicate::OGE, weight, given.threshold));
  if (kernel.router.getNormalize() != Normalize::None)
    weight = gate.normalize(weight, gate.sumOfChoices(weight));
  if (given.sample && kernel.choices > 1) {
    Value draw = b.load(b.at(given.sample, b.mul(b.widen(token), 4)), b.f32);
    Value twice = b.make<arith::AddFOp>(weight, weight);
    keepIf(b.bitOr(b.compare(Predicate::ne, gate.lane, 1),
                   gate.compareReal(CmpFPredicate::OGE, twice, draw)));
  }
  return {id, gate.scale(weight)};
}

void TokenGate::route(Value token) {
  SmallVector<Value> chosen;
  if (given.mask) {
    Type i8 = b.builder.getI8Type();
    Value flag = b.load(b.at(given.mask, b.widen(token)), i8);
    // All lanes have the same token.
    chosen = b.choose(
        b.compare(Predicate::ne, flag, 0), {b.i32, b.f32},
        [&] { return choose(token); },
        [&]() -> SmallVector<Value> { return {b.number(-1), gate.real(0)}; });
  } else {
    chosen = choose(token);
  }
  b.when(b.compare(Predicate::slt, gate.lane, kernel.choices), [&] {
    b.store(chosen[0], gate.place(given.ids, token, kernel.choices, gate.lane));
    b.store(chosen[1],
            gate.place(given.weights, token, kernel.choices, gate.lane));
  });
  // Before the next token's values are written.
  gate.sync();
}

LLVM::LLVMFuncOp moe::buildGateKernel(gpu::GPUModuleOp module,
                                      const GateKernel &kernel) {
  return TokenGate(module, kernel).build();
}
