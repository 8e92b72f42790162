// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Inputs and results that are on the device.

#include "Device/DeviceProgram.h"
#include "session/Handles.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

TEST(DeviceTensorsTest, leavesTensorsOnTheDevice) {
  SessionOptions options = optionsWithDevice();
  Device &device = *options.device;
  Result<std::unique_ptr<Session>> session =
      Session::create(programOf(manifestOf(), stepEntry), options);
  ASSERT_TRUE(session.ok()) << session.status().message;
  int32_t weights[] = {1, 7};
  EXPECT_OK((*session)->bind("p", {DataType::I32, {2}, weights}));
  int32_t *x = onDevice(device, {1, 2, 3});
  int64_t n = 10;
  std::vector<TensorView> inputs = {{DataType::I32, {3}, x, true},
                                    {DataType::I64, {}, &n}};
  // What the runtime allocates, where it shall.
  std::vector<ResultTensor> results(1);
  results[0].onDevice = true;
  int copies = fakeNumber("fakeCopies");
  ASSERT_OK((*session)->invoke("main", inputs, results));
  // The parameter, the factor, a number written and two of loads; no input and
  // no result.
  EXPECT_EQ(fakeNumber("fakeCopies") - copies, 5);
  int32_t *first = static_cast<int32_t *>(results[0].data);
  EXPECT_EQ(std::vector<int32_t>(first, first + 3),
            (std::vector<int32_t>{70, 140, 210}));
  EXPECT_GT((*session)->statistics().back().deviceSeconds, 0);
  // The same memory again, and memory of the caller.
  ASSERT_OK((*session)->invoke("main", inputs, results));
  EXPECT_EQ(results[0].data, first);
  int32_t *own = onDevice(device, {0, 0, 0});
  std::vector<ResultTensor> given(1);
  given[0] = {DataType::I32, {3}, own, nullptr, true};
  ASSERT_OK((*session)->invoke("main", inputs, given));
  EXPECT_EQ(own[2], 210);
  // A number is read by the host.
  inputs[1].onDevice = true;
  EXPECT_ERROR((*session)->invoke("main", inputs, results),
               MOIRA_INVALID_ARGUMENT,
               "entry 'main': input 1 'n': expected memory of the host, got "
               "memory of a GPU");
  EXPECT_OK(device.release(x));
  EXPECT_OK(device.release(own));
}

/// A tensor of three i32 as DLPack has it.
static DLTensor dlTensor(void *data, int64_t *shape, DLDevice device) {
  DLTensor tensor = {};
  tensor.data = data;
  tensor.device = device;
  tensor.ndim = 1;
  tensor.dtype = {kDLInt, 32, 1};
  tensor.shape = shape;
  return tensor;
}

/// A session of the C API on a device; null where it is refused.
static moira_session *openSession(const char *device) {
  moira_bundle *bundle = wrapProgram(programOf(manifestOf(), stepEntry));
  moira_session_options options = {};
  options.struct_size = sizeof(options);
  options.device = device;
  moira_session *session = nullptr;
  int32_t code = moira_session_create(bundle, &options, &session);
  EXPECT_EQ(code == MOIRA_OK, session != nullptr);
  moira_bundle_close(bundle);
  return session;
}

TEST(DeviceTensorsTest, takesTensorsOfDlpack) {
  setenv("MOIRA_CUDA_LIB", MOIRA_FAKE_DRIVER, 1);
  moira_session *session = openSession("cuda");
  ASSERT_TRUE(session) << moira_error_message();
  int64_t two = 2, three = 3;
  int32_t weights[] = {1, 7}, values[] = {1, 2, 3};
  DLTensor p = dlTensor(weights, &two, {kDLCPU, 0});
  ASSERT_EQ(moira_session_bind(session, "p", &p), MOIRA_OK);
  int64_t n = 10;
  DLTensor number = {};
  number.data = &n;
  number.device = {kDLCPU, 0};
  number.dtype = {kDLInt, 64, 1};
  // The stand-in's memory is the host's.
  DLTensor x = dlTensor(values, &three, {kDLCUDA, 0});
  const DLTensor *inputs[] = {&x, &number};
  DLManagedTensor *result = nullptr;
  ASSERT_EQ(moira_session_invoke(session, "main", inputs, 2, &result, 1),
            MOIRA_OK)
      << moira_error_message();
  EXPECT_EQ(result->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(result->dl_tensor.device.device_id, 0);
  EXPECT_EQ(static_cast<int32_t *>(result->dl_tensor.data)[2], 210);
  // It is an input again, and a place for a result.
  inputs[0] = &result->dl_tensor;
  DLManagedTensor *second = nullptr;
  ASSERT_EQ(moira_session_invoke(session, "main", inputs, 2, &second, 1),
            MOIRA_OK);
  EXPECT_EQ(static_cast<int32_t *>(second->dl_tensor.data)[0], 4900);
  inputs[0] = &x;
  ASSERT_EQ(moira_session_invoke(session, "main", inputs, 2, &second, 1),
            MOIRA_OK);
  EXPECT_EQ(static_cast<int32_t *>(second->dl_tensor.data)[0], 70);
  // From the host to the host.
  x.device = {kDLCPU, 0};
  DLManagedTensor *home = nullptr;
  ASSERT_EQ(moira_session_invoke(session, "main", inputs, 2, &home, 1),
            MOIRA_OK);
  EXPECT_EQ(home->dl_tensor.device.device_type, kDLCPU);
  EXPECT_EQ(static_cast<int32_t *>(home->dl_tensor.data)[1], 140);
  // Another GPU's, and a number that is not the host's.
  x.device = {kDLCUDA, 1};
  EXPECT_EQ(moira_session_invoke(session, "main", inputs, 2, &home, 1),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(),
               "entry 'main': input 0: expected a tensor on the cpu (device "
               "type 1) or number 0 of device type 2, got number 1 of device "
               "type 2");
  x.device = {kDLCUDA, 0};
  number.device = {kDLCUDA, 0};
  EXPECT_EQ(moira_session_invoke(session, "main", inputs, 2, &home, 1),
            MOIRA_INVALID_ARGUMENT);
  EXPECT_STREQ(moira_error_message(),
               "entry 'main': input 1 'n': expected memory of the host, got "
               "memory of a GPU");
  moira_session_destroy(session);
  // Results outlive the session, with their device.
  EXPECT_EQ(static_cast<int32_t *>(result->dl_tensor.data)[2], 210);
  for (DLManagedTensor *tensor : {result, second, home})
    tensor->deleter(tensor);
  for (const char *name : {"tpu", "cuda:", "cuda:x", "cuda:1234", ""}) {
    EXPECT_FALSE(openSession(name));
    EXPECT_EQ(std::string(moira_error_message()),
              concat("device: expected 'cpu', 'cuda', 'cuda:N', 'emulated' or "
                     "'emulated:80', got '",
                     name, "'"));
  }
  EXPECT_FALSE(openSession("cuda:1"));
  EXPECT_STREQ(moira_error_message(), "CUDA: expected device 1 of 1, got none");
  EXPECT_FALSE(openSession(nullptr));
  EXPECT_STREQ(moira_error_message(),
               "expected a device for a program for a GPU, got none");
  unsetenv("MOIRA_CUDA_LIB");
}
