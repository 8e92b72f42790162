// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The router's kernels on the emulated device against the reference
// interpreter: the same ids, and the same bits of weights, whatever the inputs.

#include "GPU/GateCase.h"
#include "Reference/Interpreter.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
namespace moe = mlir::moe;

static const GateCase gateCases[] = {
    {"Softmax", "normalize = max_sum_eps", 8, 2},
    {"SoftmaxWide", "", 128, 8},
    {"OddExperts", "normalize = max_sum_eps", 37, 5},
    {"AfterTopK", "after_top_k", 64, 4},
    {"AfterTopKSigmoid", "score = sigmoid, after_top_k", 16, 1},
    {"SigmoidBias",
     "score = sigmoid, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5",
     96, 6, "b"},
    {"SqrtSoftplus", "score = sqrtsoftplus, normalize = sum_plus_eps", 33, 3},
    {"OneExpert", "normalize = max_sum_eps", 1, 1},
    {"All", "score = identity", 16, 16},
    {"Largest", "normalize = sum_plus_eps", 512, 16, "bm"},
    {"BF16", "normalize = sum_plus_eps", 64, 8, "", 0, true},
    // DeepSeek-V2 and V3.
    {"GroupsMax", "groups = 8, keep = 3, scale = 16.0", 160, 6},
    {"GroupsSum",
     "score = sigmoid, groups = 8, keep = 4, group_score = sum_top2, "
     "normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5",
     256, 8, "b"},
    {"GroupsOfOne", "groups = 12, keep = 5", 12, 4, "b"},
    {"GroupsOfTwo",
     "score = sigmoid, groups = 6, keep = 2, group_score = sum_top2", 12, 3,
     "bm"},
    {"ManyGroups", "score = identity, groups = 80, keep = 30", 160, 7},
    {"Mask", "normalize = max_sum_eps", 20, 4, "m"},
    {"RunTimeK", "normalize = sum_plus_eps", 24, 6, "k"},
    {"RunTimeKAfter", "after_top_k", 24, 6, "k"},
    {"Threshold", "normalize = max_sum_eps", 12, 6, "t"},
    {"Replay", "normalize = sum_plus_eps, scale = 2.0", 24, 4, "r"},
    {"ReplayAfter", "after_top_k", 24, 4, "rk"},
    {"Sampled", "normalize = sum_plus_eps, scale = 4.0", 24, 2, "s"},
    {"SampledOfMore", "score = sigmoid", 24, 3, "s"},
    {"Everything",
     "score = sigmoid, groups = 4, keep = 2, group_score = sum_top2, "
     "normalize = max_sum_eps, eps = 0.5, scale = 3.0",
     64, 6, "bmkts"},
    {"ReplayWithAll", "normalize = sum_plus_eps", 40, 5, "bmrkts"},
    {"ByExpert", "expert_choice", 6, 6, "", 7},
    {"ByExpertMask", "normalize = sum_plus_eps, scale = 2.0, expert_choice", 37,
     37, "bm", 5},
    {"ByExpertIdentity", "score = identity, expert_choice", 5, 5, "m", 11},
    {"ByExpertAll", "score = sigmoid, normalize = max_sum_eps, expert_choice",
     9, 9, "m", 1000},
    {"ByExpertNone", "scale = 0.5, expert_choice", 4, 4, "b", 0},
};

namespace moira::test {
static void PrintTo(const GateCase &gate, std::ostream *stream) {
  *stream << gate.name;
}
} // namespace moira::test

class GateKernelTest : public testing::TestWithParam<GateCase> {};

INSTANTIATE_TEST_SUITE_P(All, GateKernelTest, testing::ValuesIn(gateCases),
                         [](const auto &info) { return info.param.name; });

TEST_P(GateKernelTest, agreesWithTheReference) {
  expectReference(GetParam(), {0, 9});
}

TEST(GateKernelsTest, noTokens) {
  for (const char *router : {"", "expert_choice"}) {
    GateCase gate{"", router, 8, *router ? 8 : 2};
    moe::GateKernel kernel;
    RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
      buildGate(gate, module, b, kernel);
    });
    auto device = openChecked(0);
    DeviceArray empty(*device, 0);
    int32_t tokens = 0, capacity = 3;
    run.run(*device, *router ? "scores" : "gate",
            {place(empty), place(empty), place(empty), word(tokens)},
            kernel.sharedBytes());
    if (*router)
      run.run(*device, "choice",
              {place(empty), place(empty), word(tokens), word(capacity)});
  }
}

//===----------------------------------------------------------------------===//
// noise
//===----------------------------------------------------------------------===//

TEST(NoiseKernelTest, drawsTheNumbersOfTheReference) {
  constexpr int64_t columns = 45, layer = 3;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
    moe::buildNoiseKernel(
        module, {"uniform", moe::Distribution::Uniform, columns, layer});
    moe::buildNoiseKernel(module,
                          {"normal", moe::Distribution::Normal, columns, 0});
  });
  auto device = openChecked(0);
  const int32_t rows = 130;
  DeviceArray out(*device, rows * columns * 4);
  const int64_t seed = 0x123456789abcdef0, step = 77,
                first = 0xfffffff0; // crosses into the high half
  for (bool isNormal : {false, true}) {
    run.run(*device, isNormal ? "normal" : "uniform",
            {place(out), word(rows), KernelArgument::of(seed),
             KernelArgument::of(step), KernelArgument::of(first)});
    reference::DrawKey key{uint64_t(seed), isNormal ? 0u : uint32_t(layer),
                           uint32_t(step)};
    reference::Reals expected =
        reference::noise(isNormal ? reference::Distribution::Normal
                                  : reference::Distribution::Uniform,
                         rows, columns, key, first);
    std::vector<float> got = out.values<float>();
    for (int64_t i = 0; i < rows * columns; ++i)
      ASSERT_EQ(got[i], float(expected.data[i])) << "element " << i;
  }
}
