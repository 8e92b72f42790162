// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Convert.h"

#include <cmath>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

template <typename To, typename From> static To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

float runtime::fromBfloat(uint16_t bits) {
  return bitCast<float>(uint32_t(bits) << 16);
}

float runtime::fromHalf(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) // zero or denormal: mantissa * 2^-24 is exact
    return bitCast<float>(sign | bitCast<uint32_t>(float(mantissa) * 0x1p-24f));
  uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return bitCast<float>(sign | wide << 23 | mantissa << 13);
}

/// Rounds to float towards the odd neighbour: a second rounding to at least
/// two bits less is then right.
static float toFloatOdd(double value) {
  float near = static_cast<float>(value);
  if (double(near) == value || std::isnan(value))
    return near;
  uint32_t bits = bitCast<uint32_t>(near);
  if (std::fabs(double(near)) > std::fabs(value))
    --bits; // truncated; infinity becomes the largest float
  return bitCast<float>(bits | 1);
}

uint16_t runtime::toBfloat(double value) {
  uint32_t bits = bitCast<uint32_t>(toFloatOdd(value));
  if (std::isnan(value))
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t runtime::toHalf(double value) {
  uint32_t bits = bitCast<uint32_t>(toFloatOdd(value));
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00;
  if (magnitude >= 0x47800000) // 2^16 and more
    return sign | 0x7c00;
  uint32_t shift = 13;
  uint32_t mantissa = magnitude - (uint32_t(127 - 15) << 23);
  if (magnitude < 0x38800000) { // below 2^-14: denormal
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) // below 2^-25, half of the smallest
      return sign;
    shift = 126 - exponent;
    mantissa = (magnitude & 0x7fffff) | 0x800000;
  }
  uint32_t half = mantissa >> shift;
  uint32_t rest = mantissa & ((1u << shift) - 1);
  uint32_t middle = 1u << (shift - 1);
  if (rest > middle || (rest == middle && (half & 1)))
    ++half; // a carry into the exponent is what rounding means
  return static_cast<uint16_t>(sign | half);
}

bool runtime::isConvertible(DataType from, DataType to) {
  return from == to || (isFloat(from) && isFloat(to));
}

namespace {
/// How a type lies in memory, and how it turns into double and back.
template <DataType> struct Format;

template <> struct Format<DataType::F32> {
  using Bits = float;
  static double load(float bits) { return bits; }
  static float store(double value) { return static_cast<float>(value); }
};
template <> struct Format<DataType::F64> {
  using Bits = double;
  static double load(double bits) { return bits; }
  static double store(double value) { return value; }
};
template <> struct Format<DataType::F16> {
  using Bits = uint16_t;
  static double load(uint16_t bits) { return fromHalf(bits); }
  static uint16_t store(double value) { return toHalf(value); }
};
template <> struct Format<DataType::BF16> {
  using Bits = uint16_t;
  static double load(uint16_t bits) { return fromBfloat(bits); }
  static uint16_t store(double value) { return toBfloat(value); }
};
} // namespace

template <DataType from, DataType to>
static void convertAll(const char *source, char *target, int64_t count) {
  using Source = typename Format<from>::Bits;
  using Target = typename Format<to>::Bits;
  for (int64_t i = 0; i < count; ++i) {
    Source in;
    std::memcpy(&in, source + i * int64_t(sizeof(Source)), sizeof(Source));
    Target out = Format<to>::store(Format<from>::load(in));
    std::memcpy(target + i * int64_t(sizeof(Target)), &out, sizeof(Target));
  }
}

template <DataType from>
static void convertFrom(const char *source, DataType to, char *target,
                        int64_t count) {
  switch (to) {
  case DataType::F32:
    return convertAll<from, DataType::F32>(source, target, count);
  case DataType::F64:
    return convertAll<from, DataType::F64>(source, target, count);
  case DataType::F16:
    return convertAll<from, DataType::F16>(source, target, count);
  case DataType::BF16:
    return convertAll<from, DataType::BF16>(source, target, count);
  default:
    return;
  }
}

void runtime::convert(DataType from, const void *source, DataType to,
                      void *target, int64_t count) {
  auto *in = static_cast<const char *>(source);
  auto *out = static_cast<char *>(target);
  if (from == to) {
    if (count)
      std::memcpy(out, in, count * byteSize(from));
    return;
  }
  switch (from) {
  case DataType::F32:
    return convertFrom<DataType::F32>(in, to, out, count);
  case DataType::F64:
    return convertFrom<DataType::F64>(in, to, out, count);
  case DataType::F16:
    return convertFrom<DataType::F16>(in, to, out, count);
  case DataType::BF16:
    return convertFrom<DataType::BF16>(in, to, out, count);
  default:
    return;
  }
}
