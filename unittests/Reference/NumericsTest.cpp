// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace moira::reference;

static const float inf = std::numeric_limits<float>::infinity();
static const float nan32 = std::numeric_limits<float>::quiet_NaN();

/// Distance from the true exponential in units of the last place of f32.
static double ulpError(float x) {
  double truth = std::exp(double(x));
  int exponent = std::max(std::ilogb(truth), -126);
  return std::fabs(exp32(x) - truth) / std::ldexp(1.0, exponent - 23);
}

TEST(Exp32, StaysBelowOneUlp) {
  double worst = 0;
  // All of the range in steps that do not divide ln 2, denormal results too.
  for (double x = -103.9; x <= 88.7; x += 0x1p-14)
    worst = std::max(worst, ulpError(x));
  for (double x = -0x1p-10; x <= 0x1p-10; x += 0x1p-32)
    worst = std::max(worst, ulpError(x));
  EXPECT_LT(worst, 1.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Exp32, Edges) {
  EXPECT_EQ(exp32(0.0f), 1.0f);
  EXPECT_EQ(exp32(-0.0f), 1.0f);
  EXPECT_EQ(exp32(inf), inf);
  EXPECT_EQ(exp32(-inf), 0.0f);
  EXPECT_TRUE(std::isnan(exp32(nan32)));
  EXPECT_EQ(exp32(-104.1f), 0.0f);
  EXPECT_EQ(exp32(0x1.62e432p6f), inf);
  EXPECT_LT(exp32(0x1.62e42ep6f), inf);
  EXPECT_GT(exp32(-103.9f), 0.0f);
  EXPECT_EQ(exp32(-std::numeric_limits<float>::max()), 0.0f);
  EXPECT_EQ(exp32(std::numeric_limits<float>::denorm_min()), 1.0f);
}

TEST(Exp32, IsMonotoneWhereSoftmaxUsesIt) {
  float last = 0;
  for (float x = -20; x <= 0; x += 0x1p-12f) {
    EXPECT_LE(last, exp32(x)) << x;
    last = exp32(x);
  }
}

TEST(Sigmoid, Values) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(-inf), 0.0f);
  EXPECT_EQ(sigmoid(inf), 1.0f);
  EXPECT_NEAR(sigmoid(2.0f), 0.8807970780, 1e-7);
  EXPECT_NEAR(sigmoid(-1.0) * -1, -0.2689414214, 1e-10);
}

TEST(SqrtSoftplus, Values) {
  EXPECT_NEAR(sqrtSoftplus(0.0f), std::sqrt(std::log(2.0)), 1e-7);
  EXPECT_NEAR(sqrtSoftplus(1.0), std::sqrt(std::log1p(std::exp(1.0))), 1e-15);
  EXPECT_EQ(sqrtSoftplus(-inf), 0.0f);
  // exp(100) would overflow f32; softplus(100) is 100.
  EXPECT_EQ(sqrtSoftplus(100.0f), 10.0f);
}

TEST(Sanitize, Values) {
  EXPECT_EQ(sanitize(nan32), -inf);
  EXPECT_EQ(sanitize(inf), std::numeric_limits<float>::max());
  EXPECT_EQ(sanitize(-inf), -inf);
  EXPECT_EQ(sanitize(1.5f), 1.5f);
  EXPECT_EQ(sanitize(double(inf)), std::numeric_limits<double>::max());
}

TEST(RoundTo, BF16) {
  auto bf16 = [](double value) { return roundTo(DType::BF16, value); };
  EXPECT_EQ(bf16(1), 1);
  EXPECT_EQ(bf16(1 + 0x1p-8), 1); // half way, to even
  EXPECT_EQ(bf16(1 + 0x3p-8), 1 + 0x1p-6);
  EXPECT_EQ(bf16(1 + 0x1p-8 + 0x1p-20), 1 + 0x1p-7);
  EXPECT_EQ(bf16(1.0009765625), 1); // the near tie of a bf16 router
  EXPECT_EQ(bf16(-0x1p-133), -0x1p-133);
  EXPECT_EQ(bf16(0x1p-134), 0);
  EXPECT_EQ(bf16(0x1.FEp127), 0x1.FEp127);
  EXPECT_EQ(bf16(0x1.FFp127), inf);
  EXPECT_TRUE(std::isnan(bf16(nan32)));
}

TEST(RoundTo, F16AndWider) {
  EXPECT_EQ(roundTo(DType::F16, 65519), 65504);
  EXPECT_EQ(roundTo(DType::F16, 65520), inf);
  EXPECT_EQ(roundTo(DType::F16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(roundTo(DType::F16, 0x1p-25), 0);
  EXPECT_EQ(roundTo(DType::F16, 2049), 2048);
  EXPECT_EQ(roundTo(DType::F16, 2051), 2052);
  EXPECT_EQ(roundTo(DType::F32, 1 + 0x1p-40), 1);
  EXPECT_EQ(roundTo(DType::F64, 1 + 0x1p-40), 1 + 0x1p-40);
}

/// The published known answers of philox4x32-10.
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsDependOnEveryPartOfTheKey) {
  DrawKey key{(uint64_t(5) << 32) | 7, 2, 3};
  std::array<uint32_t, 4> base = draw(key, (uint64_t(1) << 32) | 9, 4);
  EXPECT_EQ(base, philox({9, 1, 4, 3}, {7, 5 ^ (2 * 0x9E3779B9u)}));
  EXPECT_NE(base, draw({key.seed + 1, 2, 3}, (uint64_t(1) << 32) | 9, 4));
  EXPECT_NE(base, draw({key.seed, 1, 3}, (uint64_t(1) << 32) | 9, 4));
  EXPECT_NE(base, draw({key.seed, 2, 4}, (uint64_t(1) << 32) | 9, 4));
  EXPECT_NE(base, draw(key, 9, 4));
  EXPECT_NE(base, draw(key, (uint64_t(1) << 32) | 9, 5));
}

TEST(Philox, UniformIsOpen) {
  EXPECT_EQ(uniformOf(0), 0x1p-24);
  EXPECT_EQ(uniformOf(~0u), 1 - 0x1p-24);
  EXPECT_EQ(uniformOf(1u << 31), 0.5 + 0x1p-24);
  // Rounding to f32 keeps it open.
  EXPECT_LT(static_cast<float>(uniformOf(~0u)), 1.0f);
}

TEST(Philox, NormalHasItsMoments) {
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    double z = normalOf(draw({1, 0, 0}, i, 0));
    sum += z / n;
    squares += z * z / n;
  }
  EXPECT_NEAR(sum, 0, 0.02);
  EXPECT_NEAR(squares, 1, 0.02);
  // The smallest uniform gives the largest, still finite, number.
  EXPECT_NEAR(normalOf({0, 0, 0, 0}), std::sqrt(48 * std::log(2.0)), 1e-6);
}
