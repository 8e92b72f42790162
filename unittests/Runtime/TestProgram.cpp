// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Runtime/TestProgram.h"
#include "Runtime/TestModule.h"
#include "Runtime/TestRanks.h"

#include <cstring>
#include <map>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

Manifest test::testManifest() {
  Manifest manifest;
  manifest.version = "0.1.0";
  manifest.module = "test.mlir";
  EntrySpec entry;
  entry.name = "main";
  entry.inputs = {{"x", DataType::F32, {-1, 4}}};
  entry.results = {{"", DataType::F32, {-1, 4}}};
  entry.layers = {{TEST_LAYER, 2, 1, 32, {}}};
  entry.flopsPerToken = 4;
  entry.variants = {{"decode", "decode", 0, "moira_step_main_decode",
                     "moira_workspace_main", "cpu-fma", "none", ""},
                    {"prefill", "prefill", 8, "moira_step_main_prefill",
                     "moira_workspace_main", "cpu-fma", "none", ""}};
  manifest.entries = {entry};
  ParameterSpec weight;
  weight.name = "experts.{}.weight";
  weight.slices = 2;
  weight.sourceShape = {4, 4};
  weight.stacked = true;
  weight.logicalShape = {2, 4, 4};
  weight.packedSliceBytes = 64;
  weight.pack = "moira_pack_weight";
  weight.layout = "transposed";
  ParameterSpec bias;
  bias.name = "bias";
  bias.sourceShape = {4};
  bias.logicalShape = {4};
  bias.packedSliceBytes = 16;
  bias.pack = "moira_pack_bias";
  bias.layout = "plain";
  manifest.parameters = {weight, bias};
  return manifest;
}

Manifest test::ranksManifest() {
  Manifest manifest;
  manifest.version = "0.1.0";
  manifest.module = "ranks.mlir";
  EntrySpec entry;
  entry.name = "main";
  entry.ranks = TEST_RANKS;
  entry.inputs = {{"x", DataType::F32, {-1, TEST_FEATURES}}};
  entry.results = {{"", DataType::F32, {-1, TEST_FEATURES}}};
  const int64_t rowBytes = TEST_FEATURES * sizeof(float);
  LayerSpec layer;
  layer.experts = TEST_EXPERTS;
  layer.topK = 1;
  layer.flopsPerRow = 2 * TEST_FEATURES;
  layer.placement = LayerPlacement{TEST_EXPERTS, 1, 1, TEST_SLOTS};
  LayerCostSpec cost;
  cost.rowBytes = cost.resultBytes = cost.partialBytes = rowBytes;
  cost.resultGradientBytes = cost.rowGradientBytes = rowBytes;
  cost.hiddenBytes = rowBytes;
  cost.weights = {{0, rowBytes, rowBytes, false}};
  layer.cost = cost;
  entry.layers = {layer};
  VariantSpec variant;
  variant.name = "equal";
  variant.step = "moira_step_ranks";
  variant.workspace = "moira_workspace_ranks";
  variant.schedule = "equal";
  variant.copies = 1;
  entry.variants = {variant};
  variant.name = variant.schedule = "groups";
  variant.step = "moira_step_ranks_groups";
  entry.variants.push_back(variant);
  manifest.entries = {entry};
  ParameterSpec weight;
  weight.name = "experts.{}.scale";
  weight.slices = TEST_SLOTS;
  weight.sourceShape = {TEST_FEATURES};
  weight.stacked = true;
  weight.logicalShape = {TEST_EXPERTS, TEST_FEATURES};
  weight.packedSliceBytes = rowBytes;
  weight.pack = "moira_pack_scale";
  weight.layout = "plain";
  weight.placement = ParameterPlacement{TEST_EXPERTS, 1, -1, 1, false};
  manifest.parameters = {weight};
  return manifest;
}

static std::shared_ptr<const Program> link(Manifest manifest,
                                           std::map<std::string, void *> code) {
  auto program =
      Program::create(std::move(manifest), [&](const char *symbol) -> void * {
        auto found = code.find(symbol);
        return found == code.end() ? nullptr : found->second;
      });
  EXPECT_OK(program.status());
  return program.ok() ? *program : nullptr;
}

template <typename Function> static void *address(Function *function) {
  return reinterpret_cast<void *>(function);
}

std::shared_ptr<const Program> test::testProgram() {
  return link(testManifest(),
              {{"moira_step_main_decode", address(moira_step_main_decode)},
               {"moira_step_main_prefill", address(moira_step_main_prefill)},
               {"moira_workspace_main", address(moira_workspace_main)},
               {"moira_pack_weight", address(moira_pack_weight)},
               {"moira_pack_bias", address(moira_pack_bias)}});
}

static int64_t noWorkspace(moira_ctx *, const moira_buffer *) { return 0; }

std::shared_ptr<const Program>
test::entryProgram(moira_step_entry step, int results,
                   moira_workspace_entry workspace) {
  Manifest manifest;
  EntrySpec entry;
  entry.name = "main";
  entry.inputs = {{"x", DataType::F32, {-1}}};
  entry.results.assign(results, {"", DataType::F32, {-1}});
  entry.layers = {{TEST_LAYER, 2, 1, 0, {}}};
  entry.variants = {{"only", "any", 0, "step", "workspace", "", "", ""}};
  manifest.entries = {entry};
  return link(manifest,
              {{"step", address(step)},
               {"workspace", address(workspace ? workspace : noWorkspace)}});
}

std::unique_ptr<Session>
test::testSession(std::shared_ptr<const Program> program,
                  const SessionOptions &options) {
  auto session = Session::create(std::move(program), options);
  EXPECT_OK(session.status());
  if (!session.ok())
    return nullptr;
  EXPECT_OK((*session)->bindRandom(1));
  return std::move(*session);
}

TestWeights TestWeights::integers() {
  TestWeights weights;
  for (int i = 0; i < 32; ++i)
    weights.weight.push_back(float(i * 7 % 11 - 5));
  for (int i = 0; i < 4; ++i)
    weights.bias.push_back(float(i - 2));
  return weights;
}

void TestWeights::bind(Session &session) const {
  EXPECT_OK(session.bind("experts.{}.weight", view(weight, {2, 4, 4})));
  EXPECT_OK(session.bind("bias", view(bias, {4})));
}

std::vector<float> TestWeights::expect(const std::vector<float> &x) const {
  std::vector<float> y;
  for (size_t r = 0; r < x.size() / 4; ++r)
    for (int n = 0; n < 4; ++n) {
      float sum = bias[n];
      for (int k = 0; k < 4; ++k)
        sum += x[r * 4 + k] * weight[(r % 2) * 16 + n * 4 + k];
      y.push_back(sum);
    }
  return y;
}

TensorView test::view(const std::vector<float> &data, Shape shape) {
  return {DataType::F32, std::move(shape), data.data()};
}

std::vector<float> test::values(const ResultTensor &result) {
  int64_t count = 1;
  for (int64_t dim : result.shape)
    count *= dim;
  std::vector<float> copy(count);
  if (count)
    std::memcpy(copy.data(), result.data, count * sizeof(float));
  return copy;
}

std::vector<float> test::integerRows(int64_t rows, int64_t features) {
  std::vector<float> x;
  for (int64_t i = 0; i < rows * features; ++i)
    x.push_back(float(i * 5 % 13 - 6));
  return x;
}
