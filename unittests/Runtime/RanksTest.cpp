// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of several ranks, seen from generated code and from sessions.

#include "Runtime/TestModule.h"
#include "Runtime/TestProgram.h"
#include "collective/InProcess.h"
#include "collective/VirtualClock.h"

#include <thread>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
constexpr int experts = 2;
constexpr int maxChunks = 8;

/// What a compiled layer does: row r goes to expert r % 2, which multiplies it
/// by its weight, expert + 1. Weights are gathered: r = 1.
struct LayerStep {
  LayerStep(moira_ctx *ctx, const moira_buffer *inputs)
      : ctx(ctx), x(static_cast<const float *>(inputs[0].data)),
        rows(inputs[0].shape[0]) {
    exchange.layer = TEST_LAYER;
    int shards = std::max(1, ctx->ranks / experts);
    exchange.placement = {experts, shards, 1,
                          ctx->plan->slot_table
                              ? ctx->plan->slots
                              : experts * shards / ctx->ranks};
    exchange.row_bytes = sizeof(float);
  }

  template <typename T> T *allocate(int64_t count) {
    return static_cast<T *>(ctx->api->alloc(ctx, 0, count * sizeof(T)));
  }

  int expertOf(int slot) const {
    int place = ctx->rank * exchange.placement.slots + slot;
    int unit = ctx->plan->slot_table ? ctx->plan->slot_table[place] : place;
    return unit < 0 ? 0 : unit / exchange.placement.shards;
  }

  void run(float *y) {
    const moira_api *api = ctx->api;
    int slots = exchange.placement.slots;
    auto *counts = allocate<int32_t>(experts);
    auto *matrix = allocate<int32_t>(experts * ctx->ranks);
    auto *home = allocate<float>(rows);
    auto *local = allocate<float>(slots);
    auto *whole = allocate<float>(slots * exchange.placement.shards);
    if (!whole)
      return;
    for (int slot = 0; slot < slots; ++slot)
      local[slot] = 1 + expertOf(slot);
    moira_gather gather{};
    gather.layer = TEST_LAYER;
    gather.placement = exchange.placement;
    gather.local = local;
    gather.whole = whole;
    gather.bytes = sizeof(float);
    int64_t weights = api->gather_weights(ctx, &gather);

    api->enter(ctx, TEST_LAYER, MOIRA_PART_DISPATCH);
    int64_t first = (rows + 1) / 2;
    counts[0] = static_cast<int32_t>(first);
    counts[1] = static_cast<int32_t>(rows - first);
    for (int64_t r = 0; r < rows; ++r)
      home[r % 2 * first + r / 2] = x[r];
    api->gather_counts(ctx, TEST_LAYER, experts, counts, matrix);
    exchange.counts = matrix;
    exchange.home = home;
    exchange.home_rows = rows;
    exchange.chunks = api->chunks(ctx, TEST_LAYER, MOIRA_SCHEDULE_EQUAL);
    exchange.direction = MOIRA_TO_EXPERTS;

    int32_t *sizes[maxChunks];
    float *away[maxChunks];
    int64_t tickets[maxChunks];
    for (int64_t i = 0; i < exchange.chunks; ++i) {
      exchange.chunk = i;
      sizes[i] = allocate<int32_t>(slots);
      if (!sizes[i])
        return;
      int64_t count = api->receive_sizes(ctx, &exchange, sizes[i]);
      exchange.away = away[i] = allocate<float>(count);
      tickets[i] = api->exchange(ctx, &exchange);
    }
    api->wait(ctx, weights);
    exchange.direction = MOIRA_TO_TOKENS;
    for (int64_t i = 0; i < exchange.chunks; ++i) {
      api->wait(ctx, tickets[i]);
      if (ctx->error)
        return;
      float *row = away[i];
      int parts = exchange.placement.shards;
      for (int slot = 0; slot < slots; ++slot)
        for (int32_t k = 0; k < sizes[i][slot]; ++k)
          *row++ *= whole[slot * parts + parts - 1];
      exchange.chunk = i;
      exchange.away = away[i];
      tickets[i] = api->exchange(ctx, &exchange);
    }
    for (int64_t i = 0; i < exchange.chunks; ++i)
      api->wait(ctx, tickets[i]);
    for (int64_t r = 0; r < rows; ++r)
      y[r] = home[r % 2 * first + r / 2];
  }

  moira_ctx *ctx;
  const float *x;
  int64_t rows;
  moira_exchange exchange{};
};

void layerStep(moira_ctx *ctx, const moira_buffer *inputs) {
  auto *y = static_cast<float *>(ctx->api->result(ctx, 0, 1, inputs[0].shape));
  if (y)
    LayerStep(ctx, inputs).run(y);
}

/// Sessions of a grid, each on its own thread.
void onRanks(int ranks,
             const std::function<void(Session &, Communicator &)> &body,
             moira_step_entry step = layerStep) {
  auto ends = makeInProcess(ranks);
  std::vector<std::thread> threads;
  auto program = entryProgram(step);
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.timeoutSeconds = 20;
      auto made = Communicator::create(std::move(ends[rank]), options);
      ASSERT_TRUE(made.ok());
      SessionOptions sessionOptions;
      sessionOptions.threads = 1;
      sessionOptions.communicator = std::move(*made);
      auto session = testSession(program, sessionOptions);
      body(*session, *sessionOptions.communicator);
    });
  for (std::thread &thread : threads)
    thread.join();
}

Status invoke(Session &session, int rank, std::vector<float> *y = nullptr) {
  std::vector<float> x = integerRows(5 + 2 * rank, 1);
  std::vector<ResultTensor> results;
  Status status =
      session.invoke("main", {view(x, {int64_t(x.size())})}, results);
  if (status.ok() && y)
    *y = values(results[0]);
  return status;
}

void expectLayer(Session &session, int rank) {
  std::vector<float> y, x = integerRows(5 + 2 * rank, 1);
  ASSERT_OK(invoke(session, rank, &y));
  for (size_t r = 0; r < x.size(); ++r)
    x[r] *= 1 + r % 2;
  EXPECT_EQ(y, x);
}
} // namespace

TEST(Ranks, OneRankNeedsNoCommunicator) {
  SessionOptions options;
  options.threads = 1;
  auto session = testSession(entryProgram(layerStep), options);
  expectLayer(*session, 0);
  EXPECT_OK(session->setPlan({4, 1}));
  expectLayer(*session, 0);
  PlanOptions plan;
  plan.slotTable = {1, -1, 0};
  EXPECT_OK(session->setPlan(plan));
  expectLayer(*session, 0);
  LayerRow row = session->statistics().back().layers[0];
  EXPECT_EQ(row.matrix, (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(row.bytesReceived, 0);
}

TEST(Ranks, LayerOfSeveralRanks) {
  for (int ranks : {1, 2, 4})
    onRanks(ranks, [&](Session &session, Communicator &self) {
      for (int degree : {1, 3}) {
        EXPECT_OK(session.setPlan({degree, 0}));
        expectLayer(session, self.rank());
      }
      LayerRow row = session.statistics().back().layers[0];
      ASSERT_EQ(row.matrix.size(), size_t(ranks) * experts);
      for (int p = 0; p < ranks; ++p)
        EXPECT_EQ(row.matrix[2 * p] + row.matrix[2 * p + 1], 5 + 2 * p);
      EXPECT_EQ(row.bytesReceived > 0, ranks > 1);
      EXPECT_GT(row.seconds[MOIRA_PART_EXCHANGE], 0);
    });
}

TEST(Ranks, SlotTable) {
  onRanks(2, [](Session &session, Communicator &self) {
    PlanOptions plan;
    plan.slotTable = {-1, 1, 1, 0}; // both hold expert 1
    EXPECT_OK(session.setPlan(plan));
    expectLayer(session, self.rank());
    plan.slotTable = {0, 1, 1};
    EXPECT_ERROR(session.setPlan(plan), MOIRA_INVALID_ARGUMENT,
                 "expected a slot table of equal parts for 2 ranks, got 3 "
                 "entries");
    plan.slotTable = {0, 0};
    EXPECT_OK(session.setPlan(plan));
    EXPECT_EQ(invoke(session, self.rank()).code, MOIRA_INVALID_ARGUMENT);
    EXPECT_OK(session.setPlan({}));
    expectLayer(session, self.rank());
  });
}

TEST(Ranks, WhatOneRankRefusesFailsOnAll) {
  onRanks(4, [](Session &session, Communicator &self) {
    std::vector<float> x(4);
    std::vector<ResultTensor> results;
    TensorView input = view(x, {4});
    if (self.rank() == 1)
      input.dtype = DataType::I32;
    EXPECT_ERROR(session.invoke("main", {input}, results),
                 MOIRA_INVALID_ARGUMENT,
                 "entry 'main': rank 1: input 0 'x': expected f32[?], got "
                 "i32[4]");
  });
}

TEST(Ranks, PlansThatDifferAreNamed) {
  onRanks(2, [](Session &session, Communicator &self) {
    EXPECT_OK(session.setPlan({1 + self.rank(), 0}));
    EXPECT_ERROR(invoke(session, self.rank()), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': rank 1: gather counts, layer 3: expected the "
                 "same plan as on rank 0, got another");
    EXPECT_OK(session.setPlan({2, 0}));
    expectLayer(session, self.rank());
  });
}

TEST(Ranks, ErrorOfGeneratedCodeReachesAll) {
  onRanks(
      2,
      [](Session &session, Communicator &self) {
        for (int i = 0; i < 5; ++i)
          EXPECT_ERROR(invoke(session, self.rank()), MOIRA_FAILED,
                       "entry 'main': rank 1: a check failed");
      },
      [](moira_ctx *ctx, const moira_buffer *inputs) {
        if (ctx->rank == 1)
          ctx->api->fail(ctx, MOIRA_FAILED, "a check failed");
        layerStep(ctx, inputs);
      });
}

TEST(Ranks, FunctionsAfterAFailureDoNothing) {
  SessionOptions options;
  options.threads = 1;
  auto session =
      testSession(entryProgram([](moira_ctx *ctx, const moira_buffer *) {
                    const moira_api *api = ctx->api;
                    moira_exchange exchange{};
                    exchange.layer = 99;
                    exchange.placement = {2, 1, 1, 2};
                    EXPECT_EQ(api->exchange(ctx, &exchange), -1);
                    int32_t sizes[2] = {5, 5}, matrix[2] = {5, 5};
                    EXPECT_EQ(api->receive_sizes(ctx, &exchange, sizes), 0);
                    EXPECT_EQ(sizes[1], 0);
                    api->gather_counts(ctx, TEST_LAYER, 2, sizes, matrix);
                    EXPECT_EQ(matrix[1], 0);
                    EXPECT_EQ(api->chunks(ctx, TEST_LAYER, 0), 1);
                    moira_gather gather{};
                    EXPECT_EQ(api->gather_weights(ctx, &gather), -1);
                    api->wait(ctx, -1);
                    api->wait(ctx, 1000);
                  }),
                  options);
  EXPECT_ERROR(invoke(*session, 0), MOIRA_FAILED,
               "entry 'main': exchange: expected a layer of the entry, got 99");
}
