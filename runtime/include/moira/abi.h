/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/abi.h: the whole contract between generated code and the runtime.
 *
 * Generated code has no undefined symbol of ours: whatever it needs it reaches
 * through `ctx->api`. It keeps no mutable globals, since ranks may be threads.
 * This header needs only <stddef.h> and <stdint.h>; layouts are pinned by the
 * assertions below, and a change of any of them raises MOIRA_ABI_VERSION.
 *
 * Errors are sticky. The first failure sets ctx->error; from then on every
 * function of the table is a no-op that returns NULL, and generated code
 * returns at the next allocation. The session reads the error at the end of
 * the step. Nothing unwinds.
 *
 * docs/abi.md explains the design.
 */
#ifndef MOIRA_ABI_H
#define MOIRA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOIRA_ABI_VERSION 1u

typedef struct moira_ctx moira_ctx;

/* Status codes of ctx->error and of every function of runtime.h. */
enum {
  MOIRA_OK = 0,
  MOIRA_INVALID_ARGUMENT = 1, /* the caller's operands do not fit */
  MOIRA_OUT_OF_MEMORY = 2,    /* includes the session's memory limit */
  MOIRA_NOT_FOUND = 3,        /* file, entry, parameter or variant */
  MOIRA_DATA_LOSS = 4,        /* corrupt or truncated file */
  MOIRA_VERSION = 5,          /* other bundle or ABI version */
  MOIRA_UNAVAILABLE = 6,      /* device or feature absent here */
  MOIRA_FAILED = 7            /* a check inside a step failed */
};

/* Element types that cross the border. Values are stable. */
enum {
  MOIRA_F32 = 0,
  MOIRA_F64 = 1,
  MOIRA_F16 = 2,
  MOIRA_BF16 = 3,
  MOIRA_I1 = 4, /* one byte per element, 0 or 1 */
  MOIRA_I8 = 5,
  MOIRA_I32 = 6,
  MOIRA_I64 = 7 /* also `index` */
};

/* A compact row-major tensor. `shape` has as many entries as the entry's
 * signature says; scalars have rank 0. `data` is aligned to the element and no
 * further, and may be NULL where the tensor has no element. */
typedef struct moira_buffer {
  void *data;
  const int64_t *shape;
} moira_buffer;

/* One bound parameter: packed bytes in the layout that the bundle's parameter
 * table describes. Owned by the session, read-only for generated code. */
typedef struct moira_param {
  const void *data;
  int64_t bytes;
} moira_param;

/* The plan of one layer for one step: which variant runs, with which run-time
 * integers, over which placement. Fixed before the step, shared by all ranks.
 */
typedef struct moira_plan {
  uint32_t variant;          /* index into the variants of the running entry */
  int32_t degree;            /* pipeline chunks, >= 1 */
  int32_t exchange;          /* 0 linear, 1 hierarchical */
  int32_t slots;             /* weight slots per rank; 0: identity placement */
  const int32_t *slot_table; /* [ranks, slots] -> expert*shards + shard, or -1;
                                NULL: identity */
} moira_plan;

/* Parts of a step, for moira_api.mark. */
enum {
  MOIRA_PART_OTHER = 0, /* dense parts */
  MOIRA_PART_GATE = 1,  /* gate, count, assign */
  MOIRA_PART_DISPATCH = 2,
  MOIRA_PART_EXPERT = 3,
  MOIRA_PART_COMBINE = 4,
  MOIRA_PART_EXCHANGE = 5,
  MOIRA_PART_COUNT = 6
};

/* A loop body for parallel_for. Handles iteration `index`; `worker` numbers
 * the executing worker, 0 <= worker < ctx->workers, and is never shared by two
 * bodies that run at the same time. */
typedef void (*moira_body)(moira_ctx *ctx, void *captures, int64_t index,
                           int64_t worker);

/* What the runtime does for generated code. `alloc`, `mark`, `release`, `fail`
 * may be called by any worker, the rest only outside of loop bodies, by the
 * thread that runs the entry. That thread is worker 0 there. */
typedef struct moira_api {
  uint32_t abi_version;
  uint32_t struct_size;

  /* Returns `bytes` (0 allowed) of workspace, aligned to 64 bytes, undefined
   * content, from the arena of `worker`. Lives until the matching `release`
   * or the end of the step. Returns NULL on failure (sticky error) and then
   * the caller returns at once. Called by that worker only. */
  void *(*alloc)(moira_ctx *ctx, int64_t worker, int64_t bytes);
  /* mark/release bracket allocations of a loop iteration. */
  int64_t (*mark)(moira_ctx *ctx, int64_t worker);
  void (*release)(moira_ctx *ctx, int64_t worker, int64_t mark);

  /* Returns storage for result `index` of the running entry, of the given
   * shape (rank entries, values >= 0): the caller's own buffer where one was
   * given. NULL on failure. Each index is asked for exactly once per step. */
  void *(*result)(moira_ctx *ctx, int64_t index, int64_t rank,
                  const int64_t *shape);

  /* Runs body(ctx, captures, i, worker) for 0 <= i < n, in any order, on the
   * runtime's pool with dynamic balance, and returns when all have run.
   * `cost` estimates one iteration in nanoseconds on one core (less than 1
   * counts as 1): short loops run on the calling thread, as worker 0. After a
   * failure the iterations that have not begun are skipped. */
  void (*parallel_for)(moira_ctx *ctx, moira_body body, void *captures,
                       int64_t n, int64_t cost);

  /* Sets the sticky error unless one is set. `message` is copied. A code that
   * is no failure of the list above counts as MOIRA_FAILED. */
  void (*fail)(moira_ctx *ctx, int32_t code, const char *message);

  /* Charges the time from now on to `part` (MOIRA_PART_*) of `layer`, an index
   * from the manifest; -1: outside of layers, where every step begins. */
  void (*enter)(moira_ctx *ctx, int64_t layer, int64_t part);

  /* Statistics row of one routing: rows per expert before drops (`counts`)
   * and after (`sizes`), each `experts` long; copied. Several routings of one
   * layer add up. */
  void (*loads)(moira_ctx *ctx, int64_t layer, int64_t experts,
                const int32_t *counts, const int32_t *sizes);
} moira_api;

/* The context: first argument of every generated function. Generated code
 * reads the public fields and never writes. */
struct moira_ctx {
  uint32_t abi_version;
  uint32_t struct_size;
  const moira_api *api;
  int32_t error; /* sticky, MOIRA_OK or a code; read with relaxed order */
  int32_t rank;  /* 0 <= rank < ranks */
  int32_t ranks;
  int32_t workers;           /* bodies that may run at the same time, >= 1 */
  const moira_plan *plan;    /* one per layer of the running entry, in the
                                manifest's order; one where it has no layer */
  const moira_param *params; /* by index of the bundle's parameter table */
  void *communicator;        /* NULL for one rank */
  void *queues;              /* NULL on the host device */
  void *session;             /* the runtime's own state */
};

/* The entries of a bundle. */

/* Runs one step. `inputs` are the function's non-parameter arguments in order;
 * results go through api->result. */
typedef void (*moira_step_entry)(moira_ctx *ctx, const moira_buffer *inputs);

/* Returns an upper bound, in bytes, of the workspace that the step allocates
 * on worker 0 for inputs of these shapes (data pointers are not read). Each
 * allocation counts as its size rounded up to 64. -1: not known from shapes
 * (the oracle's steps); the arena grows as the step asks. */
typedef int64_t (*moira_workspace_entry)(moira_ctx *ctx,
                                         const moira_buffer *inputs);

/* Packs one slice of a parameter: `source` is compact and row-major, aligned to
 * the element; `packed` receives the slice's packed bytes. Several slices may
 * be packed at the same time by different threads, each with a context of its
 * own that has one worker, no plan and no parameters. */
typedef void (*moira_pack_entry)(moira_ctx *ctx, const void *source,
                                 void *packed);

#ifdef __cplusplus
}
#endif

/* The layouts that generated code has built in (64-bit machines only). */
#if defined(__cplusplus)
#define MOIRA_ABI_ASSERT(condition) static_assert(condition, "ABI layout")
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define MOIRA_ABI_ASSERT(condition) _Static_assert(condition, "ABI layout")
#else
#define MOIRA_ABI_ASSERT(condition)                                            \
  extern int moira_abi_assert[(condition) ? 1 : -1]
#endif
MOIRA_ABI_ASSERT(sizeof(void *) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_buffer) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_buffer, shape) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_param) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_param, bytes) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_plan) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_plan, degree) == 4);
MOIRA_ABI_ASSERT(offsetof(moira_plan, exchange) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_plan, slots) == 12);
MOIRA_ABI_ASSERT(offsetof(moira_plan, slot_table) == 16);
MOIRA_ABI_ASSERT(sizeof(moira_api) == 72);
MOIRA_ABI_ASSERT(offsetof(moira_api, alloc) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_api, mark) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_api, release) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_api, result) == 32);
MOIRA_ABI_ASSERT(offsetof(moira_api, parallel_for) == 40);
MOIRA_ABI_ASSERT(offsetof(moira_api, fail) == 48);
MOIRA_ABI_ASSERT(offsetof(moira_api, enter) == 56);
MOIRA_ABI_ASSERT(offsetof(moira_api, loads) == 64);
MOIRA_ABI_ASSERT(sizeof(struct moira_ctx) == 72);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, api) == 8);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, error) == 16);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, rank) == 20);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, ranks) == 24);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, workers) == 28);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, plan) == 32);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, params) == 40);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, communicator) == 48);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, queues) == 56);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, session) == 64);
#undef MOIRA_ABI_ASSERT

#endif /* MOIRA_ABI_H */
