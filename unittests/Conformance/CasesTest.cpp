// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance cases, compiled.

#include "Reference/Cases.h"
#include "Conformance/Harness.h"
#include "Conformance/LayerTools.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

namespace moira::reference {
static void PrintTo(const Case &testCase, std::ostream *os) {
  *os << testCase.name;
}
} // namespace moira::reference

namespace {
class CompiledCase : public testing::TestWithParam<Case> {
protected:
  const Layer &layer = GetParam().layer;
  const LayerInputs &inputs = GetParam().inputs;

  std::string mismatchOf(const Outputs &outputs) const {
    LayerResult result = toLayerResult(outputs, layer);
    // Slots are checked as numbers and by who stands on each.
    Assignment expected = evaluate(layer, inputs).assignment;
    result.assignment.padded = expected.padded;
    result.assignment.bound = expected.bound;
    return mismatch(GetParam(), result);
  }
};
} // namespace

/// Half of the tokens in reverse order: another T on the same session.
static LayerInputs otherTokens(const LayerInputs &inputs) {
  std::vector<int64_t> tokens;
  for (int64_t t = inputs.x.rows - 1; t >= 0; t -= 2)
    tokens.push_back(t);
  return takeTokens(inputs, tokens);
}

TEST_P(CompiledCase, AgreesWithWhatIsPublished) {
  CompileOptions options;
  options.oracle = true;
  auto oracle = compileLayer(layer, inputs, options);
  options.oracle = false;
  auto product = compileLayer(layer, inputs, options);
  ASSERT_TRUE(oracle && product);

  Runner expected(oracle);
  expected.bindWeights(layer, inputs, options.weights);
  Outputs bits = expected.run(layer, inputs);
  EXPECT_EQ(mismatchOf(bits), "") << "oracle";

  for (int threads : {1, 2}) {
    Runner runner(product, threads);
    runner.bindWeights(layer, inputs, options.weights);
    for (const std::string &variant : runner.variants()) {
      SCOPED_TRACE(concat("variant ", variant, ", threads ", threads));
      runner.setVariant(variant);
      Outputs outputs = runner.run(layer, inputs);
      EXPECT_EQ(mismatchOf(outputs), "");
      EXPECT_EQ(difference(bits, outputs), "");
      if (!layer.blocks.empty())
        continue;
      LayerInputs other = otherTokens(inputs);
      EXPECT_EQ(
          difference(expected.run(layer, other), runner.run(layer, other)), "");
      EXPECT_EQ(difference(bits, runner.run(layer, inputs)), "");
    }
  }
}

static std::string testName(const testing::TestParamInfo<Case> &info) {
  std::string name = info.param.name;
  for (char &c : name)
    if (c == '-')
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, CompiledCase,
                         testing::ValuesIn(conformanceCases()), testName);
