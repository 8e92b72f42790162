// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Types, conversions, random numbers, memory figures, status.

#include "Runtime/TestProgram.h"
#include "base/Convert.h"
#include "base/Hash.h"
#include "base/Log.h"
#include "base/Memory.h"
#include "base/Pool.h"
#include "base/Random.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Status, types
//===----------------------------------------------------------------------===//

TEST(Status, NamesCodes) {
  EXPECT_STREQ(statusName(MOIRA_OK), "OK");
  EXPECT_STREQ(statusName(MOIRA_FAILED), "FAILED");
  EXPECT_STREQ(statusName(99), "UNKNOWN");
  EXPECT_STREQ(statusName(-1), "UNKNOWN");
}

TEST(Status, TakesContext) {
  EXPECT_OK(Status().within("nowhere"));
  EXPECT_ERROR(Status(MOIRA_FAILED, "reason").within("place"), MOIRA_FAILED,
               "place: reason");
}

TEST(Types, NamesComeBack) {
  for (int32_t i = MOIRA_F32; i <= MOIRA_I64; ++i) {
    auto dtype = static_cast<DataType>(i);
    EXPECT_EQ(parseDataType(name(dtype)), dtype);
    EXPECT_GT(byteSize(dtype), 0);
  }
  EXPECT_EQ(parseDataType("f8"), std::nullopt);
  EXPECT_EQ(parseDataType(""), std::nullopt);
  EXPECT_EQ(toString(DataType::BF16, {-1, 2048}), "bf16[?, 2048]");
  EXPECT_EQ(toString(DataType::I1, {}), "i1[]");
}

TEST(Types, SizesAreCheckedForOverflow) {
  EXPECT_EQ(compactBytes(DataType::BF16, {3, 5}), 30);
  EXPECT_EQ(compactBytes(DataType::F64, {}), 8);
  EXPECT_EQ(compactBytes(DataType::F32, {7, 0, 3}), 0);
  EXPECT_EQ(compactBytes(DataType::F32, {-1}), std::nullopt);
  EXPECT_EQ(compactBytes(DataType::F32, {INT64_MAX}), std::nullopt);
  EXPECT_EQ(compactBytes(DataType::I8, {int64_t(1) << 32, int64_t(1) << 31}),
            std::nullopt);
  EXPECT_EQ(compactBytes(DataType::I8, {INT64_MAX, 2, 0}), std::nullopt);
}

//===----------------------------------------------------------------------===//
// Conversion
//===----------------------------------------------------------------------===//

TEST(Convert, HalfMatchesTheCompilerForEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    _Float16 half;
    auto narrow = static_cast<uint16_t>(bits);
    std::memcpy(&half, &narrow, 2);
    float wide = fromHalf(narrow);
    if (std::isnan(wide)) {
      EXPECT_NE(float(half), float(half));
      EXPECT_TRUE(std::isnan(fromHalf(toHalf(wide))));
      continue;
    }
    ASSERT_EQ(wide, float(half)) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0);
    ASSERT_EQ(toHalf(wide), narrow);
  }
}

TEST(Convert, BfloatComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float wide = fromBfloat(static_cast<uint16_t>(bits));
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(fromBfloat(toBfloat(wide))));
    else
      ASSERT_EQ(toBfloat(wide), bits);
  }
}

TEST(Convert, RoundsHalfLikeTheCompiler) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    // Exponents around what half can hold.
    double value =
        std::ldexp(double(random() >> 11) * 0x1p-53, int(random() % 48) - 30) *
        (random() & 1 ? 1 : -1);
    auto half = static_cast<_Float16>(value);
    uint16_t bits;
    std::memcpy(&bits, &half, 2);
    ASSERT_EQ(toHalf(value), bits) << value;
  }
}

TEST(Convert, RoundsOnceAndToEven) {
  // 1 + 2^-8 lies between two bfloats; a little more must go up, although it
  // is that very tie once rounded to float.
  EXPECT_EQ(toBfloat(1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(toBfloat(1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(toBfloat(1 + 3 * 0x1p-8), 0x3f82);
  EXPECT_EQ(toBfloat(1 + 3 * 0x1p-8 - 0x1p-40), 0x3f81);
  EXPECT_EQ(toHalf(1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(toHalf(1 + 0x1p-11 + 0x1p-40), 0x3c01);
}

TEST(Convert, KeepsTheEndsOfTheRange) {
  double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(toHalf(infinity), 0x7c00);
  EXPECT_EQ(toHalf(-infinity), 0xfc00);
  EXPECT_EQ(toHalf(65504), 0x7bff);
  EXPECT_EQ(toHalf(65519.99), 0x7bff);
  EXPECT_EQ(toHalf(65520), 0x7c00);
  EXPECT_EQ(toHalf(1e300), 0x7c00);
  EXPECT_EQ(toHalf(0x1p-25), 0);
  EXPECT_EQ(toHalf(0x1.0000001p-25), 1);
  EXPECT_EQ(toHalf(1e-300), 0);
  EXPECT_EQ(toHalf(-0.0), 0x8000);
  EXPECT_EQ(toBfloat(infinity), 0x7f80);
  EXPECT_EQ(toBfloat(1e300), 0x7f80);
  EXPECT_EQ(toBfloat(-1e-300), 0x8000);
  EXPECT_EQ(toBfloat(-0.0), 0x8000);
}

TEST(Convert, BetweenAllFloatTypes) {
  const DataType floats[] = {DataType::F32, DataType::F64, DataType::F16,
                             DataType::BF16};
  const double given[] = {0, 1, -2.5, 100, 0.125};
  for (DataType from : floats)
    for (DataType to : floats) {
      ASSERT_TRUE(isConvertible(from, to));
      // One byte off: nothing need be aligned.
      char source[64], target[64];
      double back[5];
      convert(DataType::F64, given, from, source + 1, 5);
      convert(from, source + 1, to, target + 1, 5);
      convert(to, target + 1, DataType::F64, back, 5);
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(back[i], given[i]);
    }
  EXPECT_TRUE(isConvertible(DataType::I32, DataType::I32));
  EXPECT_FALSE(isConvertible(DataType::I32, DataType::F32));
  EXPECT_FALSE(isConvertible(DataType::F32, DataType::I8));
  int32_t in = 42, out = 0;
  convert(DataType::I32, &in, DataType::I32, &out, 1);
  EXPECT_EQ(out, 42);
  convert(DataType::F32, nullptr, DataType::F32, nullptr, 0);
}

//===----------------------------------------------------------------------===//
// Random numbers
//===----------------------------------------------------------------------===//

TEST(Random, PhiloxHasTheKnownAnswers) {
  // Known-answer vectors of the algorithm's reference implementation.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, AValueDependsOnItsPlaceOnly) {
  PhiloxKey key = streamKey(5, "weight");
  std::vector<float> whole(1000);
  fillUniform(DataType::F32, whole.data(), 0, 1000, key, 0.5);
  for (int64_t first : {0, 1, 2, 3, 255, 256, 257, 511}) {
    std::vector<float> part(300);
    fillUniform(DataType::F32, part.data(), first, 300, key, 0.5);
    for (int i = 0; i < 300; ++i)
      ASSERT_EQ(part[i], whole[first + i]) << first << " + " << i;
  }
}

TEST(Random, IsUniformWithinTheBound) {
  std::vector<float> data(100'000);
  fillUniform(DataType::F32, data.data(), 0, data.size(), streamKey(0, ""),
              0.25);
  double sum = 0, squares = 0;
  for (float value : data) {
    ASSERT_LT(std::fabs(value), 0.25f);
    sum += value;
    squares += double(value) * value;
  }
  // Mean and variance of the distribution, within five standard errors.
  EXPECT_NEAR(sum / data.size(), 0, 5 * 0.25 / std::sqrt(3e5));
  EXPECT_NEAR(squares / data.size(), 0.0625 / 3, 5 * 0.0187 / std::sqrt(1e5));
}

TEST(Random, StreamsDiffer) {
  EXPECT_NE(streamKey(1, "a"), streamKey(2, "a"));
  EXPECT_NE(streamKey(1, "a"), streamKey(1, "b"));
  EXPECT_EQ(streamKey(1, "a"), streamKey(1, "a"));
}

TEST(Random, IntegersAreZero) {
  int32_t data[3] = {1, 2, 3};
  fillUniform(DataType::I32, data, 0, 3, streamKey(0, ""), 1);
  EXPECT_EQ(data[0] | data[1] | data[2], 0);
}

TEST(Hash, HasTheKnownAnswer) {
  EXPECT_EQ(hashBytes("", 0), 0xef46db3751d8e999ull);
}

//===----------------------------------------------------------------------===//
// Memory, log
//===----------------------------------------------------------------------===//

TEST(MemoryAccount, CountsByKind) {
  MemoryAccount account;
  EXPECT_TRUE(account.reserve(MemoryKind::Parameters, 100));
  EXPECT_TRUE(account.reserve(MemoryKind::Results, 30));
  account.release(MemoryKind::Parameters, 60);
  EXPECT_TRUE(account.reserve(MemoryKind::Workspace, 7));
  MemoryFigures figures = account.figures();
  EXPECT_EQ(figures.parameters, 40);
  EXPECT_EQ(figures.results, 30);
  EXPECT_EQ(figures.workspace, 7);
  EXPECT_EQ(figures.total(), 77);
  EXPECT_EQ(figures.peak, 130);
}

TEST(MemoryAccount, RefusesAtTheLimit) {
  MemoryAccount account(100);
  EXPECT_TRUE(account.reserve(MemoryKind::Results, 100));
  EXPECT_FALSE(account.reserve(MemoryKind::Results, 1));
  EXPECT_FALSE(account.reserve(MemoryKind::Results, INT64_MAX));
  EXPECT_TRUE(account.reserve(MemoryKind::Results, 0));
  EXPECT_EQ(account.figures().peak, 100);
}

TEST(MemoryAccount, IsExactUnderThreads) {
  MemoryAccount account(1000);
  Pool pool(4);
  pool.run(20'000, 1000, [&](int64_t, int64_t) {
    if (account.reserve(MemoryKind::Workspace, 300))
      account.release(MemoryKind::Workspace, 300);
  });
  EXPECT_EQ(account.figures().total(), 0);
  EXPECT_LE(account.figures().peak, 1000);
}

TEST(Storage, IsAlignedAndCounted) {
  auto account = std::make_shared<MemoryAccount>();
  for (int64_t bytes : {int64_t(1), int64_t(4096), int64_t(3) << 20}) {
    auto storage = Storage::allocate(account, MemoryKind::Parameters, bytes);
    ASSERT_TRUE(storage.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0u);
    EXPECT_EQ(storage->size(), bytes);
    std::memset(storage->data(), 1, bytes);
    EXPECT_EQ(account->figures().parameters, bytes);
    Storage moved = std::move(*storage);
    EXPECT_EQ(storage->data(), nullptr);
    EXPECT_EQ(account->figures().parameters, bytes);
  }
  EXPECT_EQ(account->figures().parameters, 0);
}

TEST(Storage, FailsAsAValue) {
  auto account = std::make_shared<MemoryAccount>();
  EXPECT_EQ(
      Storage::allocate(account, MemoryKind::Results, INT64_MAX).status().code,
      MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(account->figures().total(), 0);
}

TEST(Log, LetsThroughWhatItsLevelSays) {
  testing::internal::CaptureStderr();
  Log(LogLevel::Quiet).print(LogLevel::Warning, "no");
  Log(LogLevel::Info).print(LogLevel::Debug, "no");
  Log(LogLevel::Info).print(LogLevel::Info, "yes");
  Log(LogLevel::Debug).print(LogLevel::Quiet, "no");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "moira: info: yes\n");
}
