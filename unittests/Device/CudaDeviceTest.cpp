// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The cuda device over a stand-in of the driver: every call with what it needs,
// every error with the call's name.

#include "device/Device.h"
#include "device/cuda/Driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <thread>

#ifdef MOIRA_HAS_CUDA_HEADER
#include <cuda.h>
#endif

using namespace moira;
using namespace moira::runtime;

/// A variable of the stand-in.
template <typename T> static T &fake(const char *name) {
  void *library = dlopen(MOIRA_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  return *static_cast<T *>(dlsym(library, name));
}

static std::unique_ptr<Device> openFake() {
  Result<std::unique_ptr<Device>> device = openCuda(0, MOIRA_FAKE_DRIVER);
  EXPECT_TRUE(device.ok()) << device.status().message;
  return std::move(*device);
}

static const char ptx[] = ".version 8.0\n";

TEST(CudaDeviceTest, needsALibrary) {
  Result<std::unique_ptr<Device>> device = openCuda(0, "no-such-libcuda.so");
  EXPECT_EQ(device.status().code, MOIRA_UNAVAILABLE);
  EXPECT_NE(device.status().message.find("MOIRA_CUDA_LIB"), std::string::npos);
  // Any other library lacks everything.
  device = openCuda(0, "libm.so.6");
  EXPECT_EQ(device.status().code, MOIRA_UNAVAILABLE);
  EXPECT_NE(device.status().message.find("lacks cuInit"), std::string::npos);
}

TEST(CudaDeviceTest, knowsTheGpu) {
  auto device = openFake();
  EXPECT_STREQ(device->kind(), "cuda");
  EXPECT_EQ(device->name(), "stand-in 40");
  EXPECT_EQ(device->architecture(), 90);
  EXPECT_EQ(device->processors(), 7);
  EXPECT_EQ(device->maxShared(), 232448);
  EXPECT_EQ(openCuda(1, MOIRA_FAKE_DRIVER).status().message,
            "CUDA: expected device 1 of 1, got none");
  EXPECT_EQ(fake<int>("fakeContexts"), 1);
  device.reset();
  EXPECT_EQ(fake<int>("fakeContexts"), 0);
}

TEST(CudaDeviceTest, copiesAndOrders) {
  auto device = openFake();
  DeviceQueue first = *device->createQueue(), second = *device->createQueue();
  Event event = *device->createEvent();
  void *a = *device->allocate(16), *b = *device->allocate(16);
  void *empty = *device->allocate(0);
  int32_t in[4] = {1, 2, 3, 4}, out[4] = {};
  EXPECT_TRUE(device->copyIn(a, in, 16, first).ok());
  EXPECT_TRUE(device->record(event, first).ok());
  EXPECT_TRUE(device->wait(second, event).ok());
  EXPECT_TRUE(device->copyWithin(b, a, 16, second).ok());
  EXPECT_TRUE(device->fill(b, 0, 4, second).ok());
  EXPECT_TRUE(device->copyOut(out, b, 16, second).ok());
  EXPECT_TRUE(device->copyOut(nullptr, empty, 0, second).ok());
  EXPECT_TRUE(device->synchronize(second).ok());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[3], 4);
  // Another thread has no context until it calls.
  std::thread([&] { EXPECT_TRUE(device->synchronize(first).ok()); }).join();
  for (void *memory : {a, b, empty, static_cast<void *>(nullptr)})
    EXPECT_TRUE(device->release(memory).ok());
  EXPECT_TRUE(device->destroyEvent(event).ok());
  EXPECT_TRUE(device->destroyQueue(first).ok());
  EXPECT_TRUE(device->destroyQueue(second).ok());
  EXPECT_EQ(fake<int>("fakeAllocations"), 0);
  EXPECT_EQ(fake<int>("fakeStreams"), 0);
  EXPECT_EQ(fake<int>("fakeEvents"), 0);
}

TEST(CudaDeviceTest, timesBetweenEvents) {
  auto device = openFake();
  DeviceQueue queue = *device->createQueue();
  Event first = *device->createTimedEvent();
  Event second = *device->createTimedEvent();
  Event untimed = *device->createEvent();
  EXPECT_TRUE(device->record(first, queue).ok());
  EXPECT_EQ(device->secondsBetween(first, second).status().message,
            "cuEventElapsedTime: an unknown error (400): refused");
  EXPECT_TRUE(device->record(second, queue).ok());
  // The stand-in's clock ticks once for each record.
  EXPECT_DOUBLE_EQ(*device->secondsBetween(first, second), 1e-3);
  EXPECT_TRUE(device->record(untimed, queue).ok());
  EXPECT_FALSE(device->secondsBetween(first, untimed).ok());
  for (Event event : {first, second, untimed})
    EXPECT_TRUE(device->destroyEvent(event).ok());
  EXPECT_TRUE(device->destroyQueue(queue).ok());
  EXPECT_EQ(fake<int>("fakeEvents"), 0);
}

TEST(CudaDeviceTest, launches) {
  auto device = openFake();
  DeviceQueue queue = *device->createQueue();
  int32_t *values = static_cast<int32_t *>(*device->allocate(16));
  int32_t in[4] = {1, 2, 3, 4}, factor = 5;
  EXPECT_TRUE(device->copyIn(values, in, 16, queue).ok());
  auto module = *device->load(ptx, sizeof(ptx) - 1);
  auto kernel = *device->find(module, "scale");
  LaunchShape shape;
  shape.grid.x = 2;
  shape.block.x = 2;
  std::vector<KernelArgument> arguments = {KernelArgument::of(values),
                                           KernelArgument::of(factor)};
  EXPECT_TRUE(device->launch(*kernel, shape, arguments, queue).ok());
  EXPECT_EQ(fake<unsigned>("fakeCluster"), 0u);
  // Large shared memory is asked for first.
  shape.dynamicShared = 100 << 10;
  shape.cluster.x = 2;
  shape.programmatic = true;
  EXPECT_TRUE(device->launch(*kernel, shape, arguments, queue).ok());
  EXPECT_EQ(fake<unsigned>("fakeShared"), 100u << 10);
  EXPECT_EQ(fake<unsigned>("fakeCluster"), 2u);
  EXPECT_EQ(fake<unsigned>("fakeProgrammatic"), 1u);
  EXPECT_TRUE(device->copyOut(in, values, 16, queue).ok());
  EXPECT_TRUE(device->synchronize(queue).ok());
  EXPECT_EQ(in[3], 100);
  shape.dynamicShared = 240 << 10;
  EXPECT_EQ(device->launch(*kernel, shape, arguments, queue).message,
            "kernel scale: expected at most 232448 bytes of shared memory, got "
            "245760");
  EXPECT_TRUE(device->release(values).ok());
  EXPECT_TRUE(device->destroyQueue(queue).ok());
  kernel.reset();
  module.reset();
  EXPECT_EQ(fake<int>("fakeModules"), 0);
}

TEST(CudaDeviceTest, namesTheCallThatFailed) {
  auto device = openFake();
  fake<int>("fakeFailures") = 1;
  Result<void *> memory = device->allocate(4);
  EXPECT_EQ(memory.status().code, MOIRA_OUT_OF_MEMORY);
  EXPECT_EQ(memory.status().message,
            "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  EXPECT_FALSE(device->allocate(-1).ok());
  EXPECT_EQ(device->load("text", 4).status().message,
            "cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218): refused (line "
            "1: no version)");
  auto module = *device->load(ptx, sizeof(ptx) - 1);
  EXPECT_EQ(device->find(module, "other").status().message,
            "kernel other: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500): "
            "refused");
  EXPECT_EQ(device->synchronize(0).message,
            "cuStreamSynchronize: an unknown error (400): refused");
}

TEST(CudaDeviceTest, encodesBoxes) {
  auto device = openFake();
  TensorBox box;
  box.base = reinterpret_cast<void *>(uintptr_t(256));
  box.rank = 3;
  box.sizes[0] = 64;
  box.sizes[1] = 10;
  box.sizes[2] = 4;
  box.strides[0] = 128;
  box.strides[1] = 1280;
  box.box[0] = 64;
  box.box[1] = 8;
  box.box[2] = 1;
  EXPECT_EQ(device->encode(box)->bytes[127], 0x5a);
  const int (&seen)[8] = fake<int[8]>("fakeTensor");
  const int expected[8] = {9, 3, 4, 1280, 1, 1, 3, 2};
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(seen[i], expected[i]) << i;
  box.isFloat16 = true;
  box.swizzleBytes = 64;
  EXPECT_TRUE(device->encode(box).ok());
  EXPECT_EQ(seen[0], 6);
  EXPECT_EQ(seen[6], 2);
  box.base = nullptr;
  EXPECT_FALSE(device->encode(box).ok());
}

TEST(CudaDeviceTest, declaresWhatTheHeaderDeclares) {
#ifndef MOIRA_HAS_CUDA_HEADER
  GTEST_SKIP() << "no cuda.h on this machine";
#else
  static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
  static_assert(offsetof(cuda::LaunchConfig, attributeCount) ==
                offsetof(CUlaunchConfig, numAttrs));
  static_assert(offsetof(cuda::LaunchConfig, stream) ==
                offsetof(CUlaunchConfig, hStream));
  static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
  static_assert(offsetof(cuda::LaunchAttribute, value) ==
                offsetof(CUlaunchAttribute, value));
  static_assert(sizeof(EncodedTensor) == sizeof(CUtensorMap));
  EXPECT_EQ(int(cuda::AttributeProcessors),
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(int(cuda::AttributeMajor),
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(int(cuda::AttributeMinor),
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(int(cuda::AttributeMaxShared),
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(int(cuda::FunctionMaxDynamicShared),
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(int(cuda::JitErrorLogBuffer), CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(int(cuda::JitErrorLogBytes), CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  EXPECT_EQ(int(cuda::LaunchCluster), CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(int(cuda::LaunchProgrammatic),
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(int(cuda::TensorFloat16), CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  EXPECT_EQ(int(cuda::TensorFloat32), CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
  EXPECT_EQ(int(cuda::TensorUint8), CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(int(cuda::TensorBFloat16), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(int(cuda::TensorPromotion128), CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(int(cuda::StreamNonBlocking), CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(int(cuda::EventDisableTiming), CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(CU_TENSOR_MAP_SWIZZLE_128B, 3);
#endif
}
