/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs the first entry of a bundle with random parameters and inputs, and
 * prints a checksum of its results and how fast it went. Needs
 * moira/runtime.h and libmoira_runtime, nothing else of Moira.
 */
#include "moira/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TENSORS = 16 };

/* Ends the program unless `code` is MOIRA_OK. */
static void check(int32_t code) {
  if (code == MOIRA_OK)
    return;
  fprintf(stderr, "error: %s\n", moira_error_message());
  exit(1);
}

static void fail(const char *message) {
  fprintf(stderr, "error: %s\n", message);
  exit(1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int64_t bytesOf(const DLTensor *tensor) {
  int64_t bytes = tensor->dtype.bits / 8;
  for (int i = 0; i < tensor->ndim; ++i)
    bytes *= tensor->shape[i];
  return bytes;
}

/* A small pseudo-random number in (-1, 1), the same on every machine. */
static float nextValue(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* The half of a float in (-1, 1), cut off; what is below 2^-14 becomes 0. */
static uint16_t toHalf(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = magnitude < 0x38800000 ? 0 : (magnitude - 0x38000000) >> 13;
  return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)half;
}

/* Writes element `i` of a float type; the others stay 0. */
static void setElement(void *data, int64_t i, int32_t dtype, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if (dtype == MOIRA_F32)
    ((float *)data)[i] = value;
  else if (dtype == MOIRA_F64)
    ((double *)data)[i] = value;
  else if (dtype == MOIRA_BF16) /* the upper half of a float */
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  else if (dtype == MOIRA_F16)
    ((uint16_t *)data)[i] = toHalf(bits);
}

/* A tensor of the given signature; dynamic dims become `rows`. */
static DLTensor makeInput(const moira_tensor_info *info, int64_t rows,
                          uint32_t *state) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.device.device_type = kDLCPU;
  tensor.dtype = info->dlpack;
  tensor.ndim = info->rank;
  tensor.shape = calloc((size_t)info->rank + 1, sizeof(int64_t));
  int64_t count = 1;
  for (int i = 0; i < info->rank; ++i) {
    tensor.shape[i] = info->shape[i] < 0 ? rows : info->shape[i];
    count *= tensor.shape[i];
  }
  tensor.data = calloc((size_t)bytesOf(&tensor) + 1, 1);
  if (!tensor.data)
    fail("out of memory");
  for (int64_t i = 0; i < count; ++i)
    setElement(tensor.data, i, info->dtype, nextValue(state));
  return tensor;
}

/* FNV-1a over the bytes. */
static uint64_t checksum(uint64_t hash, const DLTensor *tensor) {
  const unsigned char *data = tensor->data;
  for (int64_t i = 0; i < bytesOf(tensor); ++i)
    hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash;
}

/* Runs one step and ends its results; returns their checksum. */
static uint64_t step(moira_session *session, const char *entry,
                     const DLTensor *const *inputs, int32_t inputCount,
                     int32_t resultCount) {
  DLManagedTensor *results[MAX_TENSORS] = {0};
  check(moira_session_invoke(session, entry, inputs, inputCount, results,
                             resultCount));
  uint64_t hash = 0xcbf29ce484222325u;
  for (int32_t i = 0; i < resultCount; ++i) {
    hash = checksum(hash, &results[i]->dl_tensor);
    results[i]->deleter(results[i]);
  }
  return hash;
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: %s BUNDLE [ROWS [STEPS]]\n", argv[0]);
    return 1;
  }
  int64_t rows = argc > 2 ? atoll(argv[2]) : 16;
  int64_t steps = argc > 3 ? atoll(argv[3]) : 10;
  if (rows < 0 || steps < 1)
    fail("expected 0 or more rows and at least 1 step");

  moira_bundle *bundle = NULL;
  moira_session *session = NULL;
  check(moira_bundle_open(argv[1], &bundle));
  check(moira_session_create(bundle, NULL, &session));
  check(moira_session_bind_random(session, 1));

  moira_entry_info entry = {.struct_size = sizeof(entry)};
  check(moira_bundle_entry(bundle, 0, &entry));
  if (entry.inputs > MAX_TENSORS || entry.results > MAX_TENSORS)
    fail("the entry has more tensors than this example allows");
  DLTensor inputs[MAX_TENSORS];
  const DLTensor *pointers[MAX_TENSORS];
  uint32_t state = 1;
  for (int32_t i = 0; i < entry.inputs; ++i) {
    moira_tensor_info info = {.struct_size = sizeof(info)};
    check(moira_bundle_input(bundle, 0, i, &info));
    inputs[i] = makeInput(&info, rows, &state);
    pointers[i] = &inputs[i];
  }

  uint64_t hash =
      step(session, entry.name, pointers, entry.inputs, entry.results);
  double begin = seconds();
  for (int64_t i = 0; i < steps; ++i)
    if (step(session, entry.name, pointers, entry.inputs, entry.results) !=
        hash)
      fail("expected the same results in each step, got others");
  double time = (seconds() - begin) / (double)steps;

  moira_memory memory = {.struct_size = sizeof(memory)};
  check(moira_session_memory(session, &memory));
  printf("entry     %s\n", entry.name);
  printf("rows      %" PRId64 "\n", rows);
  printf("checksum  %016" PRIx64 "\n", hash);
  printf("step      %.6f s\n", time);
  printf("speed     %.0f tokens/s\n", (double)rows / time);
  printf("memory    %" PRId64 " bytes at most\n", memory.peak);

  for (int32_t i = 0; i < entry.inputs; ++i) {
    free(inputs[i].data);
    free(inputs[i].shape);
  }
  moira_session_destroy(session);
  moira_bundle_close(bundle);
  return 0;
}
