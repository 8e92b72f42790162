// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Router, bookkeeping and movement kernels on the emulated device.

#include "GPU/Harness.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

#include "mlir/AsmParser/AsmParser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
namespace moe = mlir::moe;

namespace {
/// One kernel, compiled.
class RoutingRun {
public:
  template <typename Build> explicit RoutingRun(Build build) {
    mlir::MLIRContext &own = context.get();
    mlir::Location loc = mlir::UnknownLoc::get(&own);
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
    mlir::OpBuilder b(module->getBodyRegion());
    build(mlir::gpu::GPUModuleOp::create(b, loc, "kernels"), b);
    image = EmulatedImage::compile(*module);
    EXPECT_TRUE(image) << context.errors;
  }

  /// Runs with all checks; `seed` also picks the number of blocks.
  void run(EmulatedDevice &device, const char *name,
           const std::vector<KernelArgument> &arguments,
           int64_t sharedBytes = 0, int32_t blocks = 3) {
    LaunchShape shape;
    shape.grid.x = blocks;
    shape.block.x = int32_t(moe::kRoutingThreads);
    shape.dynamicShared = sharedBytes;
    Status status = launchAndWait(device, *image, name, shape, arguments);
    EXPECT_TRUE(status.ok()) << status.message;
  }

private:
  GPUContext context;
  std::unique_ptr<EmulatedImage> image;
};
} // namespace

static std::unique_ptr<EmulatedDevice> openChecked(uint64_t seed) {
  EmulatedOptions options;
  options.checks = emulator::Checks::all();
  options.seed = seed;
  return openEmulated(options);
}

static KernelArgument word(const int32_t &value) {
  return KernelArgument::of(value);
}

static KernelArgument place(const DeviceArray &array) {
  return KernelArgument::of(array.memory);
}

//===----------------------------------------------------------------------===//
// gate
//===----------------------------------------------------------------------===//

namespace {
struct GateCase {
  const char *name;
  const char *router;
  int64_t experts, choices;
  bool bias = false;
};
void PrintTo(const GateCase &gate, std::ostream *stream) {
  *stream << gate.name;
}
} // namespace

static const GateCase gateCases[] = {
    {"Softmax", "#moe.router<normalize = max_sum_eps>", 8, 2},
    {"SoftmaxWide", "#moe.router<>", 128, 8},
    {"OddExperts", "#moe.router<normalize = max_sum_eps>", 37, 5},
    {"AfterTopK", "#moe.router<after_top_k>", 64, 4},
    {"SigmoidBias", "#moe.router<score = sigmoid, normalize = sum_plus_eps>",
     96, 6, true},
    {"SqrtSoftplus", "#moe.router<score = sqrtsoftplus>", 33, 3},
    {"OneExpert", "#moe.router<normalize = max_sum_eps>", 1, 1},
    {"All", "#moe.router<score = identity>", 16, 16},
};

class GateKernelTest : public testing::TestWithParam<GateCase> {};

INSTANTIATE_TEST_SUITE_P(All, GateKernelTest, testing::ValuesIn(gateCases),
                         [](const auto &info) { return info.param.name; });

static double scoreOf(moe::Score score, double x) {
  switch (score) {
  case moe::Score::Sigmoid:
    return 1 / (1 + std::exp(-x));
  case moe::Score::SqrtSoftplus:
    return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
  default:
    return x;
  }
}

/// ids and weights of one token, in doubles.
static void expectGate(moe::RouterAttr router, const float *logits,
                       const float *bias, int64_t E, int64_t K,
                       std::vector<int32_t> &ids,
                       std::vector<double> &weights) {
  double lowest = -INFINITY;
  std::vector<double> clean(E), values(E), keys(E);
  for (int64_t e = 0; e < E; ++e)
    clean[e] = std::isnan(logits[e]) ? lowest : logits[e];
  bool softmax = router.getScore() == moe::Score::Softmax;
  auto soften = [&](std::vector<double> &row) {
    double top = *std::max_element(row.begin(), row.end()), sum = 0;
    for (double &x : row)
      sum += x = top == lowest ? 0 : std::exp(x - top);
    for (double &x : row)
      x /= sum == 0 ? 1 : sum;
  };
  for (int64_t e = 0; e < E; ++e)
    values[e] =
        router.getAfterTopK() ? clean[e] : scoreOf(router.getScore(), clean[e]);
  if (softmax && !router.getAfterTopK())
    soften(values);
  for (int64_t e = 0; e < E; ++e)
    keys[e] = clean[e] == lowest ? lowest
                                 : values[e] + (bias ? double(bias[e]) : 0.0);
  std::vector<int32_t> order(E);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int x, int y) {
    return keys[x] != keys[y] ? keys[x] > keys[y] : x < y;
  });
  ids.assign(order.begin(), order.begin() + K);
  weights.clear();
  for (int32_t id : ids)
    weights.push_back(keys[id] != lowest      ? values[id]
                      : router.getAfterTopK() ? lowest
                                              : 0);
  if (router.getAfterTopK()) {
    if (softmax)
      soften(weights);
    else
      for (double &w : weights)
        w = scoreOf(router.getScore(), w);
  }
  if (router.getNormalize() == moe::Normalize::None)
    return;
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double eps = router.getEps().convertToDouble();
  sum = router.getNormalize() == moe::Normalize::SumPlusEps
            ? sum + eps
            : std::max(sum, eps);
  for (double &w : weights)
    w = sum == 0 ? 0 : w / sum;
}

TEST_P(GateKernelTest, choosesAndWeighs) {
  const GateCase &gate = GetParam();
  GPUContext context;
  moe::GateKernel kernel;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    kernel.name = "gate";
    kernel.router = llvm::cast<moe::RouterAttr>(
        mlir::parseAttribute(gate.router, b.getContext()));
    kernel.logits = b.getF32Type();
    kernel.experts = gate.experts;
    kernel.choices = gate.choices;
    kernel.bias = gate.bias;
    moe::buildGateKernel(module, kernel);
  });
  int64_t E = gate.experts, K = gate.choices, T = 19;
  std::vector<float> logits(T * E), bias(E);
  std::mt19937 random(5);
  for (float &x : logits)
    x = float(int(random() % 4001) - 2000) / 500;
  for (float &x : bias)
    x = float(random() % 100) / 400;
  // A tie, NaN and -inf, and a token of nothing else.
  if (E > 2) {
    logits[E] = logits[E + 2] = 4.5f;
    logits[2 * E] = NAN;
    logits[2 * E + 1] = -INFINITY;
  }
  std::fill_n(logits.begin() + 3 * E, E, NAN);
  std::fill_n(logits.begin() + 4 * E, E, -INFINITY);
  for (uint64_t seed : {0, 9}) {
    auto device = openChecked(seed);
    DeviceArray l(*device, logits), bb(*device, bias), ids(*device, T * K * 4),
        weights(*device, T * K * 4);
    int32_t tokens = int32_t(T);
    std::vector<KernelArgument> arguments = {place(l)};
    if (gate.bias)
      arguments.push_back(place(bb));
    arguments.insert(arguments.end(),
                     {place(ids), place(weights), word(tokens)});
    run.run(*device, "gate", arguments, kernel.sharedBytes(), seed ? 2 : 9);
    std::vector<int32_t> gotIds = ids.values<int32_t>(), expectedIds;
    std::vector<float> gotWeights = weights.values<float>();
    std::vector<double> expectedWeights;
    for (int64_t t = 0; t < T; ++t) {
      expectGate(kernel.router, &logits[t * E],
                 gate.bias ? bias.data() : nullptr, E, K, expectedIds,
                 expectedWeights);
      for (int64_t j = 0; j < K; ++j) {
        ASSERT_EQ(gotIds[t * K + j], expectedIds[j])
            << "token " << t << ", choice " << j;
        double expected = expectedWeights[j], got = gotWeights[t * K + j];
        if (std::isfinite(expected))
          ASSERT_NEAR(got, expected, std::fabs(expected) * 1e-6 + 1e-12)
              << "token " << t << ", choice " << j;
        else
          ASSERT_EQ(got, expected) << "token " << t << ", choice " << j;
      }
    }
  }
}

TEST(GateKernelsTest, noTokens) {
  moe::GateKernel kernel;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    kernel.name = "gate";
    kernel.router = llvm::cast<moe::RouterAttr>(
        mlir::parseAttribute("#moe.router<>", b.getContext()));
    kernel.logits = b.getBF16Type();
    kernel.experts = 8;
    kernel.choices = 2;
    moe::buildGateKernel(module, kernel);
  });
  auto device = openChecked(0);
  DeviceArray empty(*device, 0);
  int32_t tokens = 0;
  run.run(*device, "gate",
          {place(empty), place(empty), place(empty), word(tokens)},
          kernel.sharedBytes());
}

//===----------------------------------------------------------------------===//
// count, assign, sources
//===----------------------------------------------------------------------===//

namespace {
struct AssignCase {
  const char *name;
  moe::Order order;
  int64_t tokens;
  int32_t capacity;
  bool padded;
};
void PrintTo(const AssignCase &assign, std::ostream *stream) {
  *stream << assign.name;
}
} // namespace

static const AssignCase assignCases[] = {
    {"ChoiceMajor", moe::Order::ChoiceMajor, 50, INT32_MAX, false},
    {"TokenMajor", moe::Order::TokenMajor, 50, INT32_MAX, false},
    {"Capacity", moe::Order::ChoiceMajor, 50, 7, false},
    {"CapacityTokens", moe::Order::TokenMajor, 50, 3, false},
    {"Padded", moe::Order::ChoiceMajor, 40, 9, true},
    {"NoRoom", moe::Order::TokenMajor, 5, 0, true},
    {"NoTokens", moe::Order::ChoiceMajor, 0, INT32_MAX, false},
    {"OneToken", moe::Order::ChoiceMajor, 1, INT32_MAX, false},
};

class AssignKernelTest : public testing::TestWithParam<AssignCase> {};

INSTANTIATE_TEST_SUITE_P(All, AssignKernelTest, testing::ValuesIn(assignCases),
                         [](const auto &info) { return info.param.name; });

TEST_P(AssignKernelTest, givesEveryPairItsRow) {
  const AssignCase &assign = GetParam();
  int64_t T = assign.tokens, K = 3, E = 6;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
    moe::AssignKernel kernel{"sizes", assign.order, E, K, assign.padded};
    moe::buildCountKernel(module, kernel);
    kernel.name = "assign";
    moe::buildAssignKernel(module, kernel);
    moe::buildClearKernel(module, "clear");
    moe::buildSourcesKernel(module, "sources");
  });
  // Expert 4 gets nothing; some choices are unused.
  std::vector<int32_t> ids(T * K);
  std::mt19937 random(3);
  for (int32_t &id : ids) {
    id = int32_t(random() % E);
    if (id == 4)
      id = random() % 2 ? -1 : 0;
  }
  // The answer, one pair after the other.
  std::vector<int32_t> sizes(E), places(T * K, -1), slots(T * K, -1);
  for (int64_t q = 0; q < T * K; ++q) {
    int64_t pair = assign.order == moe::Order::TokenMajor
                       ? q
                       : q % T * K + q / std::max<int64_t>(T, 1);
    if (ids[pair] >= 0 && sizes[ids[pair]] < assign.capacity)
      places[pair] = sizes[ids[pair]]++;
  }
  for (int64_t pair = 0; pair < T * K; ++pair)
    if (places[pair] >= 0)
      slots[pair] =
          places[pair] +
          (assign.padded
               ? ids[pair] * assign.capacity
               : std::accumulate(sizes.begin(), sizes.begin() + ids[pair], 0));
  int64_t bound = assign.padded ? E * assign.capacity : T * K;
  std::vector<int32_t> sources(bound, -1);
  for (int64_t pair = 0; pair < T * K; ++pair)
    if (slots[pair] >= 0)
      sources[slots[pair]] = int32_t(pair / K);

  for (uint64_t seed : {0, 4}) {
    auto device = openChecked(seed);
    DeviceArray i(*device, ids), n(*device, E * 4), s(*device, T * K * 4),
        r(*device, bound * 4);
    int32_t tokens = int32_t(T), pairs = int32_t(T * K), rows = int32_t(bound),
            choices = int32_t(K);
    run.run(*device, "sizes",
            {place(i), place(n), word(tokens), word(assign.capacity)});
    run.run(
        *device, "assign",
        {place(i), place(n), place(s), word(tokens), word(assign.capacity)});
    run.run(*device, "clear", {place(r), word(rows)});
    run.run(*device, "sources",
            {place(s), place(r), word(pairs), word(rows), word(choices)});
    EXPECT_EQ(n.values<int32_t>(), sizes);
    EXPECT_EQ(s.values<int32_t>(), slots);
    EXPECT_EQ(r.values<int32_t>(), sources);
  }
}

//===----------------------------------------------------------------------===//
// dispatch, combine
//===----------------------------------------------------------------------===//

namespace {
struct MoveCase {
  const char *name;
  int bits; ///< 32: f32, 16: bf16, -16: f16
  int64_t features;
  bool weights;
};
void PrintTo(const MoveCase &move, std::ostream *stream) {
  *stream << move.name;
}
} // namespace

static const MoveCase moveCases[] = {
    {"F32", 32, 40, true},       {"BF16", 16, 72, true},
    {"F16", -16, 64, false},     {"Plain", 16, 520, false},
    {"OddBF16", 16, 71, true},   {"OddF32", 32, 3, false},
    {"OneFeature", 16, 1, true},
};

class MovementKernelTest : public testing::TestWithParam<MoveCase> {};

INSTANTIATE_TEST_SUITE_P(All, MovementKernelTest, testing::ValuesIn(moveCases),
                         [](const auto &info) { return info.param.name; });

TEST_P(MovementKernelTest, movesRowsAndSumsThem) {
  const MoveCase &move = GetParam();
  int64_t T = 21, K = 3, D = move.features, R = 45;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    moe::MovementKernel kernel;
    kernel.element = move.bits == 32   ? mlir::Type(b.getF32Type())
                     : move.bits == 16 ? mlir::Type(b.getBF16Type())
                                       : mlir::Type(b.getF16Type());
    kernel.features = D;
    kernel.choices = K;
    kernel.weights = move.weights;
    kernel.name = "dispatch";
    moe::buildDispatchKernel(module, kernel);
    kernel.name = "combine";
    moe::buildCombineKernel(module, kernel);
  });
  int64_t bytes = std::abs(move.bits) / 8;
  // Small integers and halves: exact in every type.
  auto encode = [&](float value, unsigned char *to) {
    if (move.bits == 32) {
      memcpy(to, &value, 4);
    } else if (move.bits == -16) {
      _Float16 half = _Float16(value);
      memcpy(to, &half, 2);
    } else {
      memcpy(to, reinterpret_cast<unsigned char *>(&value) + 2, 2);
    }
  };
  auto decode = [&](const unsigned char *from) {
    float value = 0;
    if (move.bits == 32) {
      memcpy(&value, from, 4);
    } else if (move.bits == -16) {
      _Float16 half;
      memcpy(&half, from, 2);
      value = float(half);
    } else {
      memcpy(reinterpret_cast<unsigned char *>(&value) + 2, from, 2);
    }
    return value;
  };
  std::mt19937 random(8);
  std::vector<int32_t> slots(T * K, -1), free(R);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  for (int32_t &slot : slots)
    if (random() % 4 && free.size() > 2) {
      slot = free.back();
      free.pop_back();
    }
  std::fill_n(slots.begin() + K, K, -1); // a token without rows
  slots[3 * K] = int32_t(R);             // no row
  std::vector<float> weights(T * K);
  for (float &w : weights)
    w = float(random() % 5) * 0.5f;
  std::vector<unsigned char> x(T * D * bytes);
  std::vector<float> values(T * D);
  for (int64_t i = 0; i < T * D; ++i) {
    values[i] = float(int(random() % 9) - 4);
    encode(values[i], &x[i * bytes]);
  }
  for (uint64_t seed : {0, 6}) {
    auto device = openChecked(seed);
    DeviceArray dx(*device, x), ds(*device, slots), dw(*device, weights),
        rows(*device, R * D * bytes), dy(*device, T * D * bytes);
    int32_t tokens = int32_t(T), bound = int32_t(R);
    auto with = [&](const DeviceArray &from, const DeviceArray &to) {
      std::vector<KernelArgument> arguments = {place(from), place(ds)};
      if (move.weights)
        arguments.push_back(place(dw));
      arguments.insert(arguments.end(), {place(to), word(tokens), word(bound)});
      return arguments;
    };
    run.run(*device, "dispatch", with(dx, rows));
    run.run(*device, "combine", with(rows, dy));
    auto gotRows = rows.values<unsigned char>();
    auto got = dy.values<unsigned char>();
    std::vector<bool> used(R, false);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t d = 0; d < D; ++d) {
        float sum = 0;
        for (int64_t j = 0; j < K; ++j) {
          int32_t slot = slots[t * K + j];
          if (slot < 0 || slot >= R)
            continue;
          used[slot] = true;
          float weight = move.weights ? weights[t * K + j] : 1;
          float row = weight * values[t * D + d];
          ASSERT_EQ(decode(&gotRows[(slot * D + d) * bytes]), row);
          sum += weight * row;
        }
        ASSERT_EQ(decode(&got[(t * D + d) * bytes]), sum)
            << "token " << t << ", feature " << d;
      }
    for (int64_t r = 0; r < R; ++r)
      for (int64_t i = 0; i < D * bytes && !used[r]; ++i)
        ASSERT_EQ(gotRows[r * D * bytes + i], 0xff) << "row " << r;
    emulator::Counters counters = device->takeReport().counters;
    if (D * bytes % 32 == 0)
      EXPECT_EQ(counters.sectors, counters.neededSectors);
  }
}
