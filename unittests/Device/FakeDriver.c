/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

// Takes the place of libcuda.so.1 without a GPU: memory is the host's, work is
// done at once, and a kernel called "scale" multiplies i32 by a number. What a
// test wants to see goes into the variables at the end.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Where MOIRA_FAKE_DRIVER_LOG names a file, calls that a step makes are written
 * there, any image and kernel is taken, and kernels do nothing. */
static int logged(const char *call, const char *detail) {
  const char *path = getenv("MOIRA_FAKE_DRIVER_LOG");
  if (!path)
    return 0;
  FILE *file = fopen(path, "a");
  if (file) {
    fprintf(file, "%s%s%s\n", call, *detail ? " " : "", detail);
    fclose(file);
  }
  return 1;
}

EXPORT int fakeFailures; /* how many calls of cuMemAlloc fail next */
EXPORT unsigned fakeShared, fakeCluster, fakeProgrammatic;
EXPORT int fakeAllocations, fakeStreams, fakeEvents, fakeModules, fakeContexts;
EXPORT int fakeTensor[8];
EXPORT int fakeCopies; /* between host and device */
static int fakeCapturing;

EXPORT int cuInit(unsigned flags) { return flags ? 1 : 0; }

EXPORT int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + 40;
  return 0;
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
  snprintf(name, bytes, "stand-in %d", device);
  return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
  case 16:
    *value = 7;
    return 0;
  case 75:
    *value = 9;
    return 0;
  case 76:
    *value = 0;
    return 0;
  case 97:
    *value = 232448;
    return 0;
  }
  return device ? 1 : 2;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  ++fakeContexts;
  *context = &fakeContexts;
  return device == 40 ? 0 : 101;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  --fakeContexts;
  return device == 40 ? 0 : 101;
}

EXPORT int cuCtxSetCurrent(void *context) {
  return context == &fakeContexts ? 0 : 201;
}

EXPORT int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
  if (fakeFailures > 0) {
    --fakeFailures;
    return 2;
  }
  if (!bytes)
    return 1;
  if (fakeCapturing)
    return 900; /* as drivers do in mode 1 */
  ++fakeAllocations;
  *memory = (unsigned long long)(uintptr_t)malloc(bytes);
  return 0;
}

EXPORT int cuMemFree_v2(unsigned long long memory) {
  --fakeAllocations;
  free((void *)(uintptr_t)memory);
  return 0;
}

EXPORT int cuStreamCreate(void **stream, unsigned flags) {
  ++fakeStreams;
  *stream = malloc(1);
  return flags == 1 ? 0 : 1;
}

EXPORT int cuStreamDestroy_v2(void *stream) {
  --fakeStreams;
  free(stream);
  return 0;
}

EXPORT int cuStreamSynchronize(void *stream) {
  if (fakeCapturing)
    return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
  logged("cuStreamSynchronize", "");
  return stream ? 0 : 400;
}

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return stream && event && !flags ? 0 : 400;
}

/* A timed event is the number of its record, in an int. */
EXPORT int cuEventCreate(void **event, unsigned flags) {
  ++fakeEvents;
  int *made = malloc(sizeof(int));
  *made = flags == 2 ? -1 : 0;
  *event = made;
  return flags == 2 || flags == 0 ? 0 : 1;
}

EXPORT int cuEventDestroy_v2(void *event) {
  --fakeEvents;
  free(event);
  return 0;
}

EXPORT int cuEventRecord(void *event, void *stream) {
  static int records;
  logged("cuEventRecord", "");
  if (event && *(int *)event >= 0)
    *(int *)event = ++records;
  return event && stream ? 0 : 400;
}

EXPORT int cuEventElapsedTime(float *milliseconds, void *first, void *second) {
  int from = *(int *)first, to = *(int *)second;
  *milliseconds = (float)(to - from);
  return from > 0 && to > 0 ? 0 : 400;
}

/* Of a stream that captures, launches of "scale" are kept instead of done, and
 * copies are done at once: those that tests keep have nothing new to copy. */
EXPORT int fakeCaptures, fakeGraphs, fakeGraphLaunches, fakeGraphFailures;
static struct {
  int32_t *values, factor;
  unsigned count;
} fakeKept[8];
static int fakeKeptCount;

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) {
  logged("cuStreamBeginCapture", "");
  ++fakeCaptures;
  fakeKeptCount = 0;
  fakeCapturing = 1;
  return stream && mode == 1 ? 0 : 400;
}

/* A graph is the last thing that was kept. */
EXPORT int cuStreamEndCapture(void *stream, void **graph) {
  logged("cuStreamEndCapture", "");
  fakeCapturing = 0;
  *graph = &fakeKept;
  return stream ? 0 : 400;
}

EXPORT int cuGraphInstantiateWithFlags(void **instance, void *graph,
                                       unsigned long long flags) {
  if (fakeGraphFailures > 0) {
    --fakeGraphFailures;
    return 2;
  }
  ++fakeGraphs;
  *instance = graph;
  return flags ? 1 : 0;
}

EXPORT int cuGraphDestroy(void *graph) { return graph ? 0 : 400; }

EXPORT int cuGraphExecDestroy(void *instance) {
  --fakeGraphs;
  return instance ? 0 : 400;
}

EXPORT int cuGraphLaunch(void *instance, void *stream) {
  logged("cuGraphLaunch", "");
  ++fakeGraphLaunches;
  for (int k = 0; k < fakeKeptCount; ++k)
    for (unsigned i = 0; i < fakeKept[k].count; ++i)
      fakeKept[k].values[i] *= fakeKept[k].factor;
  return instance && stream ? 0 : 400;
}

EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from,
                                size_t bytes, void *stream) {
  ++fakeCopies;
  logged("cuMemcpyHtoDAsync", "");
  memcpy((void *)(uintptr_t)to, from, bytes);
  return stream ? 0 : 400;
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                                void *stream) {
  ++fakeCopies;
  logged("cuMemcpyDtoHAsync", "");
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return stream ? 0 : 400;
}

EXPORT int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from,
                                size_t bytes, void *stream) {
  memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
  return stream ? 0 : 400;
}

EXPORT int cuMemsetD8Async(unsigned long long to, unsigned char value,
                           size_t bytes, void *stream) {
  memset((void *)(uintptr_t)to, value, bytes);
  return stream ? 0 : 400;
}

EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                              int *options, void **values) {
  if (!logged("cuModuleLoadDataEx", "") && strncmp(image, ".version", 8)) {
    if (count == 2 && options[0] == 5 && options[1] == 6)
      snprintf(values[0], (size_t)(uintptr_t)values[1],
               "line 1: no version\nline 2");
    return 218;
  }
  ++fakeModules;
  *module = &fakeModules;
  return 0;
}

EXPORT int cuModuleUnload(void *module) {
  --fakeModules;
  return module == &fakeModules ? 0 : 400;
}

EXPORT int cuModuleGetFunction(void **function, void *module,
                               const char *name) {
  *function = module;
  if (logged("cuModuleGetFunction", name))
    return 0;
  return strcmp(name, "scale") ? 500 : 0;
}

EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
  fakeShared = (unsigned)value;
  return function == &fakeModules && attribute == 8 ? 0 : 400;
}

struct Attribute {
  int id;
  char pad[4];
  unsigned value[16];
};

struct Config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct Attribute *attributes;
  unsigned count;
};

EXPORT int cuLaunchKernelEx(const struct Config *config, void *function,
                            void **parameters, void **extra) {
  if (!config->stream || function != &fakeModules || extra ||
      config->shared > (48u << 10 > fakeShared ? 48u << 10 : fakeShared))
    return 1;
  if (logged("cuLaunchKernelEx", ""))
    return 0;
  fakeCluster = fakeProgrammatic = 0;
  for (unsigned i = 0; i < config->count; ++i) {
    if (config->attributes[i].id == 4)
      fakeCluster = config->attributes[i].value[0];
    if (config->attributes[i].id == 6)
      fakeProgrammatic = config->attributes[i].value[0];
  }
  int32_t *values = *(int32_t **)parameters[0];
  int32_t factor = *(int32_t *)parameters[1];
  if (fakeCapturing && fakeKeptCount < 8) {
    fakeKept[fakeKeptCount].values = values;
    fakeKept[fakeKeptCount].factor = factor;
    fakeKept[fakeKeptCount++].count = config->grid[0] * config->block[0];
    return 0;
  }
  for (unsigned i = 0; i < config->grid[0] * config->block[0]; ++i)
    values[i] *= factor;
  return 0;
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, unsigned rank,
                                  void *base, const uint64_t *sizes,
                                  const uint64_t *strides, const uint32_t *box,
                                  const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  memset(map, 0x5a, 128);
  const int seen[] = {type,
                      (int)rank,
                      (int)sizes[rank - 1],
                      (int)strides[rank - 2],
                      (int)box[rank - 1],
                      (int)steps[0],
                      swizzle,
                      promotion};
  memcpy(fakeTensor, seen, sizeof(seen));
  return base && !interleave && !fill ? 0 : 1;
}

EXPORT int cuGetErrorName(int error, const char **name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 218 ? "CUDA_ERROR_INVALID_PTX"
          : error == 500 ? "CUDA_ERROR_NOT_FOUND"
                         : 0;
  return *name ? 0 : 1;
}

EXPORT int cuGetErrorString(int error, const char **text) {
  *text = error == 2 ? "out of memory" : "refused";
  return 0;
}
