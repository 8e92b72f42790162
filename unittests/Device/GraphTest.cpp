// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Steps that are given out as one graph.

#include "Device/DeviceProgram.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

/// Its input times n; where n is 7 the host reads the input's first element,
/// which is the factor instead. The counts of a routing are the first two.
static void fixedEntry(moira_ctx *ctx, const moira_buffer *inputs) {
  int64_t size = inputs[0].shape[0];
  void *result = ctx->api->result(ctx, 0, 1, &size);
  void *place = inputs[0].data;
  int32_t factor =
      static_cast<int32_t>(*static_cast<int64_t *>(inputs[1].data));
  if (factor == 7)
    tableOf(ctx)->read(ctx, &factor, place, 4);
  void *arguments[] = {&result, &factor};
  tableOf(ctx)->copy(ctx, result, place, size * 4);
  tableOf(ctx)->launch(ctx, 0, size, arguments);
  ctx->api->loads(ctx, 0, 2, static_cast<int32_t *>(place),
                  static_cast<int32_t *>(place));
}

namespace {
/// Steps of `fixedEntry` on the stand-in, which are kept as graphs.
class GraphTest : public testing::Test {
protected:
  void SetUp() override {
    options = optionsWithDevice();
    options.device->keepGraphs(true);
    auto made = Session::create(programOf(manifestOf(), fixedEntry), options);
    ASSERT_TRUE(made.ok()) << made.status().message;
    session = std::move(*made);
    int32_t weights[] = {1, 7};
    EXPECT_OK(session->bind("p", {DataType::I32, {2}, weights}));
    x = onDevice(*options.device, {1, 2, 3});
    captures = fakeNumber("fakeCaptures");
    graphs = fakeNumber("fakeGraphLaunches");
  }
  void TearDown() override {
    EXPECT_OK(options.device->release(x));
    session.reset();
    EXPECT_EQ(fakeNumber("fakeGraphs"), 0);
  }
  Status run(int64_t n, int64_t size) {
    std::vector<TensorView> inputs = {{DataType::I32, {size}, x, true},
                                      {DataType::I64, {}, &n}};
    std::vector<ResultTensor> results(1);
    results[0] = {DataType::I32, {size}, y.data(), nullptr};
    return session->invoke("main", inputs, results);
  }
  int captured() { return fakeNumber("fakeCaptures") - captures; }
  int launched() { return fakeNumber("fakeGraphLaunches") - graphs; }

  SessionOptions options;
  std::unique_ptr<Session> session;
  int32_t *x = nullptr;
  std::vector<int32_t> y = {0, 0, 0};
  int captures = 0, graphs = 0;
};
} // namespace

TEST_F(GraphTest, keepsStepsThatRepeat) {
  // Memory of results is known after the first step; the second shows that
  // nothing is in the way, the third is kept, and from then on it is the graph.
  for (int step = 0; step < 5; ++step) {
    ASSERT_OK(run(10, 3));
    EXPECT_EQ(captured(), step < 2 ? 0 : 1) << step;
    EXPECT_EQ(launched(), std::max(0, step - 1)) << step;
    StepRow row = session->statistics().back();
    EXPECT_EQ(row.launches, 1) << step;
    EXPECT_EQ(row.waits, 0) << step;
    ASSERT_EQ(row.layers.size(), 1u);
    EXPECT_EQ(row.layers[0].counts, (std::vector<int32_t>{1, 2})) << step;
    if (step > 2) {
      EXPECT_EQ(row.deviceAllocations, 0) << step;
    }
  }
}

TEST_F(GraphTest, knowsOtherSteps) {
  // Another number and another size; where the host reads, none is kept.
  for (int step = 0; step < 4; ++step) {
    ASSERT_OK(run(10, 3));
    ASSERT_OK(run(5, 3));
    ASSERT_OK(run(10, 2));
    ASSERT_OK(run(7, 3));
    EXPECT_EQ(y, (std::vector<int32_t>{1, 2, 3}));
  }
  EXPECT_EQ(captured(), 3);
  EXPECT_EQ(fakeNumber("fakeGraphs"), 3);
}

TEST_F(GraphTest, namesTheCallThatFails) {
  ASSERT_OK(run(3, 3));
  ASSERT_OK(run(3, 3));
  fakeNumber("fakeGraphFailures") = 1;
  EXPECT_ERROR(run(3, 3), MOIRA_OUT_OF_MEMORY,
               "entry 'main': cuGraphInstantiateWithFlags: "
               "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  // The next step is whole.
  ASSERT_OK(run(3, 3));
  EXPECT_EQ(y, (std::vector<int32_t>{3, 6, 9}));
}
