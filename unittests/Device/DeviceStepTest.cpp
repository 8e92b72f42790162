// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Steps of a program for a GPU, on the stand-in for the driver: its kernel
// "scale" multiplies i32 by a number.

#include "Runtime/TestProgram.h"
#include "device/Device.h"
#include "moira/device_abi.h"
#include "session/Handles.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

static const char code[] = ".version 8.0\n";

/// Entry "main": x (i32[?]), and a number, to i32[?].
static Manifest manifestOf(const std::string &arch = "sm_80") {
  std::string text = R"({
    "moira": {"version": "0.1.0", "abi": )" +
                     std::to_string(MOIRA_ABI_VERSION) + R"(},
    "entries": [{"name": "main",
      "inputs": [{"name": "x", "dtype": "i32", "shape": [-1]},
                 {"name": "n", "dtype": "i64", "shape": []}],
      "results": [{"dtype": "i32", "shape": [-1]}],
      "layers": [{"index": 0, "experts": 2, "top_k": 1}],
      "variants": [{"name": "only", "step": "step",
                    "workspace": "workspace"}]}],
    "parameters": [{"name": "p", "slices": 1,
      "source": {"dtype": "i32", "shape": [2]}, "stacked": false,
      "logical_shape": [2], "packed_slice_bytes": 8, "pack": "pack"}],
    "device": {"abi": 1,
      "images": [{"name": "kernels", "arch": ")" +
                     arch + R"(", "ptx": [0, 13]}],
      "kernels": [{"name": "scale", "image": 0, "threads": 1, "shared": 0,
                   "parameters": [8, 4]}]}
  })";
  Result<Manifest> manifest = Manifest::parse(text);
  EXPECT_TRUE(manifest.ok()) << manifest.status().message;
  return *manifest;
}

static int64_t workspaceEntry(moira_ctx *, const moira_buffer *) { return 64; }

static void packEntry(moira_ctx *, const void *source, void *packed) {
  memcpy(packed, source, 8);
}

static const moira_device *tableOf(moira_ctx *ctx) {
  return static_cast<const moira_device *>(ctx->queues);
}

/// A copy of x times n times the second element of p, which the host reads.
static void stepEntry(moira_ctx *ctx, const moira_buffer *inputs) {
  const moira_device *device = tableOf(ctx);
  int64_t size = inputs[0].shape[0];
  void *place = ctx->api->alloc(ctx, 0, size * 4);
  void *result = ctx->api->result(ctx, 0, 1, &size);
  if (!place || !result)
    return;
  device->copy(ctx, place, inputs[0].data, size * 4);
  int32_t factor = 0;
  device->read(ctx, &factor, static_cast<const char *>(ctx->params[0].data) + 4,
               4);
  factor *= static_cast<int32_t>(*static_cast<int64_t *>(inputs[1].data));
  void *arguments[] = {&place, &factor};
  device->launch(ctx, 0, size, arguments);
  device->launch(ctx, 0, 0, arguments); // no block: nothing
  device->copy(ctx, result, place, size * 4);
  // Two numbers, of memory of the device.
  int64_t counts = (int64_t(3) << 32) | 5;
  void *loads = ctx->api->alloc(ctx, 0, 8);
  device->write(ctx, loads, &counts, 8);
  counts = 0; // it was read at once
  ctx->api->loads(ctx, 0, 2, static_cast<int32_t *>(loads),
                  static_cast<int32_t *>(loads));
}

static std::shared_ptr<const Program> programOf(Manifest manifest,
                                                moira_step_entry step) {
  auto resolve = [&](const char *symbol) -> void * {
    std::string name = symbol;
    if (name == "step")
      return reinterpret_cast<void *>(step);
    if (name == "workspace")
      return reinterpret_cast<void *>(&workspaceEntry);
    return name == "pack" ? reinterpret_cast<void *>(&packEntry) : nullptr;
  };
  Result<std::shared_ptr<const Program>> program = Program::create(
      std::move(manifest), resolve, nullptr, {}, std::string_view(code));
  EXPECT_TRUE(program.ok()) << program.status().message;
  return *program;
}

/// Copies between host and device that the stand-in has made.
static int fakeCopies() {
  void *library = dlopen(MOIRA_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  return *static_cast<int *>(dlsym(library, "fakeCopies"));
}

static SessionOptions optionsWithDevice() {
  Result<std::unique_ptr<Device>> device = openCuda(0, MOIRA_FAKE_DRIVER);
  EXPECT_TRUE(device.ok()) << device.status().message;
  SessionOptions options;
  options.device = std::shared_ptr<Device>(std::move(*device));
  return options;
}

static std::unique_ptr<Session> sessionOf(moira_step_entry step) {
  Result<std::unique_ptr<Session>> session =
      Session::create(programOf(manifestOf(), step), optionsWithDevice());
  EXPECT_TRUE(session.ok()) << session.status().message;
  int32_t weights[] = {1, 7};
  EXPECT_OK((*session)->bind("p", {DataType::I32, {2}, weights}));
  return std::move(*session);
}

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

/// Memory of the session's device with these values.
static int32_t *onDevice(Device &device, const std::vector<int32_t> &values) {
  int64_t bytes = int64_t(values.size() * sizeof(int32_t));
  DeviceQueue queue = *device.createQueue();
  void *memory = *device.allocate(bytes);
  EXPECT_OK(device.copyIn(memory, values.data(), bytes, queue));
  EXPECT_OK(device.destroyQueue(queue));
  return static_cast<int32_t *>(memory);
}

TEST(DeviceStepTest, leavesTensorsOnTheDevice) {
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
  int copies = fakeCopies();
  ASSERT_OK((*session)->invoke("main", inputs, results));
  // The parameter, the factor, a number written and two of loads; no input and
  // no result.
  EXPECT_EQ(fakeCopies() - copies, 5);
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

TEST(DeviceStepTest, takesTensorsOfDlpack) {
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
  EXPECT_STREQ(moira_error_message(),
               "CUDA: expected device 1 of 1, got none");
  EXPECT_FALSE(openSession(nullptr));
  EXPECT_STREQ(moira_error_message(),
               "expected a device for a program for a GPU, got none");
  unsetenv("MOIRA_CUDA_LIB");
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
      Program::create(other, resolve, nullptr, {}, std::string_view(code))
          .status(),
      MOIRA_DATA_LOSS,
      "image 'kernels': expected its code within 13 bytes of GPU "
      "code, got a place outside");
}
