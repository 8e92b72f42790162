// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs: gradients in f64 against differences, and the product's
// gradients against the oracle's, bit for bit, in the program's own type.
// MOIRA_RANDOM_GRADIENTS (40) is how many, MOIRA_RANDOM_SEED (0) the first
// seed.

#include "Autodiff/GradientProgram.h"
#include "Reference/RandomProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

using namespace moira;
using namespace moira::autodiff;
using namespace moira::reference;

namespace {
class RandomGradients : public testing::TestWithParam<uint64_t> {};
} // namespace

/// The program in f64, with numbers that hit no kink and no tie.
static RandomProgram inGeneralPosition(RandomProgram p) {
  p.layer.rowType = DType::F64;
  p.layer.router.wide = true;
  unsigned seed = 77;
  auto shake = [&](std::vector<double> &values, double size) {
    Argument noise = randomArgument(
        "noise", {static_cast<int64_t>(values.size())}, ++seed, -size, size);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += noise.values[i];
  };
  shake(p.inputs.x.data, 0x1p-5);
  shake(p.inputs.gate.logits.data, 0x1p-12);
  for (auto *weights : {&p.inputs.w1, &p.inputs.w2, &p.inputs.wg})
    for (Reals &weight : *weights)
      shake(weight.data, 0x1p-5);
  for (auto *biases : {&p.inputs.b1, &p.inputs.b2})
    for (std::vector<double> &bias : *biases)
      shake(bias, 0x1p-5);
  return p;
}

static std::string describe(const RandomProgram &p) {
  return p.describe() +
         "; to repeat: MOIRA_RANDOM_GRADIENTS=1 "
         "MOIRA_RANDOM_SEED=" +
         std::to_string(p.seed) +
         " MoiraAutodiffTests --gtest_filter='*Random*'";
}

TEST_P(RandomGradients, AgreeWithDifferences) {
  RandomProgram p = inGeneralPosition(randomProgram(GetParam()));
  SCOPED_TRACE(describe(p));
  CheckOptions options;
  options.program.recompute = p.seed % 3 == 0;
  options.program.oracle = p.seed % 2 == 0;
  options.maxElements = 12;
  CheckCounts counts;
  EXPECT_EQ(
      checkGradients(p.print(), arguments(p.layer, p.inputs), options, &counts),
      "")
      << p.print();
  if (p.inputs.x.rows > 0) {
    EXPECT_GT(counts.compared, counts.skipped);
  }
}

TEST_P(RandomGradients, AreTheSameBitsFromKernels) {
  RandomProgram p = randomProgram(GetParam());
  SCOPED_TRACE(describe(p));
  GradientOptions oracle, product;
  product.oracle = false;
  product.threads = 1 + p.seed % 2;
  product.recompute = p.seed % 3 == 0;
  // The hidden dimension in blocks, of forward alone, too.
  oracle.hiddenBlocks = product.hiddenBlocks = 1 + p.seed / 2 % 4;
  GradientProgram expected(p.print(), oracle), got(p.print(), product);
  std::vector<Argument> inputs = arguments(p.layer, p.inputs);
  Outputs plain = expected.runPlain(inputs);
  std::vector<Argument> seeds = makeSeeds(plain, p.seed);
  GradientRun a = expected.run(inputs, seeds), b = got.run(inputs, seeds);
  EXPECT_EQ(conformance::difference(plain, a.results), "");
  EXPECT_EQ(conformance::difference(a.results, b.results), "");
  EXPECT_EQ(conformance::difference(a.gradients, b.gradients), "") << p.print();
}

static uint64_t numberOf(const char *variable, uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

static std::vector<uint64_t> seeds() {
  uint64_t first = numberOf("MOIRA_RANDOM_SEED", 0);
  std::vector<uint64_t> all(numberOf("MOIRA_RANDOM_GRADIENTS", 40));
  for (uint64_t &seed : all)
    seed = first++;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, RandomGradients, testing::ValuesIn(seeds()),
                         [](const auto &info) {
                           return "seed" + std::to_string(info.param);
                         });
