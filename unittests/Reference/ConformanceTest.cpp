// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Cases.h"

#include <gtest/gtest.h>

#include <set>

using namespace moira::reference;

namespace moira::reference {
static void PrintTo(const Case &testCase, std::ostream *os) {
  *os << testCase.name;
}
} // namespace moira::reference

namespace {
class Conformance : public testing::TestWithParam<Case> {};
} // namespace

TEST_P(Conformance, InterpreterAgrees) {
  EXPECT_EQ(mismatch(GetParam(), evaluate(GetParam().layer, GetParam().inputs)),
            "");
}

static std::string testName(const testing::TestParamInfo<Case> &info) {
  std::string name = info.param.name;
  for (char &c : name)
    if (c == '-')
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Conformance,
                         testing::ValuesIn(conformanceCases()), testName);

TEST(ConformanceCases, NamesAreUnique) {
  std::set<std::string> names;
  for (const Case &c : conformanceCases())
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(ConformanceCases, DifferencesAreFound) {
  Case c = sixTokens("c1", 1, 1);
  LayerResult result = evaluate(c.layer, c.inputs);
  c.expected.counts = {4, 1, 0, 2};
  EXPECT_EQ(mismatch(c, result), "counts: expected 4 1 0 2, got 4 1 0 1");
  c.expected = {};
  c.expected.dropped.emplace();
  EXPECT_EQ(mismatch(c, result), "dropped pairs: got (2, 0) (4, 0)");
  c.expected = {};
  c.expected.firstColumn = std::vector<double>(6, 0);
  EXPECT_EQ(mismatch(c, result), "y[:, 0][0]: expected 0, got 0.643914282");
}
