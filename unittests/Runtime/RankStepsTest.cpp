// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions that are ranks: a layer written by hand, as the compiler would make
// it, whose experts scale rows. What a plan changes and what it does not.

#include "Collective/Threads.h"
#include "Runtime/MemorySource.h"
#include "Runtime/TestProgram.h"

#include <atomic>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

constexpr int ranks = 2, experts = 4, slots = 3, features = 4;
constexpr int64_t rowBytes = features * sizeof(float);

/// Where each rank's step saw its weights.
std::atomic<const void *> seenWeights[ranks];

/// What the rows of a chunk go through: rows of slot l times weight l.
void scale(float *rows, const int32_t *groups, const float *weights) {
  for (int slot = 0; slot < slots; ++slot)
    for (int32_t i = 0; i < groups[slot]; ++i)
      for (int k = 0; k < features; ++k)
        *rows++ *= weights[slot * features + k];
}

/// Row t goes to expert t % experts: y[t] = x[t] * weight[t % experts].
void step(moira_ctx *ctx, const moira_buffer *inputs) {
  const moira_api &api = *ctx->api;
  int64_t rows = inputs[0].shape[0];
  auto *x = static_cast<const float *>(inputs[0].data);
  auto *weights = static_cast<const float *>(ctx->params[0].data);
  seenWeights[ctx->rank] = weights;
  int32_t counts[experts] = {}, matrix[ranks * experts];
  for (int64_t t = 0; t < rows; ++t)
    ++counts[t % experts];
  api.gather_counts(ctx, 0, experts, counts, matrix);

  auto *home = static_cast<float *>(api.alloc(ctx, 0, rows * rowBytes));
  int64_t shape[2] = {rows, features};
  auto *y = static_cast<float *>(api.result(ctx, 0, 2, shape));
  if (!home || !y)
    return;
  float *next = home;
  for (int e = 0; e < experts; ++e)
    for (int64_t t = e; t < rows; t += experts, next += features)
      std::memcpy(next, x + t * features, rowBytes);

  moira_exchange exchange{};
  exchange.placement = {experts, 1, 1, slots};
  exchange.schedule = MOIRA_SCHEDULE_EQUAL;
  exchange.chunks = api.chunks(ctx, 0, MOIRA_SCHEDULE_EQUAL);
  exchange.counts = matrix;
  exchange.home = home;
  exchange.home_rows = rows;
  exchange.row_bytes = rowBytes;
  for (; exchange.chunk < exchange.chunks; ++exchange.chunk) {
    int32_t groups[slots];
    exchange.direction = MOIRA_TO_EXPERTS;
    int64_t arriving = api.receive_sizes(ctx, &exchange, groups);
    exchange.away = api.alloc(ctx, 0, arriving * rowBytes);
    if (!exchange.away)
      return;
    api.wait(ctx, api.exchange(ctx, &exchange));
    scale(static_cast<float *>(exchange.away), groups, weights);
    exchange.direction = MOIRA_TO_TOKENS;
    api.wait(ctx, api.exchange(ctx, &exchange));
  }
  next = home;
  for (int e = 0; e < experts; ++e)
    for (int64_t t = e; t < rows; t += experts, next += features)
      std::memcpy(y + t * features, next, rowBytes);
}

int64_t workspace(moira_ctx *, const moira_buffer *) { return -1; }

void pack(moira_ctx *, const void *source, void *packed) {
  std::memcpy(packed, source, rowBytes);
}

std::shared_ptr<const Program> makeProgram() {
  Manifest manifest;
  EntrySpec entry;
  entry.name = "main";
  entry.ranks = ranks;
  entry.inputs = {{"x", DataType::F32, {-1, features}}};
  entry.results = {{"", DataType::F32, {-1, features}}};
  entry.layers = {{0, experts, 1, 0, LayerPlacement{experts, 1, 1, slots}}};
  entry.variants = {{"only", "", 0, "step", "workspace", "", "", "equal"}};
  manifest.entries = {entry};
  ParameterSpec weight;
  weight.name = "w";
  weight.slices = slots;
  weight.sourceShape = {features};
  weight.logicalShape = {experts, features};
  weight.packedSliceBytes = rowBytes;
  weight.pack = "pack";
  weight.placement = ParameterPlacement{experts, 1, -1, 1, false};
  manifest.parameters = {weight};
  auto program = Program::create(manifest, [](const char *symbol) -> void * {
    if (!std::strcmp(symbol, "step"))
      return reinterpret_cast<void *>(step);
    if (!std::strcmp(symbol, "workspace"))
      return reinterpret_cast<void *>(workspace);
    return reinterpret_cast<void *>(pack);
  });
  EXPECT_OK(program.status());
  return *program;
}

/// Weights of all experts, and what rank `rank` computes of `x`.
std::vector<float> weightValues() { return integerRows(experts, features); }

std::vector<float> expect(const std::vector<float> &x) {
  std::vector<float> weights = weightValues(), y = x;
  for (size_t i = 0; i < y.size(); ++i)
    y[i] *= weights[i / features % experts * features + i % features];
  return y;
}

/// Other tokens on each rank.
std::vector<float> tokensOf(int rank) {
  std::vector<float> x = integerRows(rank == 0 ? 13 : 6, features);
  for (float &value : x)
    value += float(rank);
  return x;
}

/// A rank's session, on which plans are tried.
struct RankSession {
  explicit RankSession(Communicator &group) : rank(group.rank()) {
    SessionOptions options;
    options.threads = 1;
    // The test's own communicator ends after the session.
    options.communicator = std::shared_ptr<Communicator>(&group, [](auto *) {});
    auto created = Session::create(makeProgram(), options);
    EXPECT_OK(created.status());
    session = std::move(*created);
  }
  void bind() {
    std::vector<float> weights = weightValues();
    EXPECT_OK(session->bind("w", view(weights, {experts, features})));
  }
  void run() {
    std::vector<float> x = tokensOf(rank);
    std::vector<ResultTensor> results;
    int64_t rows = x.size() / features;
    EXPECT_OK(session->invoke("main", {view(x, {rows, features})}, results));
    if (results.size() == 1)
      EXPECT_EQ(values(results[0]), expect(x));
  }
  int rank;
  std::unique_ptr<Session> session;
};

} // namespace

TEST(RankSteps, PlansChangeNoBitAndMoveNoWeights) {
  expectRanks(ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    rank.bind();
    rank.run();
    const void *weights = seenWeights[rank.rank];
    for (int32_t degree : {1, 2, 4, 8})
      for (int32_t exchange : {0, 1}) {
        EXPECT_OK(rank.session->setPlan({degree, exchange, {}}));
        EXPECT_TRUE(rank.session->unbound().empty());
        rank.run();
        EXPECT_EQ(seenWeights[rank.rank], weights);
      }
    for (std::vector<int32_t> table : {std::vector<int32_t>{3, 1, -1, 2, 0, -1},
                                       {-1, -1, 3, 0, 1, 2},
                                       {0, 1, 2, 1, 3, 0}}) {
      EXPECT_OK(rank.session->setPlan({2, 0, table}));
      rank.bind();
      rank.run();
      EXPECT_EQ(seenWeights[rank.rank], weights);
    }
    return Status();
  });
}

TEST(RankSteps, WeightsComeFromTheSourceByShard) {
  expectRanks(ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    MemorySource source;
    source.add("w", weightValues(), {experts, features});
    EXPECT_OK(rank.session->bindSource(source));
    // Two experts each; the last slots hold nothing.
    EXPECT_EQ(rank.session->readBytes(), 2 * rowBytes);
    rank.run();
    return Status();
  });
}

TEST(RankSteps, SteadyStepsAllocateNothing) {
  expectRanks(ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    rank.bind();
    for (int i = 0; i < 3; ++i)
      rank.run();
    MemoryFigures before = rank.session->memory();
    for (int i = 0; i < 10; ++i)
      rank.run();
    EXPECT_EQ(rank.session->memory().workspace, before.workspace);
    EXPECT_EQ(rank.session->memory().parameters, before.parameters);
    return Status();
  });
}

TEST(RankSteps, AnEntryIsForItsNumberOfRanks) {
  auto session = Session::create(makeProgram());
  ASSERT_OK(session.status());
  EXPECT_OK((*session)->bindRandom(1));
  std::vector<float> x = tokensOf(0);
  std::vector<ResultTensor> results;
  EXPECT_ERROR((*session)->invoke("main", {view(x, {13, 4})}, results),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': expected 2 ranks, as the entry was compiled for, "
               "got 1");
}

TEST(RankSteps, TablesThatDoNotFitAreRefusedBeforeAStep) {
  expectRanks(ranks, {}, [](Communicator &group) {
    RankSession rank(group);
    rank.bind();
    EXPECT_ERROR(rank.session->setPlan({1, 0, {0, 1, 2, 3}}),
                 MOIRA_INVALID_ARGUMENT,
                 "layer 0: expected a slot table of 2 ranks with 3 slots each, "
                 "got 4 places");
    rank.run();
    return Status();
  });
}
