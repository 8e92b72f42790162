// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A whole model against the same model in PyTorch: the gradients of one step,
// and the losses of ten. test/fixtures/char-moe has what PyTorch gave.

#include "Conformance/CharMoE.h"
#include "Conformance/Training.h"

#include "session/Optimizer.h"
#include "session/Residuals.h"

#include <cmath>

using namespace moira;
using namespace moira::conformance;
using namespace moira::runtime;

namespace {

class CharMoE : public testing::Test {
protected:
  static void SetUpTestSuite() { program = new auto(compileCharMoE()); }
  static void TearDownTestSuite() { delete program; }

  void SetUp() override {
    ASSERT_TRUE(program && *program);
    auto created = Session::create(*program);
    ASSERT_TRUE(created.ok()) << created.status().message;
    session = std::move(*created);
    ASSERT_TRUE(CharWeights(/*seed=*/0).bind(*session));
    text = readText(MOIRA_SOURCE_DIR "/LICENSE");
  }

  /// Forward and backward; `back` runs the way back.
  template <typename Back> void step(const CharBatch &batch, Back back) {
    Shape shape{batch.sequences, 64};
    std::vector<ResultTensor> results;
    std::shared_ptr<const Residuals> handle;
    Status status =
        session->forward("main",
                         {{DataType::I32, shape, batch.tokens.data()},
                          {DataType::I32, shape, batch.targets.data()}},
                         results, handle);
    ASSERT_TRUE(status.ok()) << status.message;
    loss = *static_cast<const float *>(results[0].data);
    // Entropy and balance are results to look at.
    float one = 1, zero = 0;
    std::vector<TensorView> given{{DataType::F32, {}, &one},
                                  {DataType::F32, {}, &zero},
                                  {DataType::F32, {}, &zero}};
    gradients.clear();
    status = back(*handle, given);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  static std::shared_ptr<const Program> *program;
  std::unique_ptr<Session> session;
  std::string text;
  float loss = 0;
  std::vector<ResultTensor> gradients;
};

std::shared_ptr<const Program> *CharMoE::program = nullptr;

TEST_F(CharMoE, GradientsAreThoseOfPyTorch) {
  step(makeCharBatch(text, 0, 0, 4),
       [&](const Residuals &handle, const std::vector<TensorView> &given) {
         return session->backward(handle, given, gradients);
       });
  std::map<std::string, std::vector<double>> expected;
  for (auto &[name, values] : readFixture("gradients.csv"))
    expected[name] = values;
  const Manifest &manifest = session->manifest();
  const EntrySpec &back = manifest.entries[manifest.findEntry("main_backward")];
  ASSERT_EQ(back.results.size(), expected.size());
  ASSERT_EQ(gradients.size(), expected.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const ResultTensor &gradient = gradients[i];
    const std::string &name = back.results[i].gradient->parameter;
    ASSERT_EQ(expected.count(name), 1u) << name;
    int64_t count = 1;
    for (int64_t size : gradient.shape)
      count *= size;
    const float *values = static_cast<const float *>(gradient.data);
    double squares = 0, product = 0;
    for (int64_t j = 0; j < count; ++j) {
      squares += double(values[j]) * values[j];
      product += double(values[j]) * double(j * 7 % 11 - 5);
    }
    double norm = expected[name][0];
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm) << name;
    // A vector of these numbers has about 3.2 times the norm of one of ones.
    EXPECT_NEAR(product, expected[name][1], 3.2e-4 * norm) << name;
  }
}

TEST_F(CharMoE, TrainsAlongPyTorchsCurve) {
  int64_t number = 0;
  for (auto &[name, values] : readFixture("curve.csv")) {
    step(makeCharBatch(text, 0, number++, 4),
         [&](const Residuals &handle, const std::vector<TensorView> &given) {
           session->zeroGradients();
           return session->accumulate(handle, given, gradients);
         });
    EXPECT_NEAR(loss, values[0], 1e-3) << "step " << name;
    Result<double> norm = session->gradientNorm();
    ASSERT_TRUE(norm.ok()) << norm.status().message;
    EXPECT_NEAR(*norm, values[3], 1e-2 * values[3]) << "step " << name;
    UpdateOptions update;
    update.weightDecay = 0.01;
    // As torch.nn.utils.clip_grad_norm_ does.
    update.gradientScale = std::min(1.0, 1 / (*norm + 1e-6));
    Status status = session->update(update);
    ASSERT_TRUE(status.ok()) << status.message;
  }
  EXPECT_EQ(number, 10);
}

} // namespace
