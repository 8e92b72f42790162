// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Numerics.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace moira::reference {

const char *nameOf(DType type) {
  switch (type) {
  case DType::F32:
    return "f32";
  case DType::F64:
    return "f64";
  case DType::BF16:
    return "bf16";
  case DType::F16:
    return "f16";
  }
  return "";
}

/// Rounds to `digits` significant bits, fewer below 2^minExponent. The quantum
/// is a power of two, so both the division and the product are exact.
static double roundBits(double value, int digits, int minExponent,
                        double largest) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent = std::max(std::ilogb(value), minExponent);
  double quantum = std::ldexp(1.0, exponent - (digits - 1));
  double rounded = std::nearbyint(value / quantum) * quantum;
  if (std::fabs(rounded) > largest)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

double roundTo(DType type, double value) {
  switch (type) {
  case DType::F32:
    return static_cast<float>(value);
  case DType::F64:
    return value;
  case DType::BF16:
    return roundBits(value, 8, -126, 0x1.FEp127);
  case DType::F16:
    return roundBits(value, 11, -14, 65504);
  }
  return value;
}

/// 2^e, built from its bits as generated code does; e in [-126, 127].
static float powerOfTwo(int32_t e) {
  uint32_t bits = static_cast<uint32_t>(e + 127) << 23;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

float exp32(float x) {
  if (std::isnan(x))
    return x;
  if (x > 0x1.62e43p6f)
    return std::numeric_limits<float>::infinity();
  if (x < -104.0f)
    return 0.0f;
  float n = std::nearbyint(x * 0x1.715476p0f);
  float r = std::fma(n, -0x1.62e400p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a2352p-10f;
  for (float c : {0x1.123a6cp-7f, 0x1.5558f4p-5f, 0x1.555490p-3f,
                  0x1.fffffcp-2f, 1.0f, 1.0f})
    p = std::fma(p, r, c);
  int32_t i = static_cast<int32_t>(n);
  // Two factors keep both powers normal; only the last product can round.
  int32_t h = i >> 1;
  return p * powerOfTwo(h) * powerOfTwo(i - h);
}

float expOf(float x) { return exp32(x); }
double expOf(double x) { return std::exp(x); }

float sigmoid(float x) { return 1.0f / (1.0f + exp32(-x)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <typename Real> static Real sqrtSoftplusImpl(Real x) {
  Real tail = std::log1p(expOf(-std::fabs(x)));
  return std::sqrt(std::max(x, Real(0)) + tail);
}
float sqrtSoftplus(float x) { return sqrtSoftplusImpl(x); }
double sqrtSoftplus(double x) { return sqrtSoftplusImpl(x); }

template <typename Real> static Real sanitizeImpl(Real x) {
  using Limits = std::numeric_limits<Real>;
  if (std::isnan(x))
    return -Limits::infinity();
  return std::min(x, Limits::max());
}
float sanitize(float x) { return sanitizeImpl(x); }
double sanitize(double x) { return sanitizeImpl(x); }

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c,
                               std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t left = uint64_t(0xD2511F53) * c[0];
    uint64_t right = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(right >> 32) ^ c[1] ^ key[0], uint32_t(right),
         uint32_t(left >> 32) ^ c[3] ^ key[1], uint32_t(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

std::array<uint32_t, 4> draw(const DrawKey &key, uint64_t token,
                             uint32_t column) {
  return philox({uint32_t(token), uint32_t(token >> 32), column, key.step},
                {uint32_t(key.seed),
                 uint32_t(key.seed >> 32) ^ (key.layer * 0x9E3779B9u)});
}

double uniformOf(uint32_t word) { return ((word >> 9) + 0.5) * 0x1p-23; }

double normalOf(const std::array<uint32_t, 4> &words) {
  const double twoPi = 6.283185307179586476925286766559;
  return std::sqrt(-2.0 * std::log(uniformOf(words[0]))) *
         std::cos(twoPi * uniformOf(words[1]));
}

} // namespace moira::reference
