// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates against the published recurrences, in f64.

#include "JIT/TrainingProgram.h"

#include "base/Convert.h"
#include "session/Optimizer.h"
#include "session/Residuals.h"

#include <cmath>
#include <map>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

/// One element, in f64.
struct Element {
  double p, m = 0, v = 0;

  void update(const UpdateOptions &o, double g, int64_t step) {
    g *= o.gradientScale;
    if (o.rule == "adamw")
      p *= 1 - o.learningRate * o.weightDecay;
    else
      g += o.weightDecay * p;
    if (o.rule == "sgd") {
      m = o.momentum * m + g;
      p -= o.learningRate * (o.nesterov ? g + o.momentum * m : m);
      return;
    }
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    double first = m / (1 - std::pow(o.beta1, step));
    double second = v / (1 - std::pow(o.beta2, step));
    p -= o.learningRate * first / (std::sqrt(second) + o.epsilon);
  }
};

/// The bias of the linear program under gradients that are known: of `dy`
/// alone.
struct Bias {
  Bias(const std::string &type, int threads)
      : dtype(*parseDataType(type)),
        session(makeSession(program(type), options(threads))) {
    EXPECT_OK(session->bindRandom(7));
    bind(numbers(6, 2));
  }

  static std::shared_ptr<const Program> program(const std::string &type) {
    static std::map<std::string, std::shared_ptr<const Program>> compiled;
    if (!compiled.count(type))
      compiled[type] = compileProgram(linearProgram(type), withOptimizers());
    return compiled[type];
  }
  static SessionOptions options(int threads) {
    SessionOptions options;
    options.threads = threads;
    return options;
  }

  std::vector<char> make(const std::vector<float> &values) const {
    std::vector<char> bytes(values.size() * byteSize(dtype));
    convert(DataType::F32, values.data(), dtype, bytes.data(), values.size());
    return bytes;
  }
  void bind(const std::vector<float> &values) {
    for (float value : values)
      elements.push_back({value / 8});
    std::vector<float> eighths;
    for (float value : values)
      eighths.push_back(value / 8);
    EXPECT_OK(session->bind("b", {DataType::F32, {6}, eighths.data()}));
  }

  /// A step with a zero input: y is the bias.
  std::vector<double> read() {
    std::vector<char> x = make(std::vector<float>(8, 0));
    std::vector<ResultTensor> results;
    EXPECT_OK(
        session->forward("main", {{dtype, {1, 8}, x.data()}}, results, handle));
    std::vector<double> values(6);
    convert(dtype, results[0].data, DataType::F64, values.data(), 6);
    return values;
  }
  void step(const UpdateOptions &options, int seed) {
    read();
    std::vector<float> gradient = numbers(6, seed);
    std::vector<char> dy = make(gradient);
    session->zeroGradients();
    std::vector<ResultTensor> results;
    ASSERT_OK(
        session->accumulate(*handle, {{dtype, {1, 6}, dy.data()}}, results));
    ASSERT_OK(session->update(options));
    for (int i = 0; i < 6; ++i)
      elements[i].update(options, gradient[i], session->updates());
  }

  DataType dtype;
  std::unique_ptr<Session> session;
  std::shared_ptr<const Residuals> handle;
  std::vector<Element> elements;
};

std::vector<UpdateOptions> allOptions() {
  std::vector<UpdateOptions> all(7);
  for (int i = 0; i < 4; ++i)
    all[i].rule = "sgd", all[i].learningRate = 0.05;
  all[1].momentum = 0.9;
  all[2].momentum = 0.9, all[2].nesterov = true, all[2].weightDecay = 0.01;
  all[3].weightDecay = 0.1, all[3].gradientScale = 0.25;
  for (int i = 4; i < 7; ++i)
    all[i].learningRate = 0.02;
  all[4].rule = "adam";
  all[5].rule = "adam", all[5].weightDecay = 0.1, all[5].beta1 = 0.8;
  all[6].rule = "adamw", all[6].weightDecay = 0.1, all[6].beta2 = 0.95;
  return all;
}

/// How far `steps` updates may be off, relative to the values at hand: a few
/// roundings each.
double bound(const std::string &type, int steps) {
  if (type == "f64")
    return steps * 0x1p-50;
  if (type == "f32")
    return steps * 0x1p-21;
  return 0x1p-8; // one rounding, of the master copy
}

class OptimizerOfType : public testing::TestWithParam<const char *> {};

TEST_P(OptimizerOfType, FollowsTheRecurrence) {
  for (const UpdateOptions &options : allOptions()) {
    Bias bias(GetParam(), 1);
    for (int step = 1; step <= 20; ++step) {
      bias.step(options, step % 5);
      std::vector<double> found = bias.read();
      for (int i = 0; i < 6; ++i) {
        double wanted = bias.elements[i].p;
        EXPECT_NEAR(found[i], wanted,
                    bound(GetParam(), step) * std::max(1.0, std::fabs(wanted)))
            << options.rule << " step " << step << " element " << i;
      }
    }
  }
}

TEST_P(OptimizerOfType, GivesTheSameBitsWithAnyThreads) {
  UpdateOptions options;
  options.learningRate = 0.3;
  std::vector<double> first;
  for (int threads : {1, 2, 4}) {
    Bias bias(GetParam(), threads);
    for (int step = 0; step < 5; ++step)
      bias.step(options, step);
    if (threads == 1)
      first = bias.read();
    EXPECT_EQ(bias.read(), first);
  }
}

INSTANTIATE_TEST_SUITE_P(, OptimizerOfType,
                         testing::Values("f32", "bf16", "f64", "f16"),
                         [](const auto &info) { return info.param; });

/// Small steps that a bf16 parameter alone would round away add up.
TEST(Optimizer, MasterCopiesKeepSmallSteps) {
  Bias bias("bf16", 1);
  UpdateOptions options;
  options.rule = "sgd";
  options.learningRate = 1e-4;
  for (int step = 0; step < 400; ++step)
    bias.step(options, 3);
  std::vector<double> found = bias.read();
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(found[i], bias.elements[i].p,
                0x1p-8 * std::max(1.0, std::fabs(bias.elements[i].p)));
  EXPECT_GT(std::fabs(bias.elements[0].p - numbers(6, 2)[0] / 8), 0.01);
}

/// Binding again makes a new parameter, of which no old copy is left.
TEST(Optimizer, BindingEndsTheMasterCopy) {
  Bias bias("bf16", 1);
  UpdateOptions options;
  options.rule = "sgd";
  options.learningRate = 0.5;
  bias.step(options, 1);
  bias.elements.clear();
  bias.bind(numbers(6, 4));
  bias.step(options, 2);
  std::vector<double> found = bias.read();
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(found[i], bias.elements[i].p);
}

TEST(Optimizer, RefusesWrongNumbers) {
  Bias bias("f32", 1);
  auto update = [&](auto change) {
    UpdateOptions options;
    change(options);
    return bias.session->update(options).message;
  };
  using Options = UpdateOptions &;
  EXPECT_EQ(update([](Options o) { o.rule = "lion"; }),
            "optimizer: expected 'sgd', 'adam' or 'adamw', got 'lion'");
  EXPECT_EQ(update([](Options o) { o.learningRate = -1; }),
            "optimizer: expected a learning rate of 0 or more, got -1");
  EXPECT_EQ(update([](Options o) { o.weightDecay = -1; }),
            "optimizer: expected a weight decay of 0 or more, got -1");
  EXPECT_EQ(update([](Options o) { o.gradientScale = NAN; }),
            "optimizer: expected a gradient scale that is finite, got nan");
  EXPECT_EQ(update([](Options o) { o.beta2 = 1; }),
            "optimizer: expected betas in [0, 1), got 1");
  EXPECT_EQ(update([](Options o) { o.epsilon = 0; }),
            "optimizer: expected an epsilon above 0, got 0");
  EXPECT_EQ(update([](Options o) { o.rule = "sgd", o.momentum = 1; }),
            "optimizer: expected a momentum in [0, 1), got 1");
  EXPECT_EQ(update([](Options o) { o.rule = "sgd", o.nesterov = true; }),
            "optimizer: expected a momentum above 0 for nesterov, got 0");
}

TEST(Optimizer, NeedsItsCode) {
  auto session = makeSession(compileProgram(linearProgram("f32")));
  ASSERT_OK(session->bindRandom(1));
  std::vector<float> x = numbers(8, 1), dy = numbers(6, 2);
  std::vector<ResultTensor> results;
  std::shared_ptr<const Residuals> handle;
  ASSERT_OK(session->forward("main", {view(x, {1, 8})}, results, handle));
  results.clear();
  ASSERT_OK(session->accumulate(*handle, {view(dy, {1, 6})}, results));
  EXPECT_EQ(session->update({}).message,
            "expected the code of optimizer 'adamw' for f32 in the program "
            "(moira-compile --optimizer), got none");
}

} // namespace
