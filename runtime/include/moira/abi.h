/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/abi.h: the whole contract between generated code and the runtime;
 * docs/abi.md explains the design.
 *
 * Generated code has no undefined symbol of ours: whatever it needs it reaches
 * through `ctx->api`. It keeps no mutable globals, since ranks may be threads.
 * This header needs only <stddef.h> and <stdint.h>; layouts are pinned by
 * abi_layout.h, and a change of any of them raises MOIRA_ABI_VERSION.
 *
 * Errors are sticky. The first failure sets ctx->error; from then on every
 * function of the table is a no-op that returns NULL, and generated code
 * returns at the next allocation. The session reads the error at the end of
 * the step. Nothing unwinds.
 */
#ifndef MOIRA_ABI_H
#define MOIRA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOIRA_ABI_VERSION 3u

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

/* How the experts of a layer are spread over the ranks, and what a variant does
 * about it: the constants of `#moe.placement`. Slot l of rank q holds the shard
 * `unit % shards` of the expert `unit / shards`, where `unit` is
 * plan.slot_table[q * slots + l], without a table q * slots + l (no unit from
 * experts * shards on). docs/ranks.md. */
typedef struct moira_placement {
  int32_t experts; /* E */
  int32_t shards;  /* s: ranks that share an expert; 1 where E >= ranks */
  int32_t copies;  /* r: 0 or a divisor of shards */
  int32_t slots;   /* weight slots of each rank */
} moira_placement;

/* One transfer of rows between the ranks that have tokens and the ranks that
 * have experts. docs/ranks.md has the order of rows on both sides. */
typedef struct moira_exchange {
  int64_t layer;
  moira_placement placement; /* copies >= 1 */
  int32_t direction;         /* MOIRA_TO_EXPERTS, MOIRA_TO_TOKENS */
  int32_t schedule;          /* MOIRA_SCHEDULE_EQUAL, MOIRA_SCHEDULE_GROUPS */
  int64_t chunk, chunks;     /* which part of the rows, 0 <= chunk < chunks */
  const int32_t *counts;     /* [ranks, experts]: rows of each rank for each */
  void *home;                /* [copies, home_rows, row]: by expert; one copy
                                where direction is MOIRA_TO_EXPERTS */
  int64_t home_rows;         /* rows from one copy to the next */
  void *away;                /* the rows of this chunk at this rank's experts */
  int64_t row_bytes;         /* 0 or more */
} moira_exchange;

enum { MOIRA_TO_EXPERTS = 0, MOIRA_TO_TOKENS = 1 };
enum { MOIRA_SCHEDULE_EQUAL = 0, MOIRA_SCHEDULE_GROUPS = 1 };

/* One transfer of weights. With copies = 0 `whole` is
 * [experts, parts, bytes], everything; else [slots, parts, bytes], for each of
 * the rank's slots the shards of its group, where parts = shards / copies.
 * Parts follow in the order of shards. With `replicated` each shard's holder
 * has the same bytes; then parts = 1 and any of them is sent. */
typedef struct moira_gather {
  int64_t layer;
  moira_placement placement;
  int32_t parameter;  /* index of the parameter table, for counters */
  int32_t replicated; /* 0 or 1 */
  const void *local;  /* [slots, bytes] */
  void *whole;
  int64_t bytes; /* of one slot */
} moira_gather;

/* The transpose of a moira_gather: `local` gets, for each slot, the sum of what
 * all that gathered its shard have for it in their `whole`, of the shape that a
 * gather gives; slots without a shard get zeros. The order of a sum is the same
 * on all ranks and for all slot tables without replicas; 16-bit floats are
 * added in 32 bits and rounded once. */
typedef struct moira_reduce {
  int64_t layer;
  moira_placement placement;
  int32_t parameter;  /* as in moira_gather */
  int32_t replicated; /* 0 or 1 */
  const void *whole;
  void *local;    /* [slots, count], apart from `whole` */
  int64_t count;  /* elements of one slot */
  int32_t dtype;  /* MOIRA_F16, BF16, F32, F64, I32 or I64 */
  int32_t unused; /* 0 */
} moira_reduce;

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

  /* The functions below need a communicator where ctx->ranks > 1 and work
   * without one for one rank. All ranks call the same ones in the same order:
   * they form one queue per rank. */

  /* Chunks that the layer's exchanges are cut in, >= 1: the plan's degree for
   * MOIRA_SCHEDULE_EQUAL, the number of groups for MOIRA_SCHEDULE_GROUPS. */
  int64_t (*chunks)(moira_ctx *ctx, int64_t layer, int64_t schedule);

  /* Gathers `bytes` of every rank into all[ranks, bytes], and waits. */
  void (*all_gather)(moira_ctx *ctx, const void *mine, int64_t bytes,
                     void *all);

  /* Gathers the rows that every rank has for every expert into
   * matrix[ranks, experts], with what the ranks must agree on (program, plan,
   * shapes), and waits. Once per layer and step. On failure the matrix is
   * zero. */
  void (*gather_counts)(moira_ctx *ctx, int64_t layer, int64_t experts,
                        const int32_t *counts, int32_t *matrix);

  /* Fills groups[slots] with the rows that the exchange's chunk brings to each
   * of this rank's slots, and returns their sum. Reads neither `home` nor
   * `away`. 0 on failure. */
  int64_t (*receive_sizes)(moira_ctx *ctx, const moira_exchange *exchange,
                           int32_t *groups);

  /* Queue a transfer and return its ticket, 0 or more. The structure is copied;
   * the memory it names stays as it is until `wait`. -1 on failure. */
  int64_t (*exchange)(moira_ctx *ctx, const moira_exchange *exchange);
  int64_t (*gather_weights)(moira_ctx *ctx, const moira_gather *gather);

  /* Returns when the transfer of this ticket has ended. Tickets end in order.
   * Waiting twice is legal, and so is a ticket of -1. */
  void (*wait)(moira_ctx *ctx, int64_t ticket);

  /* Queue a sum, and return its ticket as `exchange` does. Of all ranks'
   * in[count] into out[count], in ascending order of ranks, elements as in
   * moira_reduce; `in` may be `out`, else they are apart. All ranks have the
   * same count. */
  int64_t (*all_reduce)(moira_ctx *ctx, const void *in, void *out,
                        int64_t count, int32_t dtype);
  int64_t (*reduce_weights)(moira_ctx *ctx, const moira_reduce *reduce);

  /* Copies the rows of the exchange's chunk from `away` to `home`, where all
   * rows at this rank's experts stand in the order of one chunk. */
  void (*merge_rows)(moira_ctx *ctx, const moira_exchange *exchange);
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
  void *queues;              /* moira_device of device_abi.h; NULL: host */
  void *session;             /* the runtime's own state */
};

/* An entry of a bundle: runs one step. `inputs` are the function's
 * non-parameter arguments in order; results go through api->result. */
typedef void (*moira_step_entry)(moira_ctx *ctx, const moira_buffer *inputs);

/* Returns an upper bound, in bytes, of the workspace that the step allocates
 * on worker 0 for inputs of these shapes; of data only i64 of rank 0 are read.
 * Each allocation counts as its size rounded up to 64. -1: not known (the
 * oracle's steps); the arena grows as the step asks. */
typedef int64_t (*moira_workspace_entry)(moira_ctx *ctx,
                                         const moira_buffer *inputs);

/* Writes bounds of the results' sizes, dim after dim (of an i64 of rank 0 that
 * bounds sizes, of its value); -1: not known. Optional. */
typedef void (*moira_shapes_entry)(moira_ctx *ctx, const moira_buffer *inputs,
                                   int64_t *bounds);

/* Packs one slice of a parameter: `source` is compact and row-major, aligned to
 * the element; `packed` receives its packed bytes. Several slices may be packed
 * by different threads, each with a context of its own: one worker, no plan. */
typedef void (*moira_pack_entry)(moira_ctx *ctx, const void *source,
                                 void *packed);

#ifdef __cplusplus
}
#endif

#include "moira/abi_layout.h" /* pins the layouts */

#endif /* MOIRA_ABI_H */
