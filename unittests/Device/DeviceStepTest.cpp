// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Steps of a program for a GPU, on the stand-in for the driver: its kernel
// "scale" multiplies i32 by a number.

#include "Device/DeviceProgram.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

TEST(DeviceStepTest, runsAStep) {
  auto session = sessionOf(stepEntry);
  std::vector<int32_t> x = {1, 2, 3};
  int64_t n = 10;
  std::vector<TensorView> inputs = {{DataType::I32, {3}, x.data()},
                                    {DataType::I64, {}, &n}};
  for (int round = 0; round < 3; ++round) {
    std::vector<ResultTensor> results;
    ASSERT_OK(session->invoke("main", inputs, results));
    auto *y = static_cast<int32_t *>(results[0].data);
    EXPECT_EQ(std::vector<int32_t>(y, y + 3),
              (std::vector<int32_t>{70, 140, 210}));
  }
  StepRow row = session->statistics().back();
  EXPECT_EQ(row.launches, 1);
  EXPECT_EQ(row.waits, 1); // for the factor
  ASSERT_EQ(row.layers.size(), 1u);
  EXPECT_EQ(row.layers[0].counts, (std::vector<int32_t>{5, 3}));

  // What is bound anew is brought to the device anew.
  int32_t weights[] = {1, 2};
  ASSERT_OK(session->bind("p", {DataType::I32, {2}, weights}));
  std::vector<ResultTensor> results(1);
  std::vector<int32_t> own(3);
  results[0] = {DataType::I32, {3}, own.data(), nullptr};
  ASSERT_OK(session->invoke("main", inputs, results));
  EXPECT_EQ(own, (std::vector<int32_t>{20, 40, 60}));
}

TEST(DeviceStepTest, takesEmptyInputs) {
  auto session = sessionOf(stepEntry);
  int64_t n = 1;
  std::vector<TensorView> inputs = {{DataType::I32, {0}, nullptr},
                                    {DataType::I64, {}, &n}};
  std::vector<ResultTensor> results;
  ASSERT_OK(session->invoke("main", inputs, results));
  EXPECT_EQ(results[0].shape, Shape{0});
  EXPECT_EQ(session->statistics().back().launches, 0);
}

TEST(DeviceStepTest, namesWhatFails) {
  // A number that is no kernel's.
  auto session = sessionOf([](moira_ctx *ctx, const moira_buffer *) {
    tableOf(ctx)->launch(ctx, 3, 1, nullptr);
    // From then on nothing happens, and what is read is zero.
    int32_t seen = 1;
    tableOf(ctx)->read(ctx, &seen, nullptr, 4);
    EXPECT_EQ(seen, 0);
  });
  int32_t x = 1;
  int64_t n = 1;
  std::vector<TensorView> inputs = {{DataType::I32, {1}, &x},
                                    {DataType::I64, {}, &n}};
  std::vector<ResultTensor> results;
  EXPECT_ERROR(session->invoke("main", inputs, results), MOIRA_FAILED,
               "entry 'main': launch: expected one of 1 kernels, got number 3");

  // Of ranks: the host cannot reach the memory of a GPU.
  session = sessionOf([](moira_ctx *ctx, const moira_buffer *inputs) {
    ctx->api->all_gather(ctx, inputs[0].data, 4, inputs[0].data);
  });
  EXPECT_ERROR(session->invoke("main", inputs, results), MOIRA_UNAVAILABLE,
               "entry 'main': all_gather: expected a device whose memory the "
               "host can reach, got stand-in 40");
}

TEST(DeviceStepTest, needsADeviceThatFits) {
  EXPECT_ERROR(Session::create(programOf(manifestOf(), stepEntry)).status(),
               MOIRA_INVALID_ARGUMENT,
               "expected a device for a program for a GPU, got none");
  EXPECT_ERROR(Session::create(testProgram(), optionsWithDevice()).status(),
               MOIRA_INVALID_ARGUMENT,
               "expected a program for a GPU to run on stand-in 40, got one "
               "for the processor");
  EXPECT_ERROR(Session::create(programOf(manifestOf("sm_100a"), stepEntry),
                               optionsWithDevice())
                   .status(),
               MOIRA_UNAVAILABLE,
               "image 'kernels': expected a GPU of sm_100a, got one of sm_90");
  Manifest other = manifestOf();
  other.device->kernels[0].name = "missing";
  Status status =
      Session::create(programOf(other, stepEntry), optionsWithDevice())
          .status();
  EXPECT_EQ(status.code, MOIRA_NOT_FOUND);
  EXPECT_EQ(status.message.find("kernel missing: cuModuleGetFunction"), 0u)
      << status.message;
  other = manifestOf();
  other.device->kernels[0].shared = 1 << 20;
  EXPECT_ERROR(
      Session::create(programOf(other, stepEntry), optionsWithDevice())
          .status(),
      MOIRA_UNAVAILABLE,
      "kernel scale: expected a device with 1048576 bytes of shared memory, "
      "got 232448");
  // Code that is for the emulated device alone.
  other = manifestOf();
  other.device->images[0].ptx = {};
  EXPECT_ERROR(
      Session::create(programOf(other, stepEntry), optionsWithDevice())
          .status(),
      MOIRA_UNAVAILABLE,
      "image 'kernels': expected kernels for cuda, got kernels for the "
      "emulated device alone");
}

TEST(DeviceStepTest, countsMemoryAgainstTheLimit) {
  SessionOptions options = optionsWithDevice();
  options.memoryLimit = 4096;
  Result<std::unique_ptr<Session>> session =
      Session::create(programOf(manifestOf(), stepEntry), options);
  ASSERT_TRUE(session.ok()) << session.status().message;
  int32_t weights[] = {1, 7};
  EXPECT_OK((*session)->bind("p", {DataType::I32, {2}, weights}));
  std::vector<int32_t> x(1024);
  int64_t n = 1;
  std::vector<TensorView> inputs = {{DataType::I32, {1024}, x.data()},
                                    {DataType::I64, {}, &n}};
  std::vector<ResultTensor> results;
  Status status = (*session)->invoke("main", inputs, results);
  EXPECT_EQ(status.code, MOIRA_OUT_OF_MEMORY) << status.message;
}

TEST(DeviceStepTest, refusesCodeOutsideTheSection) {
  Manifest other = manifestOf();
  other.device->images[0].ptx = {10, 14};
  auto resolve = [](const char *) -> void * { return nullptr; };
  EXPECT_ERROR(
      Program::create(other, resolve, nullptr, {}, std::string_view(deviceCode))
          .status(),
      MOIRA_DATA_LOSS,
      "image 'kernels': expected its code within 13 bytes of GPU "
      "code, got a place outside");
}
