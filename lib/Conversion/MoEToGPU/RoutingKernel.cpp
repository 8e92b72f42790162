// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// count and assign, one warp per expert: it reads all ids in the order of
// placement, 32 at a time, and a vote tells how many of its pairs come before.
// Rows on their way, one warp per token, 16 bytes per lane.

#include "moira/Conversion/MoEToGPU/RoutingKernel.h"
#include "KernelBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
/// A kernel whose warps share out numbers below a limit.
class WarpKernel {
public:
  WarpKernel(gpu::GPUModuleOp module, StringRef name, int64_t pointers,
             int64_t numbers)
      : b(module, name, parameters(module.getContext(), pointers, numbers), {},
          kRoutingThreads) {
    Value thread = b.thread();
    lane = b.rem(thread, 32);
    warp = b.add(b.mul(b.block(), kRoutingWarps), b.div(thread, 32));
    warps = b.mul(b.blocks(), kRoutingWarps);
  }

  /// body(i) for this warp's i below `limit`.
  void forEach(Value limit, function_ref<void(Value)> body) {
    share(warp, warps, limit, body);
  }
  /// body(i) for this thread's i below `limit`, over the whole grid.
  void forEachOfThread(Value limit, function_ref<void(Value)> body) {
    share(b.add(b.mul(warp, 32), lane), b.mul(warps, 32), limit, body);
  }
  LLVM::LLVMFuncOp finish() {
    b.finish();
    return b.function;
  }

  KernelBuilder b;
  Value lane, warp, warps;

private:
  static SmallVector<Type> parameters(MLIRContext *context, int64_t pointers,
                                      int64_t numbers) {
    SmallVector<Type> types(
        pointers, LLVM::LLVMPointerType::get(
                      context, unsigned(NVVM::NVVMMemorySpace::Global)));
    types.append(numbers, IntegerType::get(context, 32));
    return types;
  }
  void share(Value first, Value step, Value limit,
             function_ref<void(Value)> body) {
    b.loopWhile(
        first,
        [&](ValueRange at) -> SmallVector<Value> {
          return {b.compare(Predicate::slt, at[0], limit), at[0]};
        },
        [&](ValueRange at) -> SmallVector<Value> {
          body(at[0]);
          return {b.add(at[0], step)};
        });
  }
};

/// The pairs in the order of placement, for the warp of one expert.
class PairScan {
public:
  PairScan(WarpKernel &warp, const AssignKernel &kernel, Value ids,
           Value tokens)
      : warp(warp), b(warp.b), kernel(kernel), ids(ids), tokens(tokens) {}

  /// Calls body(pair, isMine, place) for each lane's pair, in every round for
  /// all lanes; returns how many pairs the expert has.
  Value run(Value expert, function_ref<void(Value, Value, Value)> body) {
    Value pairs = b.mul(tokens, kernel.choices);
    Value rounds = b.ceilDiv(pairs, 32);
    Value below =
        b.sub(b.make<arith::ShLIOp>(b.number(1), warp.lane), b.number(1));
    return b.loop(
        rounds, b.number(0),
        [&](Value round, ValueRange before) -> SmallVector<Value> {
          Value at = b.add(b.mul(round, 32), warp.lane);
          Value exists = b.compare(Predicate::slt, at, pairs);
          Value pair = pairAt(at);
          Value id = b.choose(
              exists, {b.i32},
              [&]() -> SmallVector<Value> {
                return {b.load(b.at(ids, b.mul(b.widen(pair), 4)), b.i32)};
              },
              [&]() -> SmallVector<Value> { return {b.number(-1)}; })[0];
          Value isMine = b.compare(Predicate::eq, id, expert);
          Value mine = b.makeHere<NVVM::VoteSyncOp>(__FILE__, __LINE__, b.i32,
                                                    b.number(-1), isMine,
                                                    NVVM::VoteSyncKind::ballot);
          Value earlier = b.make<LLVM::CtPopOp>(b.i32, b.bitAnd(mine, below));
          if (body)
            body(pair, isMine, b.add(before[0], earlier));
          Value count = b.make<LLVM::CtPopOp>(b.i32, mine);
          return {b.add(before[0], count)};
        })[0];
  }

private:
  /// Where the pair of this place stands in ids: (token, choice), choice last.
  Value pairAt(Value place) {
    if (kernel.order == Order::TokenMajor)
      return place;
    Value one = b.number(1);
    Value divisor = b.maximum(tokens, one);
    Value choice = b.make<arith::DivUIOp>(place, divisor);
    Value token = b.make<arith::RemUIOp>(place, divisor);
    return b.add(b.mul(token, kernel.choices), choice);
  }

  WarpKernel &warp;
  KernelBuilder &b;
  const AssignKernel &kernel;
  Value ids, tokens;
};
} // namespace

LLVM::LLVMFuncOp moe::buildCountKernel(gpu::GPUModuleOp module,
                                       const AssignKernel &kernel) {
  WarpKernel warp(module, kernel.name, 2, 2);
  KernelBuilder &b = warp.b;
  // The order does not matter here.
  AssignKernel inOrder = kernel;
  inOrder.order = Order::TokenMajor;
  PairScan scan(warp, inOrder, b.argument(0), b.argument(2));
  warp.forEach(b.number(kernel.experts), [&](Value expert) {
    Value count = b.minimum(scan.run(expert, nullptr), b.argument(3));
    b.when(b.compare(Predicate::eq, warp.lane, 0), [&] {
      b.store(count, b.at(b.argument(1), b.mul(b.widen(expert), 4)));
    });
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildAssignKernel(gpu::GPUModuleOp module,
                                        const AssignKernel &kernel) {
  WarpKernel warp(module, kernel.name, 3, 2);
  KernelBuilder &b = warp.b;
  Value sizes = b.argument(1), slots = b.argument(2), tokens = b.argument(3),
        capacity = b.argument(4);
  PairScan scan(warp, kernel, b.argument(0), tokens);
  auto store = [&](Value slot, Value pair) {
    b.store(slot, b.at(slots, b.mul(b.widen(pair), 4)));
  };
  // One warp more than experts: it writes the slots of unused choices.
  warp.forEach(b.number(kernel.experts + 1), [&](Value expert) {
    Value isLast = b.compare(Predicate::eq, expert, kernel.experts);
    b.choose(
        isLast, {},
        [&]() -> SmallVector<Value> {
          Value pairs = b.mul(tokens, kernel.choices);
          Value rounds = b.ceilDiv(pairs, 32);
          b.loop(rounds, {},
                 [&](Value round, ValueRange) -> SmallVector<Value> {
                   Value pair = b.add(b.mul(round, 32), warp.lane);
                   b.when(b.compare(Predicate::slt, pair, pairs), [&] {
                     Value id = b.load(
                         b.at(b.argument(0), b.mul(b.widen(pair), 4)), b.i32);
                     // Unsigned: negative ids are large.
                     b.when(b.compare(Predicate::uge, id, kernel.experts),
                            [&] { store(b.number(-1), pair); });
                   });
                   return {};
                 });
          return {};
        },
        [&]() -> SmallVector<Value> {
          // The expert's first row.
          Value first = b.mul(expert, capacity);
          if (!kernel.padded)
            first = b.loop(
                expert, b.number(0),
                [&](Value other, ValueRange sum) -> SmallVector<Value> {
                  return {b.add(
                      sum[0],
                      b.load(b.at(sizes, b.mul(b.widen(other), 4)), b.i32))};
                })[0];
          scan.run(expert, [&](Value pair, Value isMine, Value place) {
            b.when(isMine, [&] {
              Value kept = b.compare(Predicate::slt, place, capacity);
              store(b.select(kept, b.add(first, place), b.number(-1)), pair);
            });
          });
          return {};
        });
  });
  return warp.finish();
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

namespace {
/// Rows of features, as pieces of 16 bytes or, where rows are no multiple of
/// that, of one element.
class Pieces {
public:
  Pieces(KernelBuilder &b, const MovementKernel &kernel)
      : b(b), element(kernel.element), features(kernel.features),
        bytes(kernel.element.getIntOrFloatBitWidth() / 8) {
    width = features * bytes % 16 == 0 ? 16 / bytes : 1;
  }

  /// body(column) for this lane's pieces.
  void forEach(Value lane, function_ref<void(Value)> body) {
    int64_t pieces = features / width;
    b.loop(b.number(llvm::divideCeil(pieces, 32)), {},
           [&](Value round, ValueRange) -> SmallVector<Value> {
             Value piece = b.add(b.mul(round, 32), lane);
             Value column = b.mul(piece, width);
             if (pieces % 32 == 0)
               body(column);
             else
               b.when(b.compare(Predicate::slt, piece, pieces),
                      [&] { body(column); });
             return {};
           });
  }

  Value place(Value base, Value row, Value column) {
    Value index = b.add(b.mul(b.widen(row), features), b.widen(column));
    return b.at(base, b.mul(index, bytes));
  }

  /// The elements of a piece as f32.
  SmallVector<Value> load(Value place) {
    if (width == 1)
      return {wide(b.load(place, element))};
    SmallVector<Value> values;
    Value words = b.load(place, VectorType::get({4}, b.i32));
    for (int64_t i = 0; i < 4; ++i) {
      Value word = b.make<LLVM::ExtractElementOp>(words, b.number(i));
      if (bytes == 4) {
        values.push_back(b.make<arith::BitcastOp>(b.f32, word));
        continue;
      }
      for (int64_t half = 0; half < 2; ++half) {
        Value bits = half ? b.shiftRight(word, 16) : word;
        bits = b.make<arith::TruncIOp>(b.i16, bits);
        values.push_back(wide(b.make<arith::BitcastOp>(element, bits)));
      }
    }
    return values;
  }

  void store(ArrayRef<Value> values, Value place) {
    if (width == 1)
      return b.store(narrow(values[0]), place);
    Value words = b.make<LLVM::PoisonOp>(VectorType::get({4}, b.i32));
    for (int64_t i = 0; i < 4; ++i) {
      Value word;
      if (bytes == 4) {
        word = b.make<arith::BitcastOp>(b.i32, values[i]);
      } else {
        Value high =
            b.make<arith::ShLIOp>(bits(values[2 * i + 1]), b.number(16));
        word = b.bitOr(bits(values[2 * i]), high);
      }
      words = b.make<LLVM::InsertElementOp>(words, word, b.number(i));
    }
    b.store(words, place);
  }

  int64_t getWidth() const { return width; }

private:
  Value wide(Value value) {
    return element.isF32() ? value
                           : b.make<arith::ExtFOp>(b.f32, value).getResult();
  }
  Value narrow(Value value) {
    return element.isF32()
               ? value
               : b.make<arith::TruncFOp>(element, value).getResult();
  }
  Value bits(Value value) {
    Value half = b.make<arith::BitcastOp>(b.i16, narrow(value));
    return b.make<arith::ExtUIOp>(b.i32, half);
  }

  KernelBuilder &b;
  Type element;
  int64_t features, bytes, width;
};

/// The slots and weights of a token.
class Choices {
public:
  Choices(KernelBuilder &b, const MovementKernel &kernel, Value slots,
          Value weights, Value bound, Value token)
      : b(b), slots(slots), weights(weights), bound(bound),
        first(b.mul(b.widen(token), kernel.choices)) {}

  Value slot(int64_t j) {
    return b.load(b.at(slots, b.mul(b.add(first, j), 4)), b.i32);
  }
  /// False for -1, and for anything that is not a row.
  Value isRow(Value slot) { return b.compare(Predicate::ult, slot, bound); }
  Value weight(int64_t j) {
    return b.load(b.at(weights, b.mul(b.add(first, j), 4)), b.f32);
  }

private:
  KernelBuilder &b;
  Value slots, weights, bound, first;
};
} // namespace

LLVM::LLVMFuncOp moe::buildDispatchKernel(gpu::GPUModuleOp module,
                                          const MovementKernel &kernel) {
  int64_t pointers = kernel.weights ? 4 : 3;
  WarpKernel warp(module, kernel.name, pointers, 2);
  KernelBuilder &b = warp.b;
  Pieces pieces(b, kernel);
  Value rows = b.argument(pointers - 1), bound = b.argument(pointers + 1);
  warp.forEach(b.argument(pointers), [&](Value token) {
    Choices choices(b, kernel, b.argument(1), b.argument(2), bound, token);
    pieces.forEach(warp.lane, [&](Value column) {
      SmallVector<Value> values =
          pieces.load(pieces.place(b.argument(0), token, column));
      for (int64_t j = 0; j < kernel.choices; ++j) {
        Value slot = choices.slot(j);
        b.when(choices.isRow(slot), [&] {
          SmallVector<Value> weighted(values);
          if (kernel.weights) {
            Value weight = choices.weight(j);
            for (Value &value : weighted)
              value = b.make<arith::MulFOp>(weight, value);
          }
          pieces.store(weighted, pieces.place(rows, slot, column));
        });
      }
    });
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildCombineKernel(gpu::GPUModuleOp module,
                                         const MovementKernel &kernel) {
  int64_t pointers = kernel.weights ? 4 : 3;
  WarpKernel warp(module, kernel.name, pointers, 2);
  KernelBuilder &b = warp.b;
  Pieces pieces(b, kernel);
  Value y = b.argument(pointers - 1), bound = b.argument(pointers + 1);
  warp.forEach(b.argument(pointers), [&](Value token) {
    Choices choices(b, kernel, b.argument(1), b.argument(2), bound, token);
    pieces.forEach(warp.lane, [&](Value column) {
      SmallVector<Value> sums(pieces.getWidth(), b.zero(b.f32));
      SmallVector<Type> types(sums.size(), b.f32);
      for (int64_t j = 0; j < kernel.choices; ++j) {
        Value slot = choices.slot(j);
        sums = b.choose(
            choices.isRow(slot), types,
            [&]() -> SmallVector<Value> {
              Value weight;
              if (kernel.weights)
                weight = choices.weight(j);
              SmallVector<Value> values =
                  pieces.load(pieces.place(b.argument(0), slot, column));
              for (auto [value, sum] : llvm::zip(values, sums))
                value =
                    weight ? b.make<math::FmaOp>(weight, value, sum).getResult()
                           : b.make<arith::AddFOp>(sum, value).getResult();
              return values;
            },
            [&]() -> SmallVector<Value> { return sums; });
      }
      pieces.store(sums, pieces.place(y, token, column));
    });
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildClearKernel(gpu::GPUModuleOp module,
                                       StringRef name) {
  WarpKernel warp(module, name, 1, 1);
  KernelBuilder &b = warp.b;
  warp.forEachOfThread(b.argument(1), [&](Value row) {
    b.store(b.number(-1), b.at(b.argument(0), b.mul(b.widen(row), 4)));
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildSourcesKernel(gpu::GPUModuleOp module,
                                         StringRef name) {
  WarpKernel warp(module, name, 2, 3);
  KernelBuilder &b = warp.b;
  warp.forEachOfThread(b.argument(2), [&](Value pair) {
    Value slot = b.load(b.at(b.argument(0), b.mul(b.widen(pair), 4)), b.i32);
    b.when(b.compare(Predicate::ult, slot, b.argument(3)), [&] {
      Value token = b.make<arith::DivUIOp>(pair, b.argument(4));
      b.store(token, b.at(b.argument(1), b.mul(b.widen(slot), 4)));
    });
  });
  return warp.finish();
}
