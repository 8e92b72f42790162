/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The contract between GPU kernels compiled for the host (pass
 * `moe-emulate-nvvm`) and the emulated device that runs them. One compiled GPU
 * module is one object with one exported symbol, MOIRA_EMU_MODULE_PREFIX +
 * name, a moira_emu_module. Its code reaches the emulator through `table`,
 * which who loads it fills before the first launch, in the order of
 * MOIRA_EMU_FUNCTIONS.
 *
 * The last argument of every function, `site`, is an index into `sites`: which
 * op calls, and where it stands in the source. Pointers into shared memory are
 * host addresses; where a kernel takes one as an integer it gets the offset
 * into the shared window, as on the hardware. */

#ifndef MOIRA_EMULATOR_ABI_H
#define MOIRA_EMULATOR_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with any change of this file; others are refused. */
#define MOIRA_EMU_VERSION 2
#define MOIRA_EMU_MODULE_PREFIX "moira_emu_module_"

/* Memory that a pointer may lead to. */
enum moira_emu_space {
  MOIRA_EMU_GENERIC = 0,
  MOIRA_EMU_GLOBAL = 1,
  MOIRA_EMU_SHARED = 3
};

enum moira_emu_register {
  MOIRA_EMU_TID_X,
  MOIRA_EMU_TID_Y,
  MOIRA_EMU_TID_Z,
  MOIRA_EMU_NTID_X,
  MOIRA_EMU_NTID_Y,
  MOIRA_EMU_NTID_Z,
  MOIRA_EMU_CTAID_X,
  MOIRA_EMU_CTAID_Y,
  MOIRA_EMU_CTAID_Z,
  MOIRA_EMU_NCTAID_X,
  MOIRA_EMU_NCTAID_Y,
  MOIRA_EMU_NCTAID_Z,
  MOIRA_EMU_LANEID,
  MOIRA_EMU_WARPSIZE
};

enum moira_emu_shuffle { /* as NVVM::ShflKind */
                         MOIRA_EMU_SHUFFLE_BFLY,
                         MOIRA_EMU_SHUFFLE_UP,
                         MOIRA_EMU_SHUFFLE_DOWN,
                         MOIRA_EMU_SHUFFLE_IDX
};

enum moira_emu_vote { /* as NVVM::VoteSyncKind */
                      MOIRA_EMU_VOTE_ANY,
                      MOIRA_EMU_VOTE_ALL,
                      MOIRA_EMU_VOTE_BALLOT,
                      MOIRA_EMU_VOTE_UNI
};

enum moira_emu_element { MOIRA_EMU_F16, MOIRA_EMU_BF16 };

/* X(name, result, parameters): `table[i]` is the i-th of this list.
 *
 * `store` comes before the store; `value` is what will be stored, or NULL.
 *
 * matrix operands: `ldmatrix` and `stmatrix` take `count` 8x8 matrices of 16
 * bits, one i32 per lane and matrix in `registers`. `mma` is m16n8k16 with
 * accumulators in f32: registers 0-3 are A, 4-5 B, 6-9 C and, afterwards, D.
 * `wgmma` is m64 n k16: `sums` holds n/2 f32 per thread; `form` packs scale-d
 * (bit 0), negate A and B (1, 2), transposed A and B (3, 4) and the element
 * type (from bit 8). Coordinates of tensor maps stand innermost first. */
#define MOIRA_EMU_FUNCTIONS(X)                                                 \
  X(special, int32_t, (int32_t which, int32_t site))                           \
  X(shared_address, void *, (int64_t offset))                                  \
  X(shared_offset, int64_t, (void *address))                                   \
  X(load, void, (void *at, int32_t bytes, int32_t space, int32_t site))        \
  X(store, void,                                                               \
    (void *at, const void *value, int32_t bytes, int32_t space, int32_t site)) \
  X(atomic, void, (void *at, int32_t bytes, int32_t space, int32_t site))      \
  X(barrier, void, (int32_t id, int32_t threads, int32_t site))                \
  X(barrier_arrive, void, (int32_t id, int32_t threads, int32_t site))         \
  X(sync_warp, void, (int32_t mask, int32_t site))                             \
  X(shuffle, int64_t,                                                          \
    (int32_t kind, int32_t mask, int32_t value, int32_t offset, int32_t clamp, \
     int32_t site))                                                            \
  X(vote, int32_t, (int32_t kind, int32_t mask, int32_t value, int32_t site))  \
  X(elect, int32_t, (int32_t mask, int32_t site))                              \
  X(cp_async, void,                                                            \
    (void *to, void *from, int32_t size, int32_t bytes, int32_t site))         \
  X(cp_async_commit, void, (int32_t site))                                     \
  X(cp_async_wait, void, (int32_t left, int32_t site))                         \
  X(ldmatrix, void,                                                            \
    (void *row, int32_t count, int32_t transposed, uint32_t *registers,        \
     int32_t site))                                                            \
  X(stmatrix, void,                                                            \
    (void *row, int32_t count, int32_t transposed, uint32_t *registers,        \
     int32_t site))                                                            \
  X(mma, void, (int32_t element, uint32_t *registers, int32_t site))           \
  X(mbarrier_init, void, (void *at, int32_t count, int32_t site))              \
  X(mbarrier_inval, void, (void *at, int32_t site))                            \
  X(mbarrier_expect, void, (void *at, int32_t bytes, int32_t site))            \
  X(mbarrier_arrive, int64_t, (void *at, int32_t count, int32_t site))         \
  X(mbarrier_arrive_expect, int64_t, (void *at, int32_t bytes, int32_t site))  \
  X(mbarrier_wait, void, (void *at, int32_t parity, int32_t site))             \
  X(mbarrier_test, int32_t, (void *at, int64_t token, int32_t site))           \
  X(fence_mbarrier_init, void, (int32_t site))                                 \
  X(fence_proxy, void, (int32_t site))                                         \
  X(tensor_load, void,                                                         \
    (void *to, void *map, void *mbarrier, int32_t rank, int32_t *coordinates,  \
     int32_t site))                                                            \
  X(tensor_store, void,                                                        \
    (void *map, void *from, int32_t rank, int32_t *coordinates, int32_t site)) \
  X(bulk_commit, void, (int32_t site))                                         \
  X(bulk_wait, void, (int32_t left, int32_t site))                             \
  X(wgmma, void,                                                               \
    (float *sums, int64_t a, int64_t b, int32_t n, int32_t form,               \
     int32_t site))                                                            \
  X(wgmma_fence, void, (int32_t site))                                         \
  X(wgmma_commit, void, (int32_t site))                                        \
  X(wgmma_wait, void, (int32_t left, int32_t site))                            \
  X(wgmma_use, void, (int32_t site))                                           \
  X(trap, void, (int32_t site))

enum moira_emu_function {
#define MOIRA_EMU_ENUM(name, result, parameters) MOIRA_EMU_FN_##name,
  MOIRA_EMU_FUNCTIONS(MOIRA_EMU_ENUM)
#undef MOIRA_EMU_ENUM
      MOIRA_EMU_FUNCTION_COUNT
};

typedef struct moira_emu_kernel {
  const char *name;
  /* Runs one GPU thread; arguments as cuLaunchKernel takes them. */
  void (*entry)(void **arguments);
  int64_t shared_bytes;   /* static shared memory */
  int64_t dynamic_offset; /* where dynamic shared memory begins */
  int32_t threads;        /* required per block; 0: any number */
  int32_t parameters;
  const int32_t *parameter_bytes;
} moira_emu_kernel;

typedef struct moira_emu_module {
  int32_t version;
  int32_t functions; /* entries of `table` */
  void **table;
  int32_t kernel_count;
  int32_t site_count;
  const moira_emu_kernel *kernels;
  const char *const *sites; /* "file:line: op" */
} moira_emu_module;

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_EMULATOR_ABI_H */
