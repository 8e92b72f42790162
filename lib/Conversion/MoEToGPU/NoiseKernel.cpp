// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// moe.noise: Philox4x32 keyed as docs/routing.md has it, a warp per token. The
// logarithm and the cosine of a normal number are computed here in f64, since
// a GPU has no library; the rounding to f32 hides their last bits.

#include "WarpKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
class NoiseBuilder {
public:
  NoiseBuilder(gpu::GPUModuleOp module, const NoiseKernel &kernel)
      : kernel(kernel),
        warp(module, kernel.name, parameters(module.getContext())), b(warp.b),
        f64(b.builder.getF64Type()) {}
  LLVM::LLVMFuncOp build();

private:
  static SmallVector<Type> parameters(MLIRContext *context) {
    SmallVector<Type> types = WarpKernel::parameters(context, 1, 1);
    types.append(3, IntegerType::get(context, 64));
    return types;
  }
  Value low(Value wide) { return b.make<arith::TruncIOp>(b.i32, wide); }
  Value high(Value wide) { return low(b.shiftRight(wide, 32)); }
  SmallVector<Value> philox(ArrayRef<Value> counter, ArrayRef<Value> key);

  // f64.
  Value real(double value) {
    return b.make<arith::ConstantOp>(b.builder.getF64FloatAttr(value));
  }
  Value fma(Value x, Value y, Value z) { return b.make<math::FmaOp>(x, y, z); }
  Value mul(Value x, Value y) { return b.make<arith::MulFOp>(x, y); }
  /// Evaluates by Horner, the highest coefficient first.
  Value polynomial(Value x, ArrayRef<double> coefficients);
  /// The 24-bit odd number u * 2^24, and u.
  Value oddOf(Value word);
  Value uniformOf(Value odd);
  Value log(Value x);
  Value cosine(Value odd);

  const NoiseKernel &kernel;
  WarpKernel warp;
  KernelBuilder &b;
  Type f64;
};
} // namespace

/// Ten rounds of Philox4x32 (Salmon et al., SC11).
SmallVector<Value> NoiseBuilder::philox(ArrayRef<Value> counter,
                                        ArrayRef<Value> key) {
  auto constant = [&](uint32_t value) { return b.number(int32_t(value)); };
  auto product = [&](uint32_t factor, Value value) {
    return b.make<arith::MulUIExtendedOp>(constant(factor), value);
  };
  SmallVector<Value> c(counter), k(key);
  for (int round = 0; round < 10; ++round) {
    auto left = product(0xD2511F53, c[0]), right = product(0xCD9E8D57, c[2]);
    c = {b.bitXor(b.bitXor(right.getHigh(), c[1]), k[0]), right.getLow(),
         b.bitXor(b.bitXor(left.getHigh(), c[3]), k[1]), left.getLow()};
    k = {b.add(k[0], constant(0x9E3779B9)), b.add(k[1], constant(0xBB67AE85))};
  }
  return c;
}

Value NoiseBuilder::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = real(coefficients.front());
  for (double coefficient : coefficients.drop_front())
    sum = fma(sum, x, real(coefficient));
  return sum;
}

Value NoiseBuilder::oddOf(Value word) {
  Value twice = b.make<arith::ShLIOp>(b.shiftRight(word, 9), b.number(1));
  return b.bitOr(twice, b.number(1));
}

Value NoiseBuilder::uniformOf(Value odd) {
  return mul(b.make<arith::UIToFPOp>(f64, odd), real(0x1p-24));
}

/// Of a normal number: x = m 2^e with m in [sqrt(1/2), sqrt(2)), and
/// log m = 2 atanh s, s = (m - 1) / (m + 1), a series in s^2 < 0.03.
Value NoiseBuilder::log(Value x) {
  constexpr int64_t sqrtHalf = 0x3FE6A09E667F3BCD;
  Value bits = b.make<arith::BitcastOp>(b.i64, x);
  Value e = b.make<arith::ShRSIOp>(b.sub(bits, b.wideNumber(sqrtHalf)),
                                   b.wideNumber(52));
  Value scale = b.make<arith::ShLIOp>(e, b.wideNumber(52));
  Value m = b.make<arith::BitcastOp>(f64, b.sub(bits, scale));
  Value f = b.make<arith::SubFOp>(m, real(1));
  Value s = b.make<arith::DivFOp>(f, b.make<arith::AddFOp>(f, real(2)));
  Value z = mul(s, s), twice = b.make<arith::AddFOp>(s, s);
  Value p =
      polynomial(z, {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                     1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3});
  // ln 2 in two parts: e times the first is exact.
  Value n = b.make<arith::SIToFPOp>(f64, e);
  Value tail = fma(mul(twice, z), p, mul(n, real(0x1.EF35793C7673p-45)));
  return fma(n, real(0x1.62E42FEFA38p-1), b.make<arith::AddFOp>(twice, tail));
}

/// cos(2 pi u) of the odd number u * 2^24.
Value NoiseBuilder::cosine(Value odd) {
  Value angle = mul(real(6.283185307179586476925286766559), uniformOf(odd));
  // The nearest quarter, exactly; pi / 2 in two parts.
  Value quarter = b.shiftRight(b.add(odd, 1 << 21), 22);
  Value n = b.make<arith::NegFOp>(b.make<arith::UIToFPOp>(f64, quarter));
  Value x = fma(n, real(0x1.921FB54442D18p0), angle);
  x = fma(n, real(0x1.1A62633145C07p-54), x);
  Value z = mul(x, x);
  SmallVector<double> cosines{1}, sines{1};
  for (int i = 1; i <= 8; ++i) {
    cosines.push_back(-cosines.back() / ((2 * i - 1) * (2 * i)));
    sines.push_back(-sines.back() / ((2 * i) * (2 * i + 1)));
  }
  std::reverse(cosines.begin(), cosines.end());
  std::reverse(sines.begin(), sines.end());
  // 1 and x are added last: they are most of the result.
  ArrayRef<double> cosTail(cosines), sinTail(sines);
  Value cos = fma(z, polynomial(z, cosTail.drop_back()), real(1));
  Value sin = fma(mul(z, x), polynomial(z, sinTail.drop_back()), x);
  // cos(x + q pi / 2): cos, -sin, -cos, sin.
  Value isOdd = b.compare(Predicate::ne, b.bitAnd(quarter, b.number(1)), 0);
  Value result = b.select(isOdd, sin, cos);
  Value half = b.bitAnd(b.add(quarter, 1), b.number(2));
  Value isNegative = b.compare(Predicate::ne, half, 0);
  return b.select(isNegative, b.make<arith::NegFOp>(result), result);
}

LLVM::LLVMFuncOp NoiseBuilder::build() {
  Value out = b.argument(0), seed = b.argument(2), step = b.argument(3);
  Value layer = b.number(int32_t(uint32_t(kernel.layer) * 0x9E3779B9u));
  Value key[] = {low(seed), b.bitXor(high(seed), layer)};
  warp.forEach(b.argument(1), [&](Value row) {
    Value token = b.add(b.argument(4), b.widen(row));
    Value rounds = b.number(llvm::divideCeil(kernel.columns, 32));
    b.loop(rounds, {}, [&](Value round, ValueRange) -> SmallVector<Value> {
      Value column = b.add(b.mul(round, 32), warp.lane);
      b.when(b.compare(Predicate::slt, column, kernel.columns), [&] {
        Value counter[] = {low(token), high(token), column, low(step)};
        SmallVector<Value> words = philox(counter, key);
        Value number = uniformOf(oddOf(words[0]));
        if (kernel.distribution == Distribution::Normal) {
          // Box-Muller.
          Value radius = b.make<math::SqrtOp>(mul(real(-2), log(number)));
          number = mul(radius, cosine(oddOf(words[1])));
        }
        Value index =
            b.add(b.mul(b.widen(row), kernel.columns), b.widen(column));
        b.store(b.make<arith::TruncFOp>(b.f32, number),
                b.at(out, b.mul(index, 4)));
      });
      return {};
    });
  });
  return warp.finish();
}

LLVM::LLVMFuncOp moe::buildNoiseKernel(gpu::GPUModuleOp module,
                                       const NoiseKernel &kernel) {
  return NoiseBuilder(module, kernel).build();
}
