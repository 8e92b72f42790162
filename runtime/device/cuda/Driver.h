// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of NVIDIA's driver API that the cuda device uses, declared here so
// that the device is in every build, and loaded at run time. A test compares
// the declarations with cuda.h where there is one.

#ifndef MOIRA_RUNTIME_DEVICE_CUDA_DRIVER_H
#define MOIRA_RUNTIME_DEVICE_CUDA_DRIVER_H

#include "base/Status.h"

#include <cstddef>
#include <cstdint>

namespace moira::runtime::cuda {

using Address = unsigned long long;

enum : int {
  AttributeProcessors = 16,
  AttributeMajor = 75,
  AttributeMinor = 76,
  AttributeMaxShared = 97,
  FunctionMaxDynamicShared = 8,
  JitErrorLogBuffer = 5,
  JitErrorLogBytes = 6,
  LaunchCluster = 4,
  LaunchProgrammatic = 6,
  TensorFloat16 = 6,
  TensorFloat32 = 7,
  TensorUint8 = 0,
  TensorBFloat16 = 9,
  TensorPromotion128 = 2,
  StreamNonBlocking = 1,
  EventDisableTiming = 2,
  CaptureThreadLocal = 1
};

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char pad[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic;
  } value;
};

struct LaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

/// X(member, symbol, parameters): every function returns 0 or an error.
#define MOIRA_DRIVER_FUNCTIONS(X)                                              \
  X(init, cuInit, (unsigned flags))                                            \
  X(deviceCount, cuDeviceGetCount, (int *count))                               \
  X(deviceGet, cuDeviceGet, (int *device, int ordinal))                        \
  X(deviceName, cuDeviceGetName, (char *name, int bytes, int device))          \
  X(deviceAttribute, cuDeviceGetAttribute,                                     \
    (int *value, int attribute, int device))                                   \
  X(retainContext, cuDevicePrimaryCtxRetain, (void **context, int device))     \
  X(releaseContext, cuDevicePrimaryCtxRelease_v2, (int device))                \
  X(setContext, cuCtxSetCurrent, (void *context))                              \
  X(allocate, cuMemAlloc_v2, (Address * memory, size_t bytes))                 \
  X(release, cuMemFree_v2, (Address memory))                                   \
  X(createStream, cuStreamCreate, (void **stream, unsigned flags))             \
  X(destroyStream, cuStreamDestroy_v2, (void *stream))                         \
  X(synchronizeStream, cuStreamSynchronize, (void *stream))                    \
  X(waitEvent, cuStreamWaitEvent, (void *stream, void *event, unsigned flags)) \
  X(createEvent, cuEventCreate, (void **event, unsigned flags))                \
  X(destroyEvent, cuEventDestroy_v2, (void *event))                            \
  X(recordEvent, cuEventRecord, (void *event, void *stream))                   \
  X(elapsedTime, cuEventElapsedTime,                                           \
    (float *milliseconds, void *first, void *second))                          \
  X(beginCapture, cuStreamBeginCapture_v2, (void *stream, int mode))           \
  X(endCapture, cuStreamEndCapture, (void *stream, void **graph))              \
  X(instantiateGraph, cuGraphInstantiateWithFlags,                             \
    (void **instance, void *graph, unsigned long long flags))                  \
  X(destroyGraph, cuGraphDestroy, (void *graph))                               \
  X(launchGraph, cuGraphLaunch, (void *instance, void *stream))                \
  X(destroyInstance, cuGraphExecDestroy, (void *instance))                     \
  X(copyIn, cuMemcpyHtoDAsync_v2,                                              \
    (Address to, const void *from, size_t bytes, void *stream))                \
  X(copyOut, cuMemcpyDtoHAsync_v2,                                             \
    (void *to, Address from, size_t bytes, void *stream))                      \
  X(copyWithin, cuMemcpyDtoDAsync_v2,                                          \
    (Address to, Address from, size_t bytes, void *stream))                    \
  X(fill, cuMemsetD8Async,                                                     \
    (Address to, unsigned char value, size_t bytes, void *stream))             \
  X(loadModule, cuModuleLoadDataEx,                                            \
    (void **module, const void *image, unsigned count, int *options,           \
     void **values))                                                           \
  X(unloadModule, cuModuleUnload, (void *module))                              \
  X(findFunction, cuModuleGetFunction,                                         \
    (void **function, void *module, const char *name))                         \
  X(setFunctionAttribute, cuFuncSetAttribute,                                  \
    (void *function, int attribute, int value))                                \
  X(launch, cuLaunchKernelEx,                                                  \
    (const LaunchConfig *config, void *function, void **parameters,            \
     void **extra))                                                            \
  X(encodeTensor, cuTensorMapEncodeTiled,                                      \
    (void *map, int type, unsigned rank, void *base, const uint64_t *sizes,    \
     const uint64_t *strides, const uint32_t *box, const uint32_t *steps,      \
     int interleave, int swizzle, int promotion, int fill))                    \
  X(errorName, cuGetErrorName, (int error, const char **name))                 \
  X(errorText, cuGetErrorString, (int error, const char **text))

/// The functions of one loaded driver.
struct Driver {
  /// Loads `file`, or $MOIRA_CUDA_LIB, or libcuda.so.1; it stays loaded.
  static Result<Driver> load(const std::string &file);

  /// The status of a call: its name, the error's name and text.
  Status check(int error, const char *symbol) const;

#define MOIRA_DRIVER_MEMBER(member, symbol, parameters)                        \
  int(*member) parameters = nullptr;
  MOIRA_DRIVER_FUNCTIONS(MOIRA_DRIVER_MEMBER)
#undef MOIRA_DRIVER_MEMBER
};

} // namespace moira::runtime::cuda

#endif // MOIRA_RUNTIME_DEVICE_CUDA_DRIVER_H
