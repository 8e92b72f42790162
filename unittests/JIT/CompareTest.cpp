// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Compare.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

namespace {

const float nan = std::nanf("");
const float infinity = INFINITY;

TensorView floats(const std::vector<float> &values, Shape shape) {
  return {DataType::F32, std::move(shape), values.data()};
}

TensorView integers(const std::vector<int32_t> &values, Shape shape) {
  return {DataType::I32, std::move(shape), values.data()};
}

Comparison compare(const std::vector<float> &expected,
                   const std::vector<float> &found) {
  Shape shape{1, int64_t(expected.size())};
  return compareValues("result 0", floats(expected, shape),
                       floats(found, shape));
}

Choices topK(const std::vector<float> &logits,
             const std::vector<int32_t> &ids) {
  return checkTopK("gate 0", floats(logits, {1, int64_t(logits.size())}),
                   integers(ids, {1, int64_t(ids.size())}));
}

TEST(Compare, CountsIdenticalElements) {
  Comparison result = compare({1, 2, nan, infinity}, {1, 2, nan, infinity});
  EXPECT_EQ(result.elements, 4);
  EXPECT_EQ(result.identical, 4);
  EXPECT_EQ(result.beyond, 0);
}

TEST(Compare, AllowsRoundingRelativeToTheRow) {
  // The small element's error counts against the row's largest.
  Comparison result = compare({1000, 1}, {1000, 1.001f});
  EXPECT_EQ(result.identical, 1);
  EXPECT_EQ(result.beyond, 0);
  EXPECT_NEAR(result.maxAbsolute, 1e-3, 1e-6);
  EXPECT_NEAR(result.maxRelative, 1e-6, 1e-9);
}

TEST(Compare, SaysWhereAnErrorIs) {
  Comparison result = compare({1, 2, 3}, {1, 2.5f, 4});
  EXPECT_EQ(result.beyond, 2);
  EXPECT_EQ(result.firstBeyond, "result 0 [0, 1]: expected 2, got 2.5");
}

TEST(Compare, NanAndInfinityOnOneSideFail) {
  EXPECT_EQ(compare({1, nan}, {1, 0}).beyond, 1);
  EXPECT_EQ(compare({1, 0}, {1, nan}).beyond, 1);
  EXPECT_EQ(compare({1, infinity}, {1, 5}).beyond, 1);
  EXPECT_EQ(compare({1, infinity}, {1, -infinity}).beyond, 1);
}

TEST(Compare, ZeroRowsHaveNoRoundingErrors) {
  EXPECT_EQ(compare({0, 0}, {0, 1e-30f}).beyond, 1);
  // The zeros are equal, their bits are not.
  Comparison zeros = compare({0, 0}, {0, -0.0f});
  EXPECT_EQ(zeros.identical, 1);
  EXPECT_EQ(zeros.beyond, 0);
}

TEST(Compare, IntegersAreExact) {
  std::vector<int32_t> a{1000000, -7}, b{1000001, -7};
  Comparison result =
      compareValues("result 1", integers(a, {2}), integers(b, {2}));
  EXPECT_EQ(result.identical, 1);
  EXPECT_EQ(result.beyond, 1);
  EXPECT_EQ(result.firstBeyond, "result 1 [0, 0]: expected 1e+06, got 1e+06");
}

TEST(Compare, EmptyTensors) {
  EXPECT_EQ(compareValues("", floats({}, {0, 4}), floats({}, {0, 4})).elements,
            0);
  EXPECT_EQ(compareValues("", floats({}, {4, 0}), floats({}, {4, 0})).elements,
            0);
}

TEST(Choices, TheLargestInOrderAreExact) {
  Choices result = topK({0, 3, 1, 2}, {1, 3});
  EXPECT_EQ(result.tokens, 1);
  EXPECT_EQ(result.exact, 1);
  EXPECT_EQ(result.wrong, 0);
}

TEST(Choices, TiesGoToTheLowestIdOrAreAdmissible) {
  EXPECT_EQ(topK({5, 5, 5}, {0, 1}).exact, 1);
  Choices other = topK({5, 5, 5}, {2, 0});
  EXPECT_EQ(other.exact, 0);
  EXPECT_EQ(other.wrong, 0);
}

TEST(Choices, NearTiesAreAdmissible) {
  EXPECT_EQ(topK({1, 1.000001f, 0}, {0}).wrong, 0);
  Choices result = topK({1, 1.01f, 0}, {0});
  EXPECT_EQ(result.wrong, 1);
  EXPECT_EQ(
      result.firstWrong.rfind("gate 0, token 0: expected ids [1] (within", 0),
      0u)
      << result.firstWrong;
}

TEST(Choices, IdsAreDistinctAndInRange) {
  EXPECT_EQ(topK({5, 5, 5}, {1, 1}).wrong, 1);
  EXPECT_EQ(topK({5, 5, 5}, {0, 3}).wrong, 1);
  EXPECT_EQ(topK({5, 5, 5}, {0, -1}).wrong, 1);
}

TEST(Choices, OddLogits) {
  // NaN is the smallest, +inf the largest finite; all -inf gives 0, 1, ...
  EXPECT_EQ(topK({nan, -1, infinity}, {2, 1}).exact, 1);
  EXPECT_EQ(topK({nan, -1, infinity}, {2, 0}).wrong, 1);
  EXPECT_EQ(topK({nan, -infinity, nan}, {0, 1}).exact, 1);
}

TEST(Choices, EqualIsExact) {
  std::vector<int32_t> a{0, 1, 2, -1}, b{0, 1, 2, 3};
  Choices result =
      checkEqual("gate 1", integers(a, {2, 2}), integers(b, {2, 2}));
  EXPECT_EQ(result.tokens, 2);
  EXPECT_EQ(result.exact, 1);
  EXPECT_EQ(result.firstWrong,
            "gate 1, token 1: expected ids [2, -1], got [2, 3]");
}

} // namespace
