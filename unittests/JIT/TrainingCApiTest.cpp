// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/training.h, as a program in C uses it.

#include "moira/training.h"

#include "JIT/TrainingProgram.h"
#include "session/Handles.h"

using namespace moira::test;

namespace {

/// A tensor over memory of the caller.
struct Tensor {
  Tensor(std::vector<float> &values, std::vector<int64_t> dims)
      : shape(std::move(dims)) {
    tensor.data = values.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
  }

  std::vector<int64_t> shape;
  DLTensor tensor{};
};

struct CApiTraining : testing::Test {
  CApiTraining() {
    static auto program =
        compileProgram(linearProgram("f32"), withOptimizers());
    bundle = moira::runtime::wrapProgram(program);
    EXPECT_EQ(moira_session_create(bundle, nullptr, &session), MOIRA_OK);
    EXPECT_EQ(moira_session_bind_random(session, 3), MOIRA_OK);
  }
  ~CApiTraining() override {
    moira_session_destroy(session);
    moira_bundle_close(bundle);
  }

  int32_t forward(moira_residuals **residuals) {
    const DLTensor *inputs[] = {&x.tensor};
    DLManagedTensor *results[] = {nullptr};
    int32_t code = moira_session_forward(session, nullptr, inputs, 1, results,
                                         1, residuals);
    if (results[0])
      results[0]->deleter(results[0]);
    return code;
  }

  std::vector<float> xs = numbers(24, 3), dys = numbers(18, 4);
  Tensor x{xs, {3, 8}}, dy{dys, {3, 6}};
  moira_bundle *bundle = nullptr;
  moira_session *session = nullptr;
};

TEST_F(CApiTraining, RunsForwardAndBackward) {
  int32_t count = 0, backward = -1;
  ASSERT_EQ(moira_bundle_own_results(bundle, 0, &count), MOIRA_OK);
  EXPECT_EQ(count, 1);
  ASSERT_EQ(moira_bundle_backward(bundle, 0, &backward), MOIRA_OK);
  EXPECT_EQ(moira_bundle_backward(bundle, backward, &count), MOIRA_NOT_FOUND);
  moira_residuals *residuals = nullptr;
  ASSERT_EQ(forward(&residuals), MOIRA_OK) << moira_error_message();
  const DLTensor *gradients[] = {&dy.tensor};
  DLManagedTensor *results[3] = {};
  ASSERT_EQ(
      moira_session_backward(session, residuals, gradients, 1, results, 3),
      MOIRA_OK)
      << moira_error_message();
  EXPECT_EQ(results[0]->dl_tensor.shape[0], 3);
  // The bias's gradient is the sum of rows.
  auto *bias = static_cast<float *>(results[2]->dl_tensor.data);
  for (int n = 0; n < 6; ++n)
    EXPECT_EQ(bias[n], dys[n] + dys[6 + n] + dys[12 + n]);
  for (DLManagedTensor *result : results)
    result->deleter(result);
  moira_residuals_destroy(residuals);
  moira_residuals_destroy(nullptr);
}

TEST_F(CApiTraining, AccumulatesAndUpdates) {
  moira_residuals *residuals = nullptr;
  ASSERT_EQ(forward(&residuals), MOIRA_OK);
  const DLTensor *gradients[] = {&dy.tensor};
  double one = 0, two = 0;
  // Nobody asks for the gradients of inputs.
  ASSERT_EQ(
      moira_session_accumulate(session, residuals, gradients, 1, nullptr, 0),
      MOIRA_OK)
      << moira_error_message();
  ASSERT_EQ(moira_session_gradient_norm(session, &one), MOIRA_OK);
  DLManagedTensor *dx[1] = {};
  ASSERT_EQ(moira_session_accumulate(session, residuals, gradients, 1, dx, 1),
            MOIRA_OK);
  dx[0]->deleter(dx[0]);
  ASSERT_EQ(moira_session_gradient_norm(session, &two), MOIRA_OK);
  EXPECT_DOUBLE_EQ(two, 2 * one);
  moira_update_options options{};
  options.struct_size = sizeof(options);
  ASSERT_EQ(moira_update_defaults(&options, MOIRA_ADAMW), MOIRA_OK);
  EXPECT_EQ(options.beta2, 0.999);
  EXPECT_EQ(options.gradient_scale, 1);
  options.learning_rate = 0.5;
  ASSERT_EQ(moira_session_update(session, &options), MOIRA_OK)
      << moira_error_message();
  EXPECT_EQ(
      moira_session_accumulate(session, residuals, gradients, 1, nullptr, 0),
      MOIRA_INVALID_ARGUMENT); // parameters have changed
  ASSERT_EQ(moira_session_zero_gradients(session), MOIRA_OK);
  EXPECT_EQ(moira_session_update(session, &options), MOIRA_INVALID_ARGUMENT);
  moira_memory memory{};
  memory.struct_size = sizeof(memory);
  ASSERT_EQ(moira_session_memory(session, &memory), MOIRA_OK);
  EXPECT_GT(memory.residuals, 0);
  EXPECT_GT(memory.training, 0);
  // A handle outlives its session.
  moira_session_destroy(session);
  session = nullptr;
  moira_residuals_destroy(residuals);
}

TEST_F(CApiTraining, RefusesWrongUse) {
  moira_residuals *residuals = nullptr;
  const DLTensor *inputs[] = {&x.tensor};
  DLManagedTensor *results[2] = {};
  EXPECT_EQ(moira_session_forward(nullptr, nullptr, inputs, 1, results, 1,
                                  &residuals),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(), "session: expected a pointer, got null");
  EXPECT_EQ(
      moira_session_forward(session, nullptr, inputs, 1, results, 1, nullptr),
      MOIRA_INVALID_ARGUMENT);
  EXPECT_EQ(moira_session_forward(session, nullptr, inputs, 1, results, 2,
                                  &residuals),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(),
               "entry 'main': expected 1 results, got 2");
  EXPECT_EQ(residuals, nullptr);
  ASSERT_EQ(forward(&residuals), MOIRA_OK);
  EXPECT_EQ(moira_session_backward(session, nullptr, nullptr, 0, nullptr, 0),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_EQ(moira_session_backward(session, residuals, nullptr, 0, nullptr, 0),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(),
               "backward: expected 1 gradients of results, got 0");
  moira_update_options options{};
  EXPECT_EQ(moira_update_defaults(&options, MOIRA_SGD), MOIRA_INVALID_ARGUMENT);
  options.struct_size = sizeof(options);
  EXPECT_EQ(moira_update_defaults(&options, 3), MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(),
               "expected a rule from MOIRA_SGD to MOIRA_ADAMW, got 3");
  EXPECT_EQ(moira_bundle_backward(bundle, 99, nullptr), MOIRA_INVALID_ARGUMENT);
  moira_residuals_destroy(residuals);
}

} // namespace
