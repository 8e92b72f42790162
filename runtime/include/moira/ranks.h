/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/ranks.h: groups of ranks, for programs that were compiled for several.
 * A handle is one rank's place in a group; a session that is created with it
 * (moira_session_options.ranks) is that rank. docs/c-api.md has an example,
 * docs/ranks.md says what ranks do. Everything that moira/runtime.h says of
 * errors and ownership holds here; a session keeps what it needs of its ranks.
 *
 * Order. All ranks of a group call the same collective functions in the same
 * order: those of this header that say so, and for sessions of several ranks
 * invoke, forward, backward, accumulate, gradient_norm, update, move_weights
 * and rebalance. Calls of several sessions that share a handle run one after
 * the other, in the order of the calls, which must be the same on all ranks:
 * call them from one thread or one moira_queue for each rank. Sessions that
 * shall not wait for each other take a group each.
 *
 * Failures. What fails on one rank fails on all, in bounded time, with one
 * message that names the rank. Ranks that are threads work again afterwards;
 * processes must be started again (docs/processes.md).
 */
#ifndef MOIRA_RANKS_H
#define MOIRA_RANKS_H

#include "moira/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros are the usual choice. */
typedef struct moira_ranks_options {
  uint32_t struct_size;
  /* Ranks [i * n, (i + 1) * n) are one node, which the hierarchical exchange
   * uses; 0: as `topology` says, else not described. */
  int32_t ranks_per_node;
  /* Seconds that one operation may wait for other ranks; 0: 60. */
  double timeout;
  /* Carries messages between processes: "tcp", "mpi" or "nccl"; NULL: as
   * MOIRA_TRANSPORT and the launcher say. */
  const char *transport;
  /* 1: times are those of a described cluster. Only for threads. */
  int32_t virtual_clock;
  /* That cluster, as the JSON text of docs/topology.md; NULL: each rank has a
   * link of 50 GB/s and 5 us both ways. */
  const char *topology;
} moira_ranks_options;

/* Ranks that are threads of this process: writes a handle for each of `count`
 * ranks, by rank. `options` may be NULL. */
MOIRA_API int32_t moira_ranks_threads(int32_t count,
                                      const moira_ranks_options *options,
                                      moira_ranks **ranks);
/* The rank that mpirun, srun or torchrun made this process; one rank alone for
 * a process that none of them has started. Collective. */
MOIRA_API int32_t moira_ranks_launched(const moira_ranks_options *options,
                                       moira_ranks **ranks);

/* A place in a group that no launcher made. */
typedef struct moira_ranks_address {
  uint32_t struct_size;
  int32_t rank;
  int32_t ranks;
  const char *host; /* where rank 0 is; NULL: this machine */
  int32_t port;     /* where rank 0 listens; the same for all ranks */
  const char *job;  /* strangers with another name are refused; NULL: "" */
} moira_ranks_address;

/* Meets the other ranks at rank 0's address. Collective. */
MOIRA_API int32_t moira_ranks_connect(const moira_ranks_address *address,
                                      const moira_ranks_options *options,
                                      moira_ranks **ranks);
/* NULL is legal. A rank leaves its group when its handle and its sessions have
 * ended; who waits for it then fails. */
MOIRA_API void moira_ranks_destroy(moira_ranks *ranks);

typedef struct moira_ranks_info {
  uint32_t struct_size;
  int32_t rank;
  int32_t ranks;
  const char *transport; /* "inprocess", "tcp", ...; "none" for one rank.
                            Lives as long as the handle */
  int32_t virtual_clock; /* 0 or 1 */
} moira_ranks_info;

MOIRA_API int32_t moira_ranks_describe(const moira_ranks *ranks,
                                       moira_ranks_info *info);

/* Returns when all ranks have called it. Collective. */
MOIRA_API int32_t moira_ranks_barrier(moira_ranks *ranks);
/* All ranks get the `bytes` bytes that rank `root` has at `data`. Collective.
 */
MOIRA_API int32_t moira_ranks_broadcast(moira_ranks *ranks, int32_t root,
                                        void *data, int64_t bytes);
/* Sums `count` numbers of each rank in place, in ascending order of ranks, so
 * that all ranks have the same bits. `dtype`: MOIRA_F32 ...; 16-bit floats are
 * added in f32 and rounded once. Collective. */
MOIRA_API int32_t moira_ranks_sum(moira_ranks *ranks, void *data, int64_t count,
                                  int32_t dtype);
/* Ends the operation that waits, or the next one, with an error on all ranks.
 * Any thread, and signal handlers, at any time before moira_ranks_destroy. NULL
 * is legal. */
MOIRA_API void moira_ranks_interrupt(moira_ranks *ranks);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_RANKS_H */
