// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of moira/abi.h, seen from generated code.

#include "Runtime/TestModule.h"
#include "Runtime/TestProgram.h"

#include <atomic>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

/// Runs an entry over `rows` rows and returns how that ended.
static Status run(moira_step_entry step, int results = 1,
                  const SessionOptions &options = {}, int64_t rows = 10,
                  moira_workspace_entry workspace = nullptr) {
  auto session = testSession(entryProgram(step, results, workspace), options);
  std::vector<float> x(rows, 1);
  std::vector<ResultTensor> produced;
  Status status = session->invoke("main", {view(x, {rows})}, produced);
  if (!status.ok()) {
    EXPECT_TRUE(produced.empty());
    EXPECT_EQ(session->memory().results, 0);
  }
  return status;
}

static SessionOptions threads(int count) {
  SessionOptions options;
  options.threads = count;
  return options;
}

/// Gives result `index` the shape of the input.
static float *makeResult(moira_ctx *ctx, const moira_buffer *inputs,
                         int64_t index = 0) {
  return static_cast<float *>(ctx->api->result(ctx, index, 1, inputs[0].shape));
}

TEST(Step, SeesItsContext) {
  EXPECT_OK(run(
      [](moira_ctx *ctx, const moira_buffer *inputs) {
        EXPECT_EQ(ctx->abi_version, MOIRA_ABI_VERSION);
        EXPECT_EQ(ctx->struct_size, sizeof(moira_ctx));
        EXPECT_EQ(ctx->api->abi_version, MOIRA_ABI_VERSION);
        EXPECT_EQ(ctx->api->struct_size, sizeof(moira_api));
        EXPECT_EQ(ctx->error, MOIRA_OK);
        EXPECT_EQ(ctx->rank, 0);
        EXPECT_EQ(ctx->ranks, 1);
        EXPECT_EQ(ctx->workers, 3);
        EXPECT_EQ(ctx->plan->variant, 0u);
        EXPECT_EQ(ctx->plan->degree, 1);
        EXPECT_EQ(ctx->plan->slot_table, nullptr);
        EXPECT_EQ(ctx->communicator, nullptr);
        EXPECT_EQ(inputs[0].shape[0], 10);
        makeResult(ctx, inputs);
      },
      1, threads(3)));
}

TEST(Step, AllocatesAlignedWorkspace) {
  EXPECT_OK(run([](moira_ctx *ctx, const moira_buffer *inputs) {
    for (int64_t bytes : {0, 1, 100, 1'000'000}) {
      void *data = ctx->api->alloc(ctx, 0, bytes);
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      std::memset(data, 1, bytes);
    }
    makeResult(ctx, inputs);
  }));
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST(StepError, FirstOneStaysAndAllElseDoesNothing) {
  EXPECT_ERROR(run(
                   [](moira_ctx *ctx, const moira_buffer *inputs) {
                     const moira_api *api = ctx->api;
                     api->fail(ctx, MOIRA_INVALID_ARGUMENT,
                               "expected a, got b");
                     EXPECT_EQ(ctx->error, MOIRA_INVALID_ARGUMENT);
                     api->fail(ctx, MOIRA_FAILED, "later");
                     EXPECT_EQ(ctx->error, MOIRA_INVALID_ARGUMENT);
                     EXPECT_EQ(api->alloc(ctx, 0, 8), nullptr);
                     EXPECT_EQ(api->mark(ctx, 0), 0);
                     api->release(ctx, 0, 999);
                     EXPECT_EQ(makeResult(ctx, inputs), nullptr);
                     api->enter(ctx, 99, 99);
                     api->loads(ctx, 99, -1, nullptr, nullptr);
                     api->parallel_for(
                         ctx,
                         [](moira_ctx *, void *, int64_t, int64_t) {
                           ADD_FAILURE() << "a loop after a failure";
                         },
                         nullptr, 1000, 1000);
                   },
                   1, threads(2)),
               MOIRA_INVALID_ARGUMENT, "entry 'main': expected a, got b");
}

TEST(StepError, CodesThatAreNoFailureCountAsFailed) {
  for (int32_t code : {0, -1, 8}) {
    static int32_t given;
    given = code;
    EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                   ctx->api->fail(ctx, given, nullptr);
                 }),
                 MOIRA_FAILED, "entry 'main': no reason given");
  }
}

TEST(StepError, MisuseIsNamed) {
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->alloc(ctx, 0, -8);
               }),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': expected a workspace of 0 or more bytes, got "
               "-8");
  EXPECT_ERROR(run([](moira_ctx *ctx,
                      const moira_buffer *) { ctx->api->alloc(ctx, 1, 8); },
                   1, threads(1)),
               MOIRA_FAILED, "entry 'main': expected a worker below 1, got 1");
  EXPECT_ERROR(
      run([](moira_ctx *ctx, const moira_buffer *) { ctx->api->mark(ctx, -1); },
          1, threads(1)),
      MOIRA_FAILED, "entry 'main': expected a worker below 1, got -1");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->release(ctx, 0, 64);
               }),
               MOIRA_FAILED,
               "entry 'main': release: expected a mark of worker 0, got 64");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->enter(ctx, 0, MOIRA_PART_GATE);
               }),
               MOIRA_FAILED,
               "entry 'main': enter: expected a layer and part of the entry, "
               "got layer 0 part 1");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 int32_t zero = 0;
                 ctx->api->loads(ctx, 0, 1, &zero, &zero);
               }),
               MOIRA_FAILED,
               "entry 'main': loads: expected a layer of the entry, with as "
               "many experts each time, got layer 0 with 1");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->parallel_for(ctx, nullptr, nullptr, -1, 1);
               }),
               MOIRA_FAILED,
               "entry 'main': parallel_for: expected 0 or more iterations, "
               "got -1");
}

TEST(StepError, ResultsAreChecked) {
  EXPECT_ERROR(run([](moira_ctx *, const moira_buffer *) {}), MOIRA_FAILED,
               "entry 'main': expected the step to produce result 0, got "
               "none");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *inputs) {
                 makeResult(ctx, inputs);
                 makeResult(ctx, inputs);
               }),
               MOIRA_FAILED,
               "entry 'main': expected each of 1 results once, got index 0");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *inputs) {
                 makeResult(ctx, inputs, 1);
               }),
               MOIRA_FAILED,
               "entry 'main': expected each of 1 results once, got index 1");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *inputs) {
                 ctx->api->result(ctx, 0, 2, inputs[0].shape);
               }),
               MOIRA_FAILED, "entry 'main': result 0: expected rank 1, got 2");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 int64_t shape = -3;
                 ctx->api->result(ctx, 0, 1, &shape);
               }),
               MOIRA_FAILED,
               "entry 'main': result 0: expected shape [?] from the step, got "
               "[-3]");
  EXPECT_EQ(run([](moira_ctx *ctx, const moira_buffer *) {
              int64_t shape = INT64_MAX;
              ctx->api->result(ctx, 0, 1, &shape);
            }).code,
            MOIRA_OUT_OF_MEMORY);
}

TEST(StepError, SizesThatNoMachineHas) {
  EXPECT_EQ(run([](moira_ctx *ctx, const moira_buffer *) {
              EXPECT_EQ(ctx->api->alloc(ctx, 0, int64_t(1) << 60), nullptr);
            }).code,
            MOIRA_OUT_OF_MEMORY);
}

TEST(StepError, WorkspaceEntriesAreChecked) {
  auto step = [](moira_ctx *ctx, const moira_buffer *inputs) {
    makeResult(ctx, inputs);
  };
  EXPECT_ERROR(
      run(step, 1, {}, 10,
          [](moira_ctx *, const moira_buffer *) -> int64_t { return -2; }),
      MOIRA_FAILED,
      "entry 'main': expected a workspace size of 0 or more bytes, or -1, "
      "got -2");
  EXPECT_OK(
      run(step, 1, {}, 10,
          [](moira_ctx *, const moira_buffer *) -> int64_t { return -1; }));
  EXPECT_ERROR(run(step, 1, {}, 10,
                   [](moira_ctx *ctx, const moira_buffer *) -> int64_t {
                     ctx->api->fail(ctx, MOIRA_INVALID_ARGUMENT, "reason");
                     return 0;
                   }),
               MOIRA_INVALID_ARGUMENT, "entry 'main': reason");
  EXPECT_EQ(run(step, 1, {}, 10,
                [](moira_ctx *, const moira_buffer *) { return INT64_MAX; })
                .code,
            MOIRA_OUT_OF_MEMORY);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// What a loop's bodies write to.
struct Slots {
  float *y;
  std::atomic<int64_t> runs{0};
};
} // namespace

TEST(StepLoop, BodiesHaveWorkspaceOfTheirOwn) {
  auto step = [](moira_ctx *ctx, const moira_buffer *inputs) {
    Slots slots{makeResult(ctx, inputs), {}};
    ctx->api->parallel_for(
        ctx,
        [](moira_ctx *ctx, void *captures, int64_t index, int64_t worker) {
          const moira_api *api = ctx->api;
          int64_t mark = api->mark(ctx, worker);
          auto *scratch = static_cast<int64_t *>(api->alloc(ctx, worker, 800));
          ASSERT_NE(scratch, nullptr);
          for (int i = 0; i < 100; ++i)
            scratch[i] = index;
          auto *more = static_cast<int64_t *>(api->alloc(ctx, worker, 80'000));
          std::memset(more, 0xff, 80'000);
          int64_t sum = 0;
          for (int i = 0; i < 100; ++i)
            sum += scratch[i];
          static_cast<Slots *>(captures)->y[index] = float(sum);
          api->release(ctx, worker, mark);
        },
        &slots, inputs[0].shape[0], 100'000);
  };
  for (int count : {1, 2, 5}) {
    auto session = testSession(entryProgram(step), threads(count));
    std::vector<float> x(500);
    for (int round = 0; round < 3; ++round) {
      std::vector<ResultTensor> results;
      EXPECT_OK(session->invoke("main", {view(x, {500})}, results));
      std::vector<float> y = values(results[0]);
      for (int i = 0; i < 500; ++i)
        ASSERT_EQ(y[i], float(100 * i));
    }
  }
}

TEST(StepLoop, WorkspaceOutsideOutlivesTheLoop) {
  EXPECT_OK(run(
      [](moira_ctx *ctx, const moira_buffer *inputs) {
        auto *kept = static_cast<int64_t *>(ctx->api->alloc(ctx, 0, 8000));
        for (int i = 0; i < 1000; ++i)
          kept[i] = i;
        ctx->api->parallel_for(
            ctx,
            [](moira_ctx *ctx, void *, int64_t, int64_t worker) {
              int64_t mark = ctx->api->mark(ctx, worker);
              std::memset(ctx->api->alloc(ctx, worker, 100'000), 1, 100'000);
              ctx->api->release(ctx, worker, mark);
            },
            nullptr, 100, 100'000);
        for (int i = 0; i < 1000; ++i)
          ASSERT_EQ(kept[i], i);
        makeResult(ctx, inputs);
      },
      1, threads(2)));
}

TEST(StepLoop, NestingIsRefused) {
  // As many iterations as make the loop run inline, and on threads.
  for (int count : {1, 4})
    EXPECT_ERROR(
        run(
            [](moira_ctx *ctx, const moira_buffer *) {
              ctx->api->parallel_for(
                  ctx,
                  [](moira_ctx *ctx, void *, int64_t, int64_t) {
                    ctx->api->parallel_for(
                        ctx, [](moira_ctx *, void *, int64_t, int64_t) {},
                        nullptr, 2, 1);
                  },
                  nullptr, 100, 100'000);
            },
            1, threads(count)),
        MOIRA_FAILED,
        "entry 'main': parallel_for: expected a call outside of loop bodies, "
        "got one inside");
}

TEST(StepLoop, BodiesDoNotMakeResultsOrStatistics) {
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->parallel_for(
                     ctx,
                     [](moira_ctx *ctx, void *, int64_t, int64_t) {
                       int64_t shape = 1;
                       ctx->api->result(ctx, 0, 1, &shape);
                     },
                     nullptr, 1, 1);
               }),
               MOIRA_FAILED,
               "entry 'main': result: expected a call outside of loop "
               "bodies, got one inside");
  EXPECT_ERROR(run([](moira_ctx *ctx, const moira_buffer *) {
                 ctx->api->parallel_for(
                     ctx,
                     [](moira_ctx *ctx, void *, int64_t, int64_t) {
                       ctx->api->enter(ctx, TEST_LAYER, MOIRA_PART_GATE);
                     },
                     nullptr, 1, 1);
               }),
               MOIRA_FAILED,
               "entry 'main': enter: expected a call outside of loop bodies, "
               "got one inside");
}

TEST(StepLoop, AFailureSkipsWhatHasNotBegun) {
  static std::atomic<int64_t> runs;
  runs = 0;
  Status status = run(
      [](moira_ctx *ctx, const moira_buffer *) {
        ctx->api->parallel_for(
            ctx,
            [](moira_ctx *ctx, void *, int64_t index, int64_t) {
              runs.fetch_add(1);
              ctx->api->fail(ctx, MOIRA_FAILED,
                             index % 2 ? "odd row" : "even row");
            },
            nullptr, 100'000, 1000);
      },
      1, threads(4));
  EXPECT_EQ(status.code, MOIRA_FAILED);
  EXPECT_TRUE(status.message == "entry 'main': odd row" ||
              status.message == "entry 'main': even row")
      << status.message;
  EXPECT_LE(runs, 4);
}

TEST(StepLoop, EmptyLoopsAreLegal) {
  EXPECT_OK(run([](moira_ctx *ctx, const moira_buffer *inputs) {
    ctx->api->parallel_for(ctx, nullptr, nullptr, 0, 1);
    makeResult(ctx, inputs);
  }));
}
