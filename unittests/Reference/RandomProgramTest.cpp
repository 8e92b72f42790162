// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RandomProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

using namespace moira::reference;

TEST(RandomProgram, IsTheSameForTheSameSeed) {
  for (uint64_t seed : {0u, 1u, 77u}) {
    EXPECT_EQ(randomProgram(seed).print(), randomProgram(seed).print());
    EXPECT_EQ(randomProgram(seed).evaluate().y,
              randomProgram(seed).evaluate().y);
  }
  EXPECT_NE(randomProgram(0).print(), randomProgram(1).print());
}

TEST(RandomProgram, ResultsAreNumbers) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomProgram p = randomProgram(seed);
    for (double value : p.evaluate().y.data)
      ASSERT_FALSE(std::isnan(value)) << p.describe();
  }
}

TEST(RandomProgram, InputsAreExactInTheirTypes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomProgram p = randomProgram(seed);
    for (const Argument &arg : arguments(p.layer, p.inputs)) {
      int64_t size = 1;
      for (int64_t dim : arg.shape)
        size *= dim;
      ASSERT_EQ(size, int64_t(arg.values.size())) << arg.name;
      for (DType type : {DType::F32, DType::F64, DType::BF16, DType::F16})
        for (double value : arg.values)
          if (arg.elementType == nameOf(type) && !std::isnan(value)) {
            ASSERT_EQ(roundTo(type, value), value)
                << arg.name << ", " << p.describe();
          }
    }
  }
}

TEST(RandomProgram, CoversWhatCanGoWrong) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomProgram p = randomProgram(seed);
    LayerResult r = p.evaluate();
    auto note = [&](bool condition, const char *what) {
      if (condition)
        seen.insert(what);
    };
    note(p.inputs.x.rows == 0, "no token");
    note(p.layer.experts == 1, "one expert");
    note(r.capacity == 0, "capacity 0");
    note(p.layer.choices() == p.layer.experts, "all experts");
    note(p.layer.padded && !p.layer.blocks.empty(), "padded blocks");
    note(p.layer.router.keep < p.layer.router.groups, "masked groups");
    note(p.layer.router.expertChoice, "expert choice");
    note(p.inputs.gate.replay.has_value(), "replay");
    note(p.inputs.gate.threshold.has_value(), "threshold");
    note(!p.inputs.gate.secondUniform.empty(), "sampling");
    note(!p.inputs.gate.mask.empty(), "mask");
    for (size_t e = 0; e < r.counts.size(); ++e) {
      note(r.counts[e] == 0, "empty group");
      note(r.assignment.sizes[e] < r.counts[e], "drops");
    }
    for (double l : p.inputs.gate.logits.data)
      note(std::isnan(l), "NaN");
  }
  EXPECT_EQ(seen.size(), 14u);
}

TEST(RandomProgram, PrintsItsArgumentsAndOps) {
  RandomProgram p = randomProgram(7);
  std::string text = p.print();
  for (const Argument &arg : arguments(p.layer, p.inputs))
    EXPECT_NE(text.find("%" + arg.name + ": tensor<"), std::string::npos);
  for (const char *op : {"moe.gate", "moe.count", "moe.assign", "moe.dispatch",
                         "moe.expert", "moe.combine", "moe.yield"})
    EXPECT_NE(text.find(op), std::string::npos) << op;
  EXPECT_EQ(results(p.evaluate(), p.layer).size(), 6u);
}
