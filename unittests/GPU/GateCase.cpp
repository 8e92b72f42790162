// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/GateCase.h"

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

void moira::test::buildGate(const GateCase &gate, mlir::gpu::GPUModuleOp module,
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

void moira::test::expectReference(const GateCase &gate,
                                  llvm::ArrayRef<uint64_t> seeds,
                                  const Edit &edit,
                                  emulator::Counters *counters) {
  moe::GateKernel kernel;
  reference::Router router;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    buildGate(gate, module, b, kernel);
    router = toReference(kernel.router, gate.choices);
    if (edit)
      edit(module);
  });
  for (uint64_t seed : seeds) {
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
    if (counters)
      *counters = device->takeReport().counters;
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
