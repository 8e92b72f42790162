// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps with a way back: handles, gradients, memory.

#include "JIT/TrainingProgram.h"

#include "session/Optimizer.h"
#include "session/Residuals.h"

#include <cmath>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using Handle = std::shared_ptr<const Residuals>;

/// A session of the linear program, with its weights.
struct Linear {
  explicit Linear(const SessionOptions &options = {})
      : session(makeSession(program(), options)) {
    bind();
  }
  static std::shared_ptr<const Program> program() {
    static auto compiled =
        compileProgram(linearProgram("f32"), withOptimizers());
    return compiled;
  }
  void bind() {
    EXPECT_OK(session->bind("w", view(w, {6, 8})));
    EXPECT_OK(session->bind("b", view(b, {6})));
  }

  Status forward(const std::vector<float> &x, Handle &handle) {
    std::vector<ResultTensor> results;
    int64_t rows = x.size() / 8;
    Status status =
        session->forward("main", {view(x, {rows, 8})}, results, handle);
    if (status.ok())
      y = floats(results[0]);
    return status;
  }
  Status backward(const Handle &handle, const std::vector<float> &dy) {
    int64_t rows = dy.size() / 6;
    results.clear();
    return session->backward(*handle, {view(dy, {rows, 6})}, results);
  }
  Status accumulate(const Handle &handle, const std::vector<float> &dy) {
    int64_t rows = dy.size() / 6;
    results.clear();
    return session->accumulate(*handle, {view(dy, {rows, 6})}, results);
  }

  std::vector<float> w = numbers(48, 1), b = numbers(6, 2), y;
  std::unique_ptr<Session> session;
  std::vector<ResultTensor> results;
};

std::vector<float> expectedResult(const Linear &linear,
                                  const std::vector<float> &x) {
  std::vector<float> y;
  for (size_t t = 0; t < x.size() / 8; ++t)
    for (int n = 0; n < 6; ++n) {
      float sum = 0;
      for (int k = 0; k < 8; ++k)
        sum += x[t * 8 + k] * linear.w[n * 8 + k];
      y.push_back(sum + linear.b[n]);
    }
  return y;
}

TEST(Training, ManifestNamesTheWayBack) {
  Linear linear;
  const Manifest &manifest = linear.session->manifest();
  const EntrySpec &main = manifest.entries[manifest.mainEntry()];
  EXPECT_EQ(main.name, "main");
  EXPECT_EQ(main.backward, "main_backward");
  EXPECT_EQ(main.ownResults(), 1);
  const EntrySpec &back = manifest.entries[manifest.findEntry("main_backward")];
  ASSERT_EQ(back.results.size(), 3u);
  EXPECT_EQ(back.results[0].gradient->input, 0);
  EXPECT_EQ(back.results[1].gradient->parameter, "w");
  EXPECT_EQ(back.inputs[1].name, "d_result0");
  // Every row of the parameter, also those that only the way back reads.
  for (size_t i = 0; i < manifest.parameters.size(); ++i)
    EXPECT_EQ(std::count(back.results[1].gradient->rows.begin(),
                         back.results[1].gradient->rows.end(), int64_t(i)),
              manifest.parameters[i].name == "w");
}

TEST(Training, GivesGradients) {
  Linear linear;
  for (int64_t rows : {1, 0, 5, 70}) {
    std::vector<float> x = numbers(rows * 8, 3), dy = numbers(rows * 6, 4);
    Handle handle;
    ASSERT_OK(linear.forward(x, handle));
    EXPECT_EQ(linear.y, expectedResult(linear, x));
    ASSERT_OK(linear.backward(handle, dy));
    LinearGradients expected(x, linear.w, dy);
    ASSERT_EQ(linear.results.size(), 3u);
    EXPECT_EQ(floats(linear.results[0]), expected.x);
    EXPECT_EQ(floats(linear.results[1]), expected.w);
    EXPECT_EQ(floats(linear.results[2]), expected.b);
  }
}

TEST(Training, HandlesLiveSideBySide) {
  Linear linear;
  std::vector<float> x1 = numbers(24, 3), x2 = numbers(8 * 80, 5);
  std::vector<float> dy1 = numbers(18, 4), dy2 = numbers(6 * 80, 6);
  Handle first, second;
  ASSERT_OK(linear.forward(x1, first));
  // The plan of the first step is its own, whatever is set later.
  ASSERT_OK(linear.session->setVariant("main", "decode"));
  ASSERT_OK(linear.session->setPlan({2, 0, {}}));
  ASSERT_OK(linear.forward(x2, second));
  ASSERT_OK(linear.session->setVariant("main", ""));
  for (int round = 0; round < 2; ++round) { // a handle serves several times
    ASSERT_OK(linear.backward(second, dy2));
    EXPECT_EQ(floats(linear.results[1]), LinearGradients(x2, linear.w, dy2).w);
    ASSERT_OK(linear.backward(first, dy1));
    EXPECT_EQ(floats(linear.results[1]), LinearGradients(x1, linear.w, dy1).w);
  }
  int64_t both = first->bytes() + second->bytes();
  EXPECT_GE(both, 83 * 32);
  first.reset(); // in any order
  ASSERT_OK(linear.backward(second, dy2));
  // A handle may outlive its session.
  linear.session.reset();
  second.reset();
}

TEST(Training, KeepsTheVariantOfTheForwardStep) {
  Linear linear;
  Handle handle;
  ASSERT_OK(linear.session->setVariant("main", "prefill"));
  ASSERT_OK(linear.forward(numbers(8, 1), handle));
  ASSERT_OK(linear.session->setVariant("main", "decode"));
  ASSERT_OK(linear.backward(handle, numbers(6, 2)));
  std::vector<StepRow> steps = linear.session->statistics();
  ASSERT_EQ(steps.size(), 2u);
  const Manifest &manifest = linear.session->manifest();
  EXPECT_EQ(manifest.entries[steps[1].entry].name, "main_backward");
  EXPECT_EQ(manifest.entries[steps[1].entry].variants[steps[1].variant].name,
            "prefill");
}

TEST(Training, RefusesWrongUse) {
  Linear linear, other;
  std::vector<float> x = numbers(24, 3), dy = numbers(18, 4);
  Handle handle;
  ASSERT_OK(linear.forward(x, handle));
  EXPECT_FAILURE(other.backward(handle, dy),
                 "backward: expected residuals of this session, got another's");
  EXPECT_FAILURE(linear.backward(handle, numbers(12, 4)),
                 "backward: gradient of result 0: expected f32[3, 6], got "
                 "f32[2, 6]");
  std::vector<ResultTensor> none;
  EXPECT_FAILURE(linear.session->backward(*handle, {}, none),
                 "backward: expected 1 gradients of results, got 0");
  std::vector<ResultTensor> two(2);
  EXPECT_FAILURE(linear.session->backward(*handle, {view(dy, {3, 6})}, two),
                 "backward: expected 3 results, got 2");
  EXPECT_FAILURE(linear.session->accumulate(*handle, {view(dy, {3, 6})}, two),
                 "backward: expected 1 gradients of inputs, got 2");
  EXPECT_FAILURE(linear.session->update({}),
                 "optimizer: expected gradients (accumulate), got none since "
                 "they were zeroed");
  // What was bound since is not what the forward step saw.
  linear.bind();
  EXPECT_FAILURE(linear.backward(handle, dy),
                 "backward: expected the parameters that the forward step 0 "
                 "ran with, got others (bound, placed or updated since)");
  // The session goes on.
  ASSERT_OK(linear.forward(x, handle));
  ASSERT_OK(linear.backward(handle, dy));
}

TEST(Training, RefusesAForwardOnlyProgram) {
  auto session = makeSession(compileProgram(R"(
    func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      return %x : tensor<?x4xf32>
    })"));
  std::vector<ResultTensor> results;
  Handle handle;
  std::vector<float> x = numbers(4, 1);
  EXPECT_FAILURE(session->forward("main", {view(x, {1, 4})}, results, handle),
                 "entry 'main': expected an entry compiled with gradients "
                 "(--gradients), got one without");
  EXPECT_EQ(handle, nullptr);
}

TEST(Training, AccumulatesOverHandles) {
  Linear linear;
  std::vector<float> x1 = numbers(24, 3), x2 = numbers(40, 5);
  std::vector<float> dy1 = numbers(18, 4), dy2 = numbers(30, 6);
  Handle first, second;
  ASSERT_OK(linear.forward(x1, first));
  ASSERT_OK(linear.forward(x2, second));
  ASSERT_OK(linear.accumulate(first, dy1));
  ASSERT_EQ(linear.results.size(), 1u);
  LinearGradients one(x1, linear.w, dy1), two(x2, linear.w, dy2);
  EXPECT_EQ(floats(linear.results[0]), one.x);
  ASSERT_OK(linear.accumulate(second, dy2));
  double squares = 0;
  for (int i = 0; i < 48; ++i)
    squares += std::pow(double(one.w[i] + two.w[i]), 2);
  for (int i = 0; i < 6; ++i)
    squares += std::pow(double(one.b[i] + two.b[i]), 2);
  Result<double> norm = linear.session->gradientNorm();
  ASSERT_OK(norm.status());
  EXPECT_EQ(*norm, std::sqrt(squares)); // integers: exact
  linear.session->zeroGradients();
  EXPECT_EQ(*linear.session->gradientNorm(), 0);
  ASSERT_OK(linear.accumulate(first, dy1));
  squares = 0;
  for (int i = 0; i < 48; ++i)
    squares += std::pow(double(one.w[i]), 2);
  for (int i = 0; i < 6; ++i)
    squares += std::pow(double(one.b[i]), 2);
  EXPECT_EQ(*linear.session->gradientNorm(), std::sqrt(squares));
}

/// Gradients add up in every row of the table as one step of plain descent
/// shows: all rows of a parameter stay the same parameter.
TEST(Training, UpdatesEveryRow) {
  Linear linear;
  std::vector<float> x = numbers(24, 3), dy = numbers(18, 4);
  Handle handle;
  ASSERT_OK(linear.forward(x, handle));
  ASSERT_OK(linear.accumulate(handle, dy));
  UpdateOptions options;
  options.rule = "sgd";
  options.learningRate = 0.5;
  ASSERT_OK(linear.session->update(options));
  LinearGradients gradients(x, linear.w, dy);
  for (int i = 0; i < 48; ++i)
    linear.w[i] -= 0.5f * gradients.w[i];
  for (int i = 0; i < 6; ++i)
    linear.b[i] -= 0.5f * gradients.b[i];
  EXPECT_FAILURE(linear.backward(handle, dy),
                 "backward: expected the parameters that the forward step 0 "
                 "ran with, got others (bound, placed or updated since)");
  ASSERT_OK(linear.forward(x, handle));
  EXPECT_EQ(linear.y, expectedResult(linear, x));
  ASSERT_OK(linear.backward(handle, dy));
  EXPECT_EQ(floats(linear.results[0]), LinearGradients(x, linear.w, dy).x);
}

/// docs/gradients.md: the formula bounds what a step and its way back hold, and
/// not by much.
TEST(Training, PredictsThePeak) {
  JitOptions options;
  options.optLevel = 0;
  options.pipeline.gradients = true;
  for (bool recompute : {false, true}) {
    options.pipeline.recompute = recompute;
    auto program = compileFile("examples/olmoe/tiny.mlir", options);
    for (int64_t rows : {0, 1, 33, 200}) {
      SessionOptions one;
      one.threads = 1;
      auto session = makeSession(program, one);
      ASSERT_OK(session->bindRandom(1));
      std::vector<float> x = numbers(rows * 40, 3), dy = numbers(rows * 40, 4);
      TensorView input = view(x, {rows, 40});
      Result<int64_t> predicted = session->predictPeak("main", {input}, true);
      ASSERT_OK(predicted.status());
      std::vector<ResultTensor> results, gradients;
      Handle handle;
      ASSERT_OK(session->forward("main", {input}, results, handle));
      ASSERT_OK(session->backward(*handle, {view(dy, {rows, 40})}, gradients));
      MemoryFigures memory = session->memory();
      EXPECT_LE(memory.peak, *predicted) << rows << " rows";
      EXPECT_GE(memory.peak, *predicted * 7 / 10) << rows << " rows";
      EXPECT_GT(memory.residuals, 0);
    }
  }
}

/// A limit that the formula meets is refused before anything is computed.
TEST(Training, KeepsToTheMemoryLimit) {
  std::vector<float> x = numbers(8 * 1000, 3);
  SessionOptions options;
  options.memoryLimit = 50000; // results 24,000 bytes, residuals 32,000
  Linear limited(options);
  Handle handle;
  Status status = limited.forward(x, handle);
  EXPECT_EQ(status.code, MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(handle, nullptr);
  ASSERT_OK(limited.forward(numbers(8, 1), handle)); // and goes on
}

TEST(Training, AThousandStepsAreFlat) {
  Linear linear;
  UpdateOptions options;
  options.learningRate = 1e-4;
  int64_t held = 0, peak = 0;
  for (int step = 0; step < 1000; ++step) {
    int64_t rows = 20 + step % 7; // sizes that vary a little
    std::vector<float> x = numbers(rows * 8, step), dy = numbers(rows * 6, 2);
    Handle handle;
    ASSERT_OK(linear.forward(x, handle));
    linear.session->zeroGradients();
    ASSERT_OK(linear.accumulate(handle, dy));
    linear.results.clear();
    handle.reset();
    ASSERT_OK(linear.session->update(options));
    MemoryFigures memory = linear.session->memory();
    if (step == 20) {
      held = memory.total();
      peak = memory.peak;
    }
    if (step > 20) {
      EXPECT_EQ(memory.total(), held);
      EXPECT_EQ(memory.peak, peak);
    }
  }
}

} // namespace
