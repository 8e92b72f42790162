/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The contract between host code that launches kernels and the runtime: what
 * `moira_ctx.queues` points to in a step of a program for a GPU. docs/abi.md.
 *
 * In such a step `alloc` and `result` of moira_api give memory of the device
 * (the host's for MOIRA_DEVICE_HOST_WORKER), and `loads` takes it; inputs are
 * copied to the device before the step but for those of rank 0, which stay on
 * the host, and parameters are there. All work goes, in order, into one queue;
 * of the functions below only `read` waits. Errors are sticky as everywhere. */
#ifndef MOIRA_DEVICE_ABI_H
#define MOIRA_DEVICE_ABI_H

#include "moira/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with any change of this file; the manifest says which a program was
 * made for, and others are refused. */
#define MOIRA_DEVICE_ABI_VERSION 1u

/* A box of a compact tensor in global memory, innermost dimension first. What a
 * kernel takes for it, by value, has MOIRA_TENSOR_MAP_BYTES bytes, aligned to
 * 64. */
typedef struct moira_tensor_box {
  void *base;
  int32_t rank;       /* 2 to 5 */
  int32_t is_float16; /* elements have 2 bytes: f16, else bf16 */
  int64_t sizes[5];
  int64_t box[5];
} moira_tensor_box;

enum { MOIRA_TENSOR_MAP_BYTES = 128 };

/* The worker whose memory, for `alloc`, is the host's. */
enum { MOIRA_DEVICE_HOST_WORKER = -1 };

typedef struct moira_device {
  uint32_t abi_version;
  uint32_t struct_size;
  int32_t processors;   /* multiprocessors, at least 1 */
  int32_t architecture; /* 80, 90 */

  /* Queues `grid` blocks of the kernel with this number in the manifest, which
   * says how many threads and how much shared memory a block has. `arguments`
   * point to one value per parameter, copied here. No block: nothing. */
  void (*launch)(moira_ctx *ctx, int64_t kernel, int64_t grid,
                 void *const *arguments);
  /* Fills map[MOIRA_TENSOR_MAP_BYTES]; zeros for a box without elements. */
  void (*encode)(moira_ctx *ctx, const moira_tensor_box *box, void *map);
  /* Queues a copy between two places of the device, apart or equal. */
  void (*copy)(moira_ctx *ctx, void *to, const void *from, int64_t bytes);
  /* Copies to memory of the host, and waits until that has ended. Zeros on
   * failure. */
  void (*read)(moira_ctx *ctx, void *to, const void *from, int64_t bytes);
  /* Queues a copy from memory of the host. Up to 8 bytes are read at once, more
   * stay as they are until the step has ended. */
  void (*write)(moira_ctx *ctx, void *to, const void *from, int64_t bytes);
} moira_device;

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
#define MOIRA_DEVICE_ASSERT(condition) static_assert(condition, #condition)
#else
#define MOIRA_DEVICE_ASSERT(condition) _Static_assert(condition, #condition)
#endif
MOIRA_DEVICE_ASSERT(sizeof(moira_tensor_box) == 96);
MOIRA_DEVICE_ASSERT(offsetof(moira_tensor_box, sizes) == 16);
MOIRA_DEVICE_ASSERT(offsetof(moira_tensor_box, box) == 56);
MOIRA_DEVICE_ASSERT(sizeof(moira_device) == 56);
MOIRA_DEVICE_ASSERT(offsetof(moira_device, processors) == 8);
MOIRA_DEVICE_ASSERT(offsetof(moira_device, launch) == 16);
MOIRA_DEVICE_ASSERT(offsetof(moira_device, write) == 48);
#undef MOIRA_DEVICE_ASSERT

#endif /* MOIRA_DEVICE_ABI_H */
