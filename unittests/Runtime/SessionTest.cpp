// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions: steps, results, variants, memory limits, threads.

#include "Runtime/TestModule.h"
#include "Runtime/TestProgram.h"

#include <cmath>
#include <cstring>
#include <thread>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
struct SessionTest : testing::Test {
  std::unique_ptr<Session> session = testSession(testProgram());
  TestWeights weights = TestWeights::integers();

  void SetUp() override { weights.bind(*session); }

  void checkRows(int64_t rows) {
    std::vector<float> x = integerRows(rows);
    std::vector<ResultTensor> results;
    EXPECT_OK(session->invoke("main", {view(x, {rows, 4})}, results));
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].dtype, DataType::F32);
    EXPECT_EQ(results[0].shape, (Shape{rows, 4}));
    EXPECT_EQ(values(results[0]), weights.expect(x));
  }
  Status invoke(const std::vector<TensorView> &inputs) {
    std::vector<ResultTensor> results;
    return session->invoke("main", inputs, results);
  }
};
} // namespace

TEST_F(SessionTest, ComputesForAnyNumberOfRows) {
  for (int64_t rows : {3, 1, 0, 100, 7, 8, 1000, 0, 3})
    checkRows(rows);
}

TEST_F(SessionTest, NoRowsNeedNoData) {
  std::vector<ResultTensor> results;
  EXPECT_OK(
      session->invoke("main", {{DataType::F32, {0, 4}, nullptr}}, results));
  EXPECT_EQ(results[0].shape, (Shape{0, 4}));
  EXPECT_NE(results[0].data, nullptr);
}

TEST_F(SessionTest, ResultsOutliveTheSession) {
  std::vector<float> x = integerRows(5);
  std::vector<ResultTensor> results;
  EXPECT_OK(session->invoke("main", {view(x, {5, 4})}, results));
  EXPECT_EQ(session->memory().results, 80);
  session.reset();
  EXPECT_EQ(values(results[0]), weights.expect(x));
}

TEST_F(SessionTest, FillsTheCallersMemory) {
  std::vector<float> x = integerRows(5), y(21, -77);
  std::vector<ResultTensor> results(1);
  results[0] = {DataType::F32, {5, 4}, y.data(), nullptr};
  EXPECT_OK(session->invoke("main", {view(x, {5, 4})}, results));
  EXPECT_EQ(results[0].data, y.data());
  EXPECT_EQ(y.back(), -77);
  y.pop_back();
  EXPECT_EQ(y, weights.expect(x));
  EXPECT_EQ(session->memory().results, 0);
}

TEST_F(SessionTest, ChecksTheCallersMemory) {
  std::vector<float> x = integerRows(5), y(100);
  auto into = [&](DataType dtype, Shape shape, void *data) {
    std::vector<ResultTensor> results(1);
    results[0] = {dtype, std::move(shape), data, nullptr};
    return session->invoke("main", {view(x, {5, 4})}, results);
  };
  EXPECT_ERROR(into(DataType::F32, {6, 4}, y.data()), MOIRA_INVALID_ARGUMENT,
               "entry 'main': result 0: expected memory of shape [5, 4], got "
               "[6, 4]");
  EXPECT_ERROR(into(DataType::BF16, {5, 4}, y.data()), MOIRA_INVALID_ARGUMENT,
               "entry 'main': result 0: expected f32[?, 4], got bf16[5, 4]");
  EXPECT_ERROR(
      into(DataType::F32, {5, 4}, reinterpret_cast<char *>(y.data()) + 1),
      MOIRA_INVALID_ARGUMENT,
      "entry 'main': result 0: expected data aligned to 4 bytes, got "
      "less");
  std::vector<ResultTensor> two(2);
  EXPECT_ERROR(session->invoke("main", {view(x, {5, 4})}, two),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': expected 1 results, got 2");
}

TEST_F(SessionTest, ChecksInputs) {
  std::vector<float> x = integerRows(5);
  EXPECT_ERROR(invoke({}), MOIRA_INVALID_ARGUMENT,
               "entry 'main': expected 1 inputs, got 0");
  EXPECT_ERROR(invoke({view(x, {4, 5})}), MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected f32[?, 4], got f32[4, 5]");
  EXPECT_ERROR(invoke({view(x, {20})}), MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected f32[?, 4], got f32[20]");
  EXPECT_ERROR(invoke({{DataType::BF16, {5, 4}, x.data()}}),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected f32[?, 4], got "
               "bf16[5, 4]");
  EXPECT_ERROR(invoke({view(x, {-5, 4})}), MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected f32[?, 4], got f32[-5, "
               "4]");
  EXPECT_ERROR(invoke({{DataType::F32, {5, 4}, nullptr}}),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected data, got a null pointer");
  EXPECT_ERROR(invoke({view(x, {INT64_MAX / 4, 4})}), MOIRA_INVALID_ARGUMENT,
               concat("entry 'main': input 0 'x': expected a size that fits "
                      "64 bits, got f32[",
                      INT64_MAX / 4, ", 4]"));
  auto *odd = reinterpret_cast<float *>(reinterpret_cast<char *>(x.data()) + 2);
  EXPECT_ERROR(invoke({{DataType::F32, {1, 4}, odd}}), MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 0 'x': expected data aligned to 4 bytes, "
               "got less");
  checkRows(5);
}

TEST_F(SessionTest, UnknownEntriesAreNamed) {
  std::vector<ResultTensor> results;
  EXPECT_ERROR(session->invoke("step", {}, results), MOIRA_NOT_FOUND,
               "expected an entry of the program ('main'), got 'step'");
}

TEST(Session, NeedsAProgramAndSoundOptions) {
  EXPECT_EQ(Session::create(nullptr).status().code, MOIRA_INVALID_ARGUMENT);
  SessionOptions options;
  options.threads = -1;
  EXPECT_ERROR(Session::create(testProgram(), options).status(),
               MOIRA_INVALID_ARGUMENT, "expected 0 to 4096 threads, got -1");
  options.threads = 1;
  options.memoryLimit = -5;
  EXPECT_ERROR(Session::create(testProgram(), options).status(),
               MOIRA_INVALID_ARGUMENT,
               "expected a memory limit of 0 or more bytes, got -5");
}

TEST(Session, NeedsItsParameters) {
  auto session = Session::create(testProgram());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->unbound(),
            (std::vector<std::string>{"experts.{}.weight", "bias"}));
  std::vector<float> x(4);
  std::vector<ResultTensor> results;
  EXPECT_ERROR((*session)->invoke("main", {view(x, {1, 4})}, results),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': expected all parameters to be bound, got 2 that "
               "are not, first 'experts.{}.weight'");
}

//===----------------------------------------------------------------------===//
// Variants and plans
//===----------------------------------------------------------------------===//

TEST_F(SessionTest, ChoosesTheVariantByRowsOrByHand) {
  auto variantFor = [&](int64_t rows) {
    checkRows(rows);
    return session->statistics().back().variant;
  };
  EXPECT_EQ(variantFor(7), 0);
  EXPECT_EQ(variantFor(8), 1);
  EXPECT_OK(session->setVariant("main", "prefill"));
  EXPECT_EQ(variantFor(0), 1);
  EXPECT_OK(session->setVariant("main", "decode"));
  EXPECT_EQ(variantFor(1000), 0);
  EXPECT_OK(session->setVariant("main", ""));
  EXPECT_EQ(variantFor(1000), 1);
}

TEST_F(SessionTest, UnknownVariantsAreNamed) {
  EXPECT_ERROR(session->setVariant("main", "fast"), MOIRA_NOT_FOUND,
               "entry 'main': expected one of its variants, got 'fast'");
  EXPECT_EQ(session->setVariant("other", "decode").code, MOIRA_NOT_FOUND);
}

TEST_F(SessionTest, PlansReachTheStatistics) {
  EXPECT_OK(session->setPlan({4, 1}));
  checkRows(3);
  const StepRow row = session->statistics().back();
  EXPECT_EQ(row.layers[0].plan.degree, 4);
  EXPECT_EQ(row.layers[0].plan.exchange, 1);
  EXPECT_EQ(row.layers[0].plan.variant, 0u);
  EXPECT_ERROR(session->setPlan({0, 0}), MOIRA_INVALID_ARGUMENT,
               "expected a degree of at least 1, got 0");
  EXPECT_EQ(session->setPlan({1, 2}).code, MOIRA_INVALID_ARGUMENT);
}

TEST_F(SessionTest, StatisticsSayWhatHappened) {
  checkRows(5);
  std::vector<float> x(4);
  EXPECT_OK(session->setVariant("main", ""));
  checkRows(20);
  std::vector<StepRow> rows = session->statistics();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].step, 0);
  EXPECT_EQ(rows[1].step, 1);
  EXPECT_EQ(rows[1].rows, 20);
  EXPECT_EQ(rows[1].error, MOIRA_OK);
  ASSERT_EQ(rows[0].layers.size(), 1u);
  const LayerRow &layer = rows[0].layers[0];
  EXPECT_EQ(layer.layer, TEST_LAYER);
  EXPECT_EQ(layer.counts, (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(layer.routed, 5);
  EXPECT_EQ(layer.dropped, 0);
  EXPECT_GT(layer.seconds[MOIRA_PART_EXPERT], 0);
}

TEST_F(SessionTest, FailedStepsAreCountedAndTheSessionGoesOn) {
  static bool fails;
  auto other =
      testSession(entryProgram([](moira_ctx *ctx, const moira_buffer *inputs) {
        ctx->api->result(ctx, 0, 1, inputs[0].shape);
        if (fails)
          ctx->api->fail(ctx, MOIRA_FAILED, "reason");
      }));
  std::vector<float> x(3);
  std::vector<ResultTensor> results;
  fails = true;
  EXPECT_FALSE(other->invoke("main", {view(x, {3})}, results).ok());
  EXPECT_EQ(other->statistics().back().error, MOIRA_FAILED);
  fails = false;
  EXPECT_OK(other->invoke("main", {view(x, {3})}, results));
  EXPECT_EQ(other->statistics().back().error, MOIRA_OK);
  EXPECT_EQ(other->statistics().size(), 2u);
}

TEST(SessionPlans, EachLayerHasOne) {
  static int64_t layerCount;
  auto step = [](moira_ctx *ctx, const moira_buffer *) {
    for (int64_t i = 0; i < layerCount; ++i) {
      EXPECT_EQ(ctx->plan[i].degree, 3);
      EXPECT_EQ(ctx->plan[i].slots, 0);
      ctx->api->enter(ctx, 10 * i, MOIRA_PART_GATE);
    }
    EXPECT_EQ(ctx->plan[0].degree, 3); // also without layers
  };
  // The workspace entry may read the plan too.
  auto workspace = [](moira_ctx *ctx, const moira_buffer *) -> int64_t {
    EXPECT_EQ(ctx->plan[0].degree, 3);
    return 0;
  };
  for (layerCount = 0; layerCount < 4; ++layerCount) {
    Manifest manifest = entryProgram(step, 0)->manifest();
    manifest.entries[0].layers.clear();
    for (int64_t i = 0; i < layerCount; ++i)
      manifest.entries[0].layers.push_back({10 * i, 2, 1, 0, {}});
    auto program = Program::create(manifest, [&](const char *symbol) {
      return std::strcmp(symbol, "step") ? reinterpret_cast<void *>(+workspace)
                                         : reinterpret_cast<void *>(+step);
    });
    ASSERT_OK(program.status());
    auto session = testSession(*program);
    EXPECT_OK(session->setPlan({3, 0}));
    std::vector<float> x(2);
    std::vector<ResultTensor> results;
    EXPECT_OK(session->invoke("main", {view(x, {2})}, results));
    EXPECT_TRUE(session->predictPeak("main", {view(x, {2})}).ok());
    EXPECT_EQ(int64_t(session->statistics().back().layers.size()), layerCount);
  }
}

TEST(SessionLog, SaysWhatRan) {
  SessionOptions options;
  options.logLevel = LogLevel::Debug;
  options.threads = 1;
  auto session = testSession(testProgram(), options);
  std::vector<float> x(8);
  std::vector<ResultTensor> results;
  testing::internal::CaptureStderr();
  EXPECT_OK(session->invoke("main", {view(x, {2, 4})}, results));
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("step 0: entry 'main', variant 'decode', 2 rows"),
            std::string::npos)
      << text;
}

TEST(SessionPoison, MemoryThatNobodyWroteIsNan) {
  SessionOptions options;
  options.poisonMemory = true;
  auto session = testSession(
      entryProgram([](moira_ctx *ctx, const moira_buffer *inputs) {
        auto *scratch = static_cast<float *>(ctx->api->alloc(ctx, 0, 400));
        auto *y =
            static_cast<float *>(ctx->api->result(ctx, 0, 1, inputs[0].shape));
        EXPECT_TRUE(std::isnan(scratch[99]));
        EXPECT_TRUE(std::isnan(y[0]));
        y[1] = 5;
      }),
      options);
  std::vector<float> x(3);
  std::vector<ResultTensor> results;
  for (int round = 0; round < 2; ++round) {
    EXPECT_OK(session->invoke("main", {view(x, {3})}, results));
    std::vector<float> y = values(results[0]);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[2]));
    EXPECT_EQ(y[1], 5);
    results.clear();
  }
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Takes 1000 bytes a row, and says so.
static void hungryStep(moira_ctx *ctx, const moira_buffer *inputs) {
  ctx->api->alloc(ctx, 0, 1000 * inputs[0].shape[0]);
  ctx->api->result(ctx, 0, 1, inputs[0].shape);
}
static int64_t hungryWorkspace(moira_ctx *, const moira_buffer *inputs) {
  return 1000 * inputs[0].shape[0];
}

TEST(SessionMemory, TheLimitIsCheckedBeforeTheStep) {
  SessionOptions options;
  options.threads = 1;
  options.memoryLimit = 100'000;
  auto session =
      testSession(entryProgram(hungryStep, 1, hungryWorkspace), options);
  std::vector<float> x(1000);
  std::vector<ResultTensor> results;
  EXPECT_OK(session->invoke("main", {view(x, {90})}, results));
  results.clear();
  EXPECT_ERROR(session->invoke("main", {view(x, {1000})}, results),
               MOIRA_OUT_OF_MEMORY,
               "entry 'main': expected a peak within the memory limit of "
               "100000 bytes, got a predicted peak of 1004000 bytes "
               "(parameters 0, workspace 1000000)");
  EXPECT_EQ(session->statistics().size(), 1u); // the step did not begin
  EXPECT_OK(session->invoke("main", {view(x, {90})}, results));
  EXPECT_LE(session->memory().peak, 100'000);
}

TEST(SessionMemory, TheLimitHoldsWhereThePredictionWasTooLow) {
  SessionOptions options;
  options.threads = 1;
  options.memoryLimit = 100'000;
  auto session = testSession(entryProgram(hungryStep), options);
  std::vector<float> x(1000);
  std::vector<ResultTensor> results;
  EXPECT_EQ(session->invoke("main", {view(x, {1000})}, results).code,
            MOIRA_OUT_OF_MEMORY);
  EXPECT_LE(session->memory().peak, 100'000);
  EXPECT_OK(session->invoke("main", {view(x, {10})}, results));
}

TEST(SessionMemory, PredictsThePeakAndAllocatesThat) {
  SessionOptions options;
  options.threads = 1;
  auto session =
      testSession(entryProgram(hungryStep, 1, hungryWorkspace), options);
  std::vector<float> x(64);
  Result<int64_t> peak = session->predictPeak("main", {view({}, {64})});
  ASSERT_TRUE(peak.ok()) << peak.status().message;
  std::vector<ResultTensor> results;
  EXPECT_OK(session->invoke("main", {view(x, {64})}, results));
  EXPECT_EQ(session->memory().peak, *peak);
  EXPECT_EQ(*peak, 64'000 + 64 * 4);
  EXPECT_FALSE(session->predictPeak("main", {}).ok());
  EXPECT_FALSE(session->predictPeak("other", {}).ok());
  EXPECT_EQ(*session->predictPeak("main", {view({}, {INT64_MAX / 2000})}),
            int64_t(INT64_MAX / 2000) * 1004 + 256);
}

TEST(SessionMemory, PredictsParametersBeforeTheyAreBound) {
  auto session = Session::create(testProgram());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(*(*session)->predictPeak("main", {view({}, {10, 4})}),
            144 + 64 + 160);
}

TEST(SessionMemory, ParametersThatDoNotFitAreRefusedAtOnce) {
  SessionOptions options;
  options.memoryLimit = 100;
  EXPECT_ERROR(Session::create(testProgram(), options).status(),
               MOIRA_OUT_OF_MEMORY,
               "expected a peak within the memory limit of 100 bytes, got 144 "
               "bytes of parameters alone");
}

TEST(SessionMemory, SteadyStepsAllocateNothing) {
  auto session = testSession(testProgram());
  std::vector<float> x = integerRows(300), y(1200);
  std::vector<ResultTensor> results(1);
  results[0] = {DataType::F32, {300, 4}, y.data(), nullptr};
  auto step = [&] {
    EXPECT_OK(session->invoke("main", {view(x, {300, 4})}, results));
  };
  for (int i = 0; i < 20; ++i)
    step();
  MemoryFigures before = session->memory();
  for (int i = 0; i < 20; ++i)
    step();
  // Which worker meets which row is chance, but each needs one chunk only.
  EXPECT_LE(session->memory().workspace,
            before.workspace + session->threads() * (64 << 10));
  EXPECT_EQ(session->memory().results, 0);
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

TEST(SessionThreads, ResultsDoNotDependOnTheirNumber) {
  std::vector<float> x;
  for (int i = 0; i < 4000; ++i)
    x.push_back(float(i) / 7);
  std::vector<float> first;
  for (int count : {1, 2, 3, 8}) {
    SessionOptions options;
    options.threads = count;
    auto session = testSession(testProgram(), options);
    EXPECT_EQ(session->threads(), count);
    std::vector<ResultTensor> results;
    EXPECT_OK(session->invoke("main", {view(x, {1000, 4})}, results));
    std::vector<float> y = values(results[0]);
    if (first.empty())
      first = y;
    EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * 4), 0);
  }
}

TEST(SessionThreads, EachThreadMayHaveItsSession) {
  auto program = testProgram();
  std::vector<std::thread> users;
  for (int user = 0; user < 6; ++user)
    users.emplace_back([&program, user] {
      SessionOptions options;
      options.threads = 1 + user % 3;
      auto session = testSession(program, options);
      TestWeights weights = TestWeights::integers();
      weights.bias[0] = float(user);
      weights.bind(*session);
      for (int64_t rows = 0; rows < 60; ++rows) {
        std::vector<float> x = integerRows(rows);
        std::vector<ResultTensor> results;
        EXPECT_OK(session->invoke("main", {view(x, {rows, 4})}, results));
        ASSERT_EQ(values(results[0]), weights.expect(x));
      }
    });
  for (std::thread &user : users)
    user.join();
}

TEST(SessionThreads, OneSessionMayHaveManyUsers) {
  SessionOptions options;
  options.threads = 2;
  auto session = testSession(testProgram(), options);
  TestWeights weights = TestWeights::integers();
  weights.bind(*session);
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([&, user] {
      for (int64_t rows = user; rows < 40; ++rows) {
        std::vector<float> x = integerRows(rows);
        std::vector<ResultTensor> results;
        EXPECT_OK(session->invoke("main", {view(x, {rows, 4})}, results));
        ASSERT_EQ(values(results[0]), weights.expect(x));
        (void)session->statistics();
        (void)session->memory();
      }
    });
  for (std::thread &user : users)
    user.join();
  EXPECT_EQ(session->statistics().size(), 4u * 40 - 6);
}
