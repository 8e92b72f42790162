// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Counts, slots and sources on the emulated device, against the reference
// interpreter.

#include "GPU/RoutingRun.h"
#include "Reference/Interpreter.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
namespace moe = mlir::moe;

namespace {
struct AssignCase {
  const char *name;
  moe::Order order;
  int64_t tokens;
  int32_t capacity;
  bool padded = false;
  std::vector<int32_t> blocks = {};
  int64_t choices = 3, experts = 6;
};
void PrintTo(const AssignCase &assign, std::ostream *stream) {
  *stream << assign.name;
}
} // namespace

static const AssignCase assignCases[] = {
    {"ChoiceMajor", moe::Order::ChoiceMajor, 50, INT32_MAX},
    {"TokenMajor", moe::Order::TokenMajor, 50, INT32_MAX},
    {"Capacity", moe::Order::ChoiceMajor, 50, 7},
    {"CapacityTokens", moe::Order::TokenMajor, 50, 3},
    {"Padded", moe::Order::ChoiceMajor, 40, 9, true},
    {"NoRoom", moe::Order::TokenMajor, 5, 0, true},
    {"NoTokens", moe::Order::ChoiceMajor, 0, INT32_MAX},
    {"OneToken", moe::Order::ChoiceMajor, 1, INT32_MAX},
    {"Blocks", moe::Order::ChoiceMajor, 50, 4, false, {20, 0, 13, 17}},
    {"BlocksPadded", moe::Order::TokenMajor, 41, 3, true, {1, 40}},
    {"OneBlock", moe::Order::ChoiceMajor, 30, 5, false, {30}},
    {"BlocksOfNone", moe::Order::ChoiceMajor, 0, 5, true, {0, 0}},
    {"Batch", moe::Order::BatchPrioritized, 50, 6},
    {"BatchBlocks", moe::Order::BatchPrioritized, 47, 3, false, {10, 37}},
    {"BatchPadded", moe::Order::BatchPrioritized, 40, 5, true, {25, 0, 15}},
    {"BatchOneChoice", moe::Order::BatchPrioritized, 40, 4, false, {}, 1},
    {"Probability", moe::Order::ExpertProbability, 50, 6},
    {"ProbabilityAll", moe::Order::ExpertProbability, 50, INT32_MAX},
    {"ProbabilityBlocks",
     moe::Order::ExpertProbability,
     47,
     3,
     true,
     {3, 20, 24}},
    {"ProbabilityMany",
     moe::Order::ExpertProbability,
     20,
     2,
     false,
     {},
     4,
     300},
    {"BatchNoTokens", moe::Order::BatchPrioritized, 0, 3},
    {"BatchOneToken", moe::Order::BatchPrioritized, 1, 3},
    // More pairs of an expert than threads of a block.
    {"BatchOneExpert", moe::Order::BatchPrioritized, 150, 170, false, {}, 2, 1},
    {"ProbabilityOneExpert",
     moe::Order::ExpertProbability,
     300,
     290,
     true,
     {170, 130},
     1,
     1},
    // More choices than a digit has values.
    {"BatchManyChoices", moe::Order::BatchPrioritized, 9, 8, false, {}, 20, 3},
};

class AssignKernelTest : public testing::TestWithParam<AssignCase> {};

INSTANTIATE_TEST_SUITE_P(All, AssignKernelTest, testing::ValuesIn(assignCases),
                         [](const auto &info) { return info.param.name; });

static reference::Order toReference(moe::Order order) {
  switch (order) {
  case moe::Order::ChoiceMajor:
    return reference::Order::ChoiceMajor;
  case moe::Order::TokenMajor:
    return reference::Order::TokenMajor;
  case moe::Order::BatchPrioritized:
    return reference::Order::BatchPrioritized;
  case moe::Order::ExpertProbability:
    return reference::Order::ExpertProbability;
  }
  return reference::Order::ChoiceMajor;
}

TEST_P(AssignKernelTest, givesEveryPairItsRow) {
  const AssignCase &assign = GetParam();
  int64_t T = assign.tokens, K = assign.choices, E = assign.experts;
  bool byToken = assign.order == moe::Order::BatchPrioritized;
  bool byPair = assign.order == moe::Order::ExpertProbability;
  bool hasBlocks = !assign.blocks.empty();
  int64_t sharedBytes = 0;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
    moe::AssignKernel kernel{"sizes", assign.order,  E,
                             K,       assign.padded, hasBlocks};
    moe::buildCountKernel(module, kernel);
    kernel.name = "assign";
    sharedBytes = kernel.sharedBytes();
    moe::buildAssignKernel(module, kernel);
    moe::buildClearKernel(module, "clear");
    moe::buildSourcesKernel(module, "sources");
  });
  // Expert 4 gets nothing; some choices are unused, some are no expert.
  reference::Ids ids(T, K);
  std::mt19937 random(3);
  for (int32_t &id : ids.data) {
    id = int32_t(random() % E);
    if (id == 4)
      id = random() % 2 ? -1 : int32_t(E);
  }
  // Priorities with ties, zeros of both signs and what comes last.
  std::vector<float> priority(byToken ? T : T * K);
  const float special[] = {NAN, -std::numeric_limits<float>::infinity(), -0.0f,
                           0};
  for (float &p : priority)
    p = random() % 5 ? float(random() % 4) - 1 : special[random() % 4];

  reference::AssignInputs inputs;
  inputs.order = toReference(assign.order);
  inputs.experts = E;
  if (assign.capacity != INT32_MAX)
    inputs.capacity = assign.capacity;
  if (byToken)
    inputs.tokenPriority.assign(priority.begin(), priority.end());
  if (byPair) {
    inputs.pairPriority = reference::Reals(T, K);
    inputs.pairPriority.data.assign(priority.begin(), priority.end());
  }
  inputs.blocks = assign.blocks;
  if (assign.padded)
    inputs.paddedRows =
        assign.capacity * (hasBlocks ? int64_t(assign.blocks.size()) : 1);
  reference::Assignment expected = reference::assign(ids, inputs);

  for (uint64_t seed : {0, 4}) {
    auto device = openChecked(seed);
    DeviceArray i(*device, ids.data), p(*device, priority),
        b(*device, assign.blocks), n(*device, E * 4), s(*device, T * K * 4),
        r(*device, expected.bound * 4), scratch(*device, T * K * 16);
    int32_t tokens = int32_t(T), pairs = int32_t(T * K),
            rows = int32_t(expected.bound), choices = int32_t(K),
            blocks = int32_t(assign.blocks.size());
    auto with = [&](bool hasSlots) {
      std::vector<KernelArgument> arguments = {place(i)};
      if (hasSlots && (byToken || byPair))
        arguments.push_back(place(p));
      if (hasBlocks)
        arguments.push_back(place(b));
      arguments.push_back(place(n));
      if (hasSlots)
        arguments.push_back(place(s));
      if (hasSlots && (byToken || byPair))
        arguments.push_back(place(scratch));
      arguments.insert(arguments.end(), {word(tokens), word(assign.capacity)});
      if (hasBlocks)
        arguments.push_back(word(blocks));
      return arguments;
    };
    run.run(*device, "sizes", with(false));
    run.run(*device, "assign", with(true), sharedBytes);
    run.run(*device, "clear", {place(r), word(rows)});
    run.run(*device, "sources",
            {place(s), place(r), word(pairs), word(rows), word(choices)});
    EXPECT_EQ(n.values<int32_t>(), expected.sizes);
    EXPECT_EQ(s.values<int32_t>(), expected.slots.data);
    EXPECT_EQ(r.values<int32_t>(), reference::sources(expected));
  }
}
