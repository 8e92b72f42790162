// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs: the oracle against the interpreter, the product against the
// oracle, bit for bit. MOIRA_RANDOM_PROGRAMS (300) is how many,
// MOIRA_RANDOM_SEED (0) the first seed. With MOIRA_RANDOM_PRINT set the
// programs are printed.

#include "Conformance/Harness.h"
#include "Conformance/LayerTools.h"
#include "Reference/RandomProgram.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Signals.h"
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

namespace {
class RandomPrograms : public testing::TestWithParam<uint64_t> {};
} // namespace

/// Every way to hold weights comes up, joined with every way to compile. Half
/// of the programs are compiled without optimisation, which is faster, and one
/// in 17 with all of it (an odd number: shards take every n-th seed). One in 7
/// leaves out some fusions.
static CompileOptions optionsFor(uint64_t seed) {
  CompileOptions options;
  options.optLevel = seed % 17 == 5 ? 3 : seed / 3 % 2;
  if (seed % 7 == 3)
    options.disabledFusions = static_cast<mlir::moe::Fusions>(seed / 7 % 32);
  WeightFormat &format = options.weights;
  format.arguments = seed % 5 == 0;
  format.perExpert = seed % 3 == 0;
  format.transposed = seed / 2 % 2 == 0;
  format.joined = seed / 4 % 2 == 0;
  format.interleaved = seed / 8 % 2 == 0;
  return options;
}

static std::string howToRepeat(uint64_t seed) {
  return concat("to print it: MOIRA_RANDOM_PRINT=1 MOIRA_RANDOM_PROGRAMS=1 "
                "MOIRA_RANDOM_SEED=",
                seed, " MoiraConformanceTests --gtest_filter='*Random*'");
}

/// Every token but each third, then the first half again: another T, another
/// order. At least one token where there are any, since empty inputs would be
/// taken for absent ones.
static LayerInputs someTokens(const LayerInputs &inputs) {
  std::vector<int64_t> tokens;
  for (int64_t t = inputs.x.rows - 1; t >= 0; --t)
    if (t % 3)
      tokens.push_back(t);
  for (int64_t t = 0; t < (inputs.x.rows + 1) / 2; ++t)
    tokens.push_back(t);
  return takeTokens(inputs, tokens);
}

TEST_P(RandomPrograms, Agree) {
  RandomProgram p = randomProgram(GetParam());
  SCOPED_TRACE(howToRepeat(p.seed));
  SCOPED_TRACE(p.describe());
  llvm::PrettyStackTraceFormat trace("%s; %s", p.describe().c_str(),
                                     howToRepeat(p.seed).c_str());
  if (std::getenv("MOIRA_RANDOM_PRINT"))
    std::cout << p.print() << std::flush;

  CompileOptions options = optionsFor(p.seed);
  options.oracle = true;
  auto oracle = compileLayer(p.layer, p.inputs, options);
  options.oracle = false;
  auto product = compileLayer(p.layer, p.inputs, options);
  ASSERT_TRUE(oracle && product);

  LayerResult result = p.evaluate();
  Runner expected(oracle);
  if (!options.weights.arguments)
    expected.bindWeights(p.layer, p.inputs, options.weights);
  Outputs bits = expected.run(p.layer, p.inputs);
  double tolerance = p.sameBits ? 0 : looseTolerance(p.layer, result);
  EXPECT_EQ(differenceFrom(results(result, p.layer), bits, tolerance), "")
      << "oracle against interpreter";

  int threads = 1 + p.seed / 2 % 2;
  Runner runner(product, threads);
  if (!options.weights.arguments)
    runner.bindWeights(p.layer, p.inputs, options.weights);
  for (const std::string &variant : runner.variants()) {
    runner.setVariant(variant);
    EXPECT_EQ(difference(bits, runner.run(p.layer, p.inputs)), "")
        << "product against oracle, variant " << variant;
    // More threads have more arenas; what no kernel takes over is a loop whose
    // memory has no bound in terms of the inputs' shapes.
    if (threads == 1 && options.disabledFusions == mlir::moe::Fusions{}) {
      EXPECT_LE(runner.workspaceHeld(), runner.workspaceWanted());
    }
  }
  // The sizes of blocks are constants of the program.
  if (!p.layer.blocks.empty())
    return;
  LayerInputs others = someTokens(p.inputs);
  bits = expected.run(p.layer, others);
  EXPECT_EQ(differenceFrom(results(evaluate(p.layer, others), p.layer), bits,
                           tolerance),
            "")
      << "other tokens, oracle against interpreter";
  runner.setVariant("");
  EXPECT_EQ(difference(bits, runner.run(p.layer, others)), "")
      << "other tokens, product against oracle";
}

static uint64_t numberOf(const char *variable, uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

static std::vector<uint64_t> seeds() {
  llvm::sys::PrintStackTraceOnErrorSignal("MoiraConformanceTests");
  uint64_t first = numberOf("MOIRA_RANDOM_SEED", 0);
  std::vector<uint64_t> all(numberOf("MOIRA_RANDOM_PROGRAMS", 300));
  for (uint64_t &seed : all)
    seed = first++;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, RandomPrograms, testing::ValuesIn(seeds()),
                         [](const auto &info) {
                           return concat("seed", info.param);
                         });
