// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// moe.gate by expert, in three launches that need no memory of their own: a
// warp per token scores; a warp per expert finds the smallest key that it takes
// bit by bit and takes what lies above, ties to the lowest token; a warp per
// token normalises. Until the second has run, ids hold the keys as integers
// that order as they do, 0 for a masked token.

#include "GateBuilder.h"
#include "WarpKernel.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// An unsigned integer that is larger where the f32 is; none is 0.
static Value toOrdered(GateBuilder &gate, Value key) {
  KernelBuilder &b = gate.b;
  // Zeros are equal, whatever their sign.
  Value isZero = gate.compareReal(CmpFPredicate::OEQ, key, gate.real(0));
  key = b.select(isZero, gate.real(0), key);
  Value bits = b.make<arith::BitcastOp>(b.i32, key);
  Value flipped = b.bitXor(bits, b.number(-1));
  Value raised = b.bitOr(bits, b.number(INT32_MIN));
  return b.select(b.compare(Predicate::slt, bits, 0), flipped, raised);
}

LLVM::LLVMFuncOp moe::buildExpertScoresKernel(gpu::GPUModuleOp module,
                                              const GateKernel &kernel) {
  int64_t pointers = 3 + kernel.bias + kernel.mask;
  GateBuilder gate(module, kernel,
                   WarpKernel::parameters(module.getContext(), pointers, 1));
  KernelBuilder &b = gate.b;
  Value bias = kernel.bias ? b.argument(1) : Value();
  Value ids = b.argument(pointers - 2), weights = b.argument(pointers - 1);
  return gate.forEachToken(b.argument(pointers), [&](Value token) {
    gate.scoreExperts(token, bias);
    Value isMasked;
    if (kernel.mask) {
      Value flag = b.load(b.at(b.argument(1 + kernel.bias), b.widen(token)),
                          b.builder.getI8Type());
      isMasked = b.compare(Predicate::eq, flag, 0);
    }
    gate.forOwn([&](Value expert) {
      Value key = b.load(gate.keyPlace(expert), b.f32);
      Value value = b.load(gate.valuePlace(expert), b.f32);
      Value ordered = toOrdered(gate, key);
      if (isMasked)
        ordered = b.select(isMasked, b.number(0), ordered);
      b.store(ordered, gate.place(ids, token, kernel.experts, expert));
      b.store(b.select(gate.isDead(key), gate.real(0), value),
              gate.place(weights, token, kernel.experts, expert));
    });
    // Before the next token's values are written.
    gate.sync();
  });
}

LLVM::LLVMFuncOp moe::buildExpertChoiceKernel(gpu::GPUModuleOp module,
                                              const GateKernel &kernel) {
  WarpKernel warp(module, kernel.name, 2, 2);
  KernelBuilder &b = warp.b;
  Value tokens = b.argument(2);
  warp.forEach(b.number(kernel.experts), [&](Value expert) {
    auto place = [&](Value matrix, Value token) {
      Value index =
          b.add(b.mul(b.widen(token), kernel.experts), b.widen(expert));
      return b.at(matrix, b.mul(index, 4));
    };
    auto keyOf = [&](Value token) {
      return b.choose(
          b.compare(Predicate::slt, token, tokens), {b.i32},
          [&]() -> SmallVector<Value> {
            return {b.load(place(b.argument(0), token), b.i32)};
          },
          [&]() -> SmallVector<Value> { return {b.number(0)}; })[0];
    };
    Value rounds = b.ceilDiv(tokens, 32);
    // How many keys are at least `limit`, or above it.
    auto countKeys = [&](Predicate predicate, Value limit) {
      return b.loop(rounds, b.number(0),
                    [&](Value round, ValueRange before) -> SmallVector<Value> {
                      Value key = keyOf(b.add(b.mul(round, 32), warp.lane));
                      Value found =
                          warp.ballot(b.compare(predicate, key, limit));
                      return {b.add(before[0], warp.countBits(found))};
                    })[0];
    };
    Value wanted = b.minimum(b.maximum(b.argument(3), b.number(0)),
                             countKeys(Predicate::uge, b.number(1)));
    // With none wanted no key is as large as all ones.
    Value limit =
        b.loop(b.number(32), b.number(0),
               [&](Value i, ValueRange bits) -> SmallVector<Value> {
                 Value bit = b.make<arith::ShRUIOp>(b.number(INT32_MIN), i);
                 Value larger = b.bitOr(bits[0], bit);
                 Value isEnough = b.compare(
                     Predicate::sge, countKeys(Predicate::uge, larger), wanted);
                 return {b.select(isEnough, larger, bits[0])};
               })[0];
    Value equals = b.sub(wanted, countKeys(Predicate::ugt, limit));
    b.loop(rounds, b.number(0),
           [&](Value round, ValueRange before) -> SmallVector<Value> {
             Value token = b.add(b.mul(round, 32), warp.lane);
             Value key = keyOf(token);
             Value isEqual = b.compare(Predicate::eq, key, limit);
             Value equal = warp.ballot(isEqual);
             Value rank = b.add(before[0], warp.countBelow(equal));
             Value isTaken = b.bitOr(
                 b.compare(Predicate::ugt, key, limit),
                 b.bitAnd(isEqual, b.compare(Predicate::slt, rank, equals)));
             b.when(b.compare(Predicate::slt, token, tokens), [&] {
               b.store(b.select(isTaken, expert, b.number(-1)),
                       place(b.argument(0), token));
               b.when(b.bitXor(isTaken, b.make<arith::ConstantOp>(
                                            b.builder.getBoolAttr(true))),
                      [&] {
                        b.store(b.zero(b.f32), place(b.argument(1), token));
                      });
             });
             return {b.add(before[0], warp.countBits(equal))};
           });
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildExpertWeightsKernel(gpu::GPUModuleOp module,
                                               const GateKernel &kernel) {
  GateBuilder gate(module, kernel,
                   WarpKernel::parameters(module.getContext(), 1, 1));
  KernelBuilder &b = gate.b;
  bool hasSum = kernel.router.getNormalize() != Normalize::None;
  return gate.forEachToken(b.argument(1), [&](Value token) {
    Value zero = b.make<arith::ConstantOp>(b.builder.getF64FloatAttr(0));
    // Every lane adds all of them: the order is part of the result.
    Value sum = zero;
    if (hasSum) {
      sum = b.loop(b.number(kernel.experts), zero,
                   [&](Value expert, ValueRange before) -> SmallVector<Value> {
                     Value one = b.load(gate.place(b.argument(0), token,
                                                   kernel.experts, expert),
                                        b.f32);
                     return {b.make<arith::AddFOp>(
                         before[0], b.make<arith::ExtFOp>(gate.f64, one))};
                   })[0];
      // All lanes have read what each now overwrites.
      gate.sync();
    }
    gate.forOwn([&](Value expert) {
      Value at = gate.place(b.argument(0), token, kernel.experts, expert);
      Value weight = b.load(at, b.f32);
      if (hasSum)
        weight = gate.normalize(weight, sum);
      b.store(gate.scale(weight), at);
    });
  });
}
