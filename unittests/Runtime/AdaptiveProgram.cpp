// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Runtime/AdaptiveProgram.h"

#include "base/Draws.h"

#include <cmath>
#include <cstring>
#include <map>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

using P = AdaptiveProgram;
static constexpr int64_t rowBytes = P::features * sizeof(float);

std::atomic<const void *> AdaptiveProgram::seenWeights[ranks];
std::atomic<int> AdaptiveProgram::seenVariant[ranks];

/// The expert of a row in a layer: of its first element's magnitude.
static int expertOf(float first, int layer) {
  int number = int(std::fabs(first));
  return (number + 3 * layer) % P::experts;
}

static void scale(float *row, const float *weight) {
  for (int k = 0; k < P::features; ++k)
    row[k] *= weight[k];
}

namespace {
/// One layer of a step.
struct LayerStep {
  moira_ctx *ctx;
  int layer;
  int64_t count;
  const float *keys; ///< first elements of the program's rows
  const float *in;   ///< [count, features]
  float *out;
  int32_t matrix[P::ranks * P::experts] = {};
  float *home = nullptr;

  bool route() {
    const moira_api &api = *ctx->api;
    api.enter(ctx, layer, MOIRA_PART_GATE);
    int32_t counts[P::experts] = {};
    for (int64_t t = 0; t < count; ++t)
      ++counts[expertOf(keys[t * P::features], layer)];
    api.loads(ctx, layer, P::experts, counts, counts);
    api.gather_counts(ctx, layer, P::experts, counts, matrix);
    home = static_cast<float *>(api.alloc(ctx, 0, count * rowBytes));
    return home != nullptr;
  }
  /// Rows by expert, to `home` or back.
  void permute(bool there) {
    float *next = home;
    for (int e = 0; e < P::experts; ++e)
      for (int64_t t = 0; t < count; ++t) {
        if (expertOf(keys[t * P::features], layer) != e)
          continue;
        std::memcpy(there ? next : out + t * P::features,
                    there ? in + t * P::features : next, rowBytes);
        next += P::features;
      }
  }
};
} // namespace

/// Rows go to experts and back.
static bool exchangeRows(LayerStep &step, int schedule) {
  moira_ctx *ctx = step.ctx;
  const moira_api &api = *ctx->api;
  auto *weights = static_cast<const float *>(ctx->params[step.layer].data);
  moira_exchange exchange{};
  exchange.layer = step.layer;
  exchange.placement = {P::experts, 1, 1, P::slots};
  exchange.schedule = schedule;
  exchange.chunks = api.chunks(ctx, step.layer, schedule);
  exchange.counts = step.matrix;
  exchange.home = step.home;
  exchange.home_rows = step.count;
  exchange.row_bytes = rowBytes;
  for (; exchange.chunk < exchange.chunks; ++exchange.chunk) {
    int32_t groups[P::slots];
    exchange.direction = MOIRA_TO_EXPERTS;
    int64_t arriving = api.receive_sizes(ctx, &exchange, groups);
    exchange.away = api.alloc(ctx, 0, arriving * rowBytes);
    if (!exchange.away)
      return false;
    api.wait(ctx, api.exchange(ctx, &exchange));
    api.enter(ctx, step.layer, MOIRA_PART_EXPERT);
    auto *row = static_cast<float *>(exchange.away);
    for (int slot = 0; slot < P::slots; ++slot)
      for (int32_t i = 0; i < groups[slot]; ++i, row += P::features)
        scale(row, weights + slot * P::features);
    exchange.direction = MOIRA_TO_TOKENS;
    api.wait(ctx, api.exchange(ctx, &exchange));
  }
  return true;
}

/// All experts come, rows stay.
static bool gatherExperts(LayerStep &step) {
  moira_ctx *ctx = step.ctx;
  const moira_api &api = *ctx->api;
  float all[P::experts * P::features];
  moira_gather gather{};
  gather.layer = step.layer;
  gather.placement = {P::experts, 1, 0, P::slots};
  gather.parameter = step.layer;
  gather.local = ctx->params[step.layer].data;
  gather.whole = all;
  gather.bytes = rowBytes;
  api.wait(ctx, api.gather_weights(ctx, &gather));
  api.enter(ctx, step.layer, MOIRA_PART_EXPERT);
  float *row = step.home;
  for (int e = 0; e < P::experts; ++e)
    for (int64_t t = 0; t < step.count; ++t)
      if (expertOf(step.keys[t * P::features], step.layer) == e) {
        scale(row, all + e * P::features);
        row += P::features;
      }
  return true;
}

template <int variant, int copies, int schedule>
static void runStep(moira_ctx *ctx, const moira_buffer *inputs) {
  int64_t count = inputs[0].shape[0];
  auto *x = static_cast<const float *>(inputs[0].data);
  P::seenWeights[ctx->rank] = ctx->params[0].data;
  P::seenVariant[ctx->rank] = variant;
  int64_t shape[2] = {count, P::features};
  auto *y = static_cast<float *>(ctx->api->result(ctx, 0, 2, shape));
  auto *between =
      static_cast<float *>(ctx->api->alloc(ctx, 0, count * rowBytes));
  if (!y || !between)
    return;
  for (int layer = 0; layer < P::layers; ++layer) {
    LayerStep step{
        ctx, layer, count, x, layer ? between : x, layer ? y : between};
    if (!step.route())
      return;
    step.permute(true);
    if (!(copies == 0 ? gatherExperts(step) : exchangeRows(step, schedule)))
      return;
    step.permute(false);
    ctx->api->enter(ctx, -1, MOIRA_PART_OTHER);
  }
}

static int64_t workspace(moira_ctx *, const moira_buffer *) { return -1; }

static void pack(moira_ctx *, const void *source, void *packed) {
  std::memcpy(packed, source, rowBytes);
}

Manifest AdaptiveProgram::manifest(const char *gathered) {
  Manifest manifest;
  manifest.version = "0.1.0";
  EntrySpec entry;
  entry.name = "main";
  entry.ranks = ranks;
  entry.inputs = {{"x", DataType::F32, {-1, features}}};
  entry.results = {{"", DataType::F32, {-1, features}}};
  for (int layer = 0; layer < layers; ++layer) {
    LayerSpec spec{layer, experts, 1, 2 * features,
                   LayerPlacement{experts, 1, 0, slots}};
    LayerCostSpec cost;
    cost.rowBytes = cost.resultBytes = cost.partialBytes = rowBytes;
    cost.resultGradientBytes = cost.rowGradientBytes = rowBytes;
    cost.hiddenBytes = rowBytes;
    cost.weights = {{layer, rowBytes, rowBytes, false}};
    spec.cost = cost;
    entry.layers.push_back(spec);
    ParameterSpec weight;
    weight.name = concat("w", layer);
    weight.slices = slots;
    weight.sourceShape = {features};
    weight.logicalShape = {experts, features};
    weight.packedSliceBytes = rowBytes;
    weight.pack = "pack";
    weight.placement = ParameterPlacement{experts, 1, -1, 1, false};
    manifest.parameters.push_back(weight);
  }
  struct Kind {
    const char *name, *schedule;
    int copies;
  };
  for (Kind kind : {Kind{"r0", "equal", 0}, Kind{"r1", "equal", 1},
                    Kind{"r1-groups", "groups", 1}})
    for (bool many : {false, true}) {
      VariantSpec variant;
      variant.rowClass = many ? "prefill" : "decode";
      variant.name = concat(kind.name, "-", variant.rowClass);
      variant.minRows = many ? manyRows : 0;
      variant.step = concat("step", entry.variants.size());
      variant.workspace = "workspace";
      variant.numerics = kind.copies == 0 ? gathered : "f32";
      variant.qualified = many ? "twin" : "target";
      variant.schedule = kind.schedule;
      variant.copies = kind.copies;
      entry.variants.push_back(variant);
    }
  manifest.entries = {entry};
  return manifest;
}

std::shared_ptr<const Program> AdaptiveProgram::make(const char *gathered) {
  const std::map<std::string, moira_step_entry> steps = {
      {"step0", runStep<0, 0, MOIRA_SCHEDULE_EQUAL>},
      {"step1", runStep<1, 0, MOIRA_SCHEDULE_EQUAL>},
      {"step2", runStep<2, 1, MOIRA_SCHEDULE_EQUAL>},
      {"step3", runStep<3, 1, MOIRA_SCHEDULE_EQUAL>},
      {"step4", runStep<4, 1, MOIRA_SCHEDULE_GROUPS>},
      {"step5", runStep<5, 1, MOIRA_SCHEDULE_GROUPS>}};
  auto program =
      Program::create(manifest(gathered), [&](const char *symbol) -> void * {
        if (auto found = steps.find(symbol); found != steps.end())
          return reinterpret_cast<void *>(found->second);
        if (!std::strcmp(symbol, "workspace"))
          return reinterpret_cast<void *>(workspace);
        return reinterpret_cast<void *>(pack);
      });
  EXPECT_OK(program.status());
  return *program;
}

std::vector<float> AdaptiveProgram::weights(int layer) {
  std::vector<float> values;
  Draws draws({uint32_t(7 + layer), 1}, 0);
  for (int i = 0; i < experts * features; ++i)
    values.push_back(float(draws.uniform()) + 0.5f);
  return values;
}

void AdaptiveProgram::bind(Session &session) {
  for (int layer = 0; layer < layers; ++layer)
    EXPECT_OK(session.bind(concat("w", layer),
                           view(weights(layer), {experts, features})));
}

std::unique_ptr<Session> AdaptiveProgram::open(Communicator &group,
                                               SessionOptions options,
                                               const char *gathered) {
  options.threads = 1;
  options.communicator = std::shared_ptr<Communicator>(&group, [](auto *) {});
  auto created = Session::create(make(gathered), options);
  EXPECT_OK(created.status());
  bind(**created);
  return std::move(*created);
}

Status AdaptiveProgram::run(Session &session, const std::vector<float> &x) {
  std::vector<ResultTensor> results;
  MOIRA_RETURN_IF_ERROR(session.invoke(
      "main", {view(x, {int64_t(x.size()) / features, features})}, results));
  EXPECT_EQ(values(results[0]), expect(x));
  return Status();
}

std::vector<float> AdaptiveProgram::rows(int64_t count, uint64_t seed,
                                         int skew) {
  std::vector<float> x;
  Draws draws({uint32_t(seed), 2}, 0);
  for (int64_t t = 0; t < count; ++t)
    for (int k = 0; k < features; ++k) {
      double value = draws.uniform() * experts;
      bool hot = k == 0 && t % 4 < skew;
      x.push_back(float(hot ? value / experts : value));
    }
  return x;
}

std::vector<float> AdaptiveProgram::expect(const std::vector<float> &x) {
  std::vector<float> y = x;
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<float> w = weights(layer);
    for (size_t t = 0; t < x.size() / features; ++t)
      scale(&y[t * features], &w[expertOf(x[t * features], layer) * features]);
  }
  return y;
}
