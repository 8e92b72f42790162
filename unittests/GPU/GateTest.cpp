// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The router's kernels on the emulated device against the reference
// interpreter: the same ids, and the same bits of weights, whatever the inputs.

#include "GPU/RoutingRun.h"
#include "Reference/Interpreter.h"

#include "mlir/AsmParser/AsmParser.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
namespace moe = mlir::moe;

namespace {
struct GateCase {
  const char *name;
  const char *router;
  int64_t experts, choices;
  /// Operands: b(ias), m(ask), r(eplay), s(ample), k, t(hreshold).
  const char *options = "";
  int64_t capacity = 0; ///< by expert
  bool isBF16 = false;
};
void PrintTo(const GateCase &gate, std::ostream *stream) {
  *stream << gate.name;
}
} // namespace

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

class GateKernelTest : public testing::TestWithParam<GateCase> {};

INSTANTIATE_TEST_SUITE_P(All, GateKernelTest, testing::ValuesIn(gateCases),
                         [](const auto &info) { return info.param.name; });

static reference::Router toReference(moe::RouterAttr router, int64_t topK) {
  reference::Router result;
  result.score = reference::Score(int(router.getScore()));
  result.afterTopK = router.getAfterTopK();
  result.groups = router.getGroups();
  result.keep = router.getKeep();
  result.groupScore = router.getGroupScore() == moe::GroupScore::Max
                          ? reference::GroupScore::Max
                          : reference::GroupScore::SumTop2;
  result.normalize = router.getNormalize() == moe::Normalize::None
                         ? reference::Normalize::None
                     : router.getNormalize() == moe::Normalize::SumPlusEps
                         ? reference::Normalize::SumPlusEps
                         : reference::Normalize::MaxSumEps;
  result.eps = router.getEps().convertToDouble();
  result.scale = router.getScale().convertToDouble();
  result.expertChoice = router.getExpertChoice();
  result.topK = topK;
  return result;
}

static_assert(int(reference::Score::Softmax) == int(moe::Score::Softmax) &&
              int(reference::Score::Sigmoid) == int(moe::Score::Sigmoid) &&
              int(reference::Score::SqrtSoftplus) ==
                  int(moe::Score::SqrtSoftplus) &&
              int(reference::Score::Identity) == int(moe::Score::Identity));

namespace {
/// Inputs of a gate: ties, NaN, infinities and zeros of both signs beside
/// ordinary numbers.
struct Inputs {
  Inputs(const GateCase &gate, uint32_t seed);
  bool has(char option) const { return strchr(options, option); }

  const char *options;
  int64_t T = 23, E, K;
  std::vector<float> logits, bias, sample;
  std::vector<uint16_t> narrow; ///< the logits in bf16
  std::vector<uint8_t> mask;
  std::vector<int32_t> replay;
  int32_t tokens, k, capacity;
  float threshold = 0.1f;
  reference::GateInputs reference;
};
} // namespace

Inputs::Inputs(const GateCase &gate, uint32_t seed)
    : options(gate.options), E(gate.experts), K(gate.choices), logits(T * E),
      bias(E), sample(T), narrow(T * E), mask(T), replay(T * K),
      tokens(int32_t(T)), k(int32_t(K) / 2), capacity(int32_t(gate.capacity)) {
  std::mt19937 random(seed);
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  const float special[] = {NAN, inf, -inf, -0.0f, 0, most, -most, 1e-40f};
  for (int64_t t = 0; t < T; ++t)
    for (int64_t e = 0; e < E; ++e) {
      float &x = logits[t * E + e];
      if (t % 3 == 2)
        x = float(int(random() % 7) - 3); // ties
      else
        x = float(int(random() % 4001) - 2000) / 500;
      if (t % 4 == 3 && random() % 3 == 0)
        x = special[random() % 8];
      if (gate.isBF16)
        x = float(moira::reference::roundTo(moira::reference::DType::BF16, x));
    }
  std::fill_n(logits.begin() + 3 * E, E, NAN);
  std::fill_n(logits.begin() + 4 * E, E, -inf);
  std::fill_n(logits.begin() + 5 * E, E, inf);
  for (int64_t e = 0; e < E; ++e)
    bias[e] = float(int(random() % 100) - 50) / 100;
  bias[0] = NAN;
  if (E > 2)
    bias[E - 1] = -inf;
  for (float &u : sample)
    u = float(random() % 1000) / 1000;
  for (uint8_t &flag : mask)
    flag = random() % 4 != 0;
  for (int32_t &id : replay)
    id = int32_t(random() % (E + 2)) - 1; // some below 0, some E
  for (int64_t i = 0; i < T * E; ++i)
    memcpy(&narrow[i], reinterpret_cast<char *>(&logits[i]) + 2, 2);

  reference.logits = moira::reference::Reals(T, E);
  reference.logits.data.assign(logits.begin(), logits.end());
  if (has('b'))
    reference.bias.assign(bias.begin(), bias.end());
  if (has('m'))
    reference.mask.assign(mask.begin(), mask.end());
  if (has('k'))
    reference.k = k;
  if (has('t'))
    reference.threshold = threshold;
  if (has('r')) {
    reference.replay = moira::reference::Ids(T, K);
    reference.replay->data = replay;
  }
  if (has('s'))
    reference.secondUniform.assign(sample.begin(), sample.end());
  reference.expertRows = capacity;
}

/// The kernels of a case, in the order of their launches.
static void buildGate(const GateCase &gate, mlir::gpu::GPUModuleOp module,
                      mlir::OpBuilder &b, moe::GateKernel &kernel) {
  auto has = [&](char option) { return strchr(gate.options, option); };
  kernel.router = llvm::cast<moe::RouterAttr>(mlir::parseAttribute(
      "#moe.router<" + std::string(gate.router) + ">", b.getContext()));
  kernel.logits =
      gate.isBF16 ? mlir::Type(b.getBF16Type()) : mlir::Type(b.getF32Type());
  kernel.experts = gate.experts;
  kernel.choices = gate.choices;
  kernel.bias = has('b');
  kernel.mask = has('m');
  kernel.replay = has('r');
  kernel.sample = has('s');
  kernel.topK = has('k');
  kernel.threshold = has('t');
  if (!kernel.router.getExpertChoice()) {
    kernel.name = "gate";
    moe::buildGateKernel(module, kernel);
    return;
  }
  kernel.name = "scores";
  moe::buildExpertScoresKernel(module, kernel);
  kernel.name = "choice";
  moe::buildExpertChoiceKernel(module, kernel);
  kernel.name = "weights";
  moe::buildExpertWeightsKernel(module, kernel);
}

TEST_P(GateKernelTest, agreesWithTheReference) {
  const GateCase &gate = GetParam();
  moe::GateKernel kernel;
  reference::Router router;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    buildGate(gate, module, b, kernel);
    router = toReference(kernel.router, gate.choices);
  });
  for (uint64_t seed : {0, 9}) {
    Inputs in(gate, uint32_t(seed + 5));
    reference::GateResult expected = reference::gate(router, in.reference);
    auto device = openChecked(seed);
    DeviceArray logits(*device, in.logits), narrow(*device, in.narrow),
        bias(*device, in.bias), mask(*device, in.mask),
        replay(*device, in.replay), sample(*device, in.sample),
        ids(*device, in.T * in.K * 4), weights(*device, in.T * in.K * 4);
    std::vector<KernelArgument> arguments = {
        place(gate.isBF16 ? narrow : logits)};
    for (auto [option, array] :
         {std::pair('b', &bias), std::pair('m', &mask), std::pair('r', &replay),
          std::pair('s', &sample)})
      if (in.has(option))
        arguments.push_back(place(*array));
    arguments.insert(arguments.end(),
                     {place(ids), place(weights), word(in.tokens)});
    int32_t blocks = seed ? 2 : 9;
    if (router.expertChoice) {
      run.run(*device, "scores", arguments, kernel.sharedBytes(), blocks);
      run.run(*device, "choice",
              {place(ids), place(weights), word(in.tokens), word(in.capacity)});
      run.run(*device, "weights", {place(weights), word(in.tokens)},
              kernel.sharedBytes(), blocks);
    } else {
      if (in.has('k'))
        arguments.push_back(word(in.k));
      if (in.has('t'))
        arguments.push_back(KernelArgument::of(in.threshold));
      run.run(*device, "gate", arguments, kernel.sharedBytes(), blocks);
    }
    std::vector<int32_t> gotIds = ids.values<int32_t>();
    std::vector<float> gotWeights = weights.values<float>();
    for (int64_t i = 0; i < in.T * in.K; ++i) {
      ASSERT_EQ(gotIds[i], expected.ids.data[i])
          << "token " << i / in.K << ", choice " << i % in.K;
      float want = float(expected.weights.data[i]);
      // log1p is the one function that targets do not share to the bit.
      if (router.score == reference::Score::SqrtSoftplus)
        ASSERT_NEAR(gotWeights[i], want, std::fabs(want) * 1e-6)
            << "token " << i / in.K << ", choice " << i % in.K;
      else
        ASSERT_EQ(gotWeights[i], want)
            << "token " << i / in.K << ", choice " << i % in.K;
    }
  }
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
