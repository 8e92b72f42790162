// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Rows on their way, one warp per token, 16 bytes per lane.

#include "WarpKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

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
