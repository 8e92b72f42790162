/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/runtime.h: loads a bundle and runs it. This header and libmoira_runtime
 * are a whole deployment.
 *
 * Errors. Every function that can fail returns a code of moira/abi.h, MOIRA_OK
 * (0) on success. moira_error_message() then says why, in one line that names
 * what was expected and what was found. A NULL handle or pointer where one is
 * needed gives MOIRA_INVALID_ARGUMENT. On failure nothing is written through
 * the result pointers. No exception leaves the library and nothing aborts.
 *
 * Threads. Any thread may call any function on any handle that another thread
 * does not destroy at that time. Calls on one session run one after the other;
 * sessions do not wait for each other and share the machine's threads.
 *
 * Ownership. What a function creates, its counterpart destroys, in any order:
 * a session keeps what it needs of its bundle, a result outlives its session.
 *
 * Structs that begin with `struct_size` may grow: set it to sizeof(the struct)
 * and the rest to zero, then the fields you want.
 */
#ifndef MOIRA_RUNTIME_H
#define MOIRA_RUNTIME_H

#include "moira/abi.h"

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MOIRA_API __attribute__((visibility("default")))
#else
#define MOIRA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moira_bundle moira_bundle;
typedef struct moira_session moira_session;
typedef struct moira_ranks moira_ranks; /* moira/ranks.h */
typedef struct moira_statistics moira_statistics;

/* --- The library ------------------------------------------------------- */

/* The version of the library, as "0.1.0". */
MOIRA_API const char *moira_version(void);
/* MOIRA_ABI_VERSION of the library. */
MOIRA_API uint32_t moira_abi_version(void);
/* Why the calling thread's last failed call failed. Valid until its next
 * failure; never NULL. */
MOIRA_API const char *moira_error_message(void);
/* "OUT_OF_MEMORY" and so on; "UNKNOWN" for a number that is no code. */
MOIRA_API const char *moira_status_name(int32_t code);

/* --- Bundles ----------------------------------------------------------- */

/* Opens a file. The whole file is verified before any of its code is loaded;
 * the checks find damage, not malice: load bundles that you trust.
 * MOIRA_NOT_FOUND, MOIRA_DATA_LOSS, MOIRA_VERSION, or MOIRA_UNAVAILABLE where
 * this machine cannot run the code. */
MOIRA_API int32_t moira_bundle_open(const char *path, moira_bundle **bundle);
/* The same from memory, which is copied. */
MOIRA_API int32_t moira_bundle_open_memory(const void *data, size_t bytes,
                                           moira_bundle **bundle);
/* Sessions of the bundle stay usable. NULL is legal. */
MOIRA_API void moira_bundle_close(moira_bundle *bundle);
/* A bundle may hold a program for each of several numbers of ranks. The ranks
 * of grid `index`, 0 the first; MOIRA_INVALID_ARGUMENT beyond the last. */
MOIRA_API int32_t moira_bundle_grid(const moira_bundle *bundle, int32_t index,
                                    int32_t *ranks);
/* Another handle of the bundle, whose manifest and signatures are those of the
 * grid for `ranks` ranks; of the one that was opened they are the first grid's.
 * Sessions take the grid of their ranks, whatever the handle. */
MOIRA_API int32_t moira_bundle_for_ranks(const moira_bundle *bundle,
                                         int32_t ranks, moira_bundle **grid);
/* The manifest as JSON: entries, variants, parameters. Lives as long as the
 * bundle. */
MOIRA_API int32_t moira_bundle_manifest(const moira_bundle *bundle,
                                        const char **json);

/* Signatures. What the structs point to lives as long as the bundle. An index
 * out of range gives MOIRA_INVALID_ARGUMENT, so that one may count up. */

typedef struct moira_entry_info {
  uint32_t struct_size;
  const char *name;
  int32_t inputs; /* how many */
  int32_t results;
  int32_t variants;
  int32_t ranks; /* that it runs on; 1: on any */
} moira_entry_info;

typedef struct moira_tensor_info {
  uint32_t struct_size;
  const char *name;  /* "" where it has none */
  int32_t dtype;     /* MOIRA_F32 ... */
  DLDataType dlpack; /* the same for DLPack */
  int32_t rank;
  const int64_t *shape; /* -1: any size */
} moira_tensor_info;

MOIRA_API int32_t moira_bundle_entry(const moira_bundle *bundle, int32_t entry,
                                     moira_entry_info *info);
MOIRA_API int32_t moira_bundle_input(const moira_bundle *bundle, int32_t entry,
                                     int32_t input, moira_tensor_info *info);
MOIRA_API int32_t moira_bundle_result(const moira_bundle *bundle, int32_t entry,
                                      int32_t result, moira_tensor_info *info);
MOIRA_API int32_t moira_bundle_variant(const moira_bundle *bundle,
                                       int32_t entry, int32_t variant,
                                       const char **name);

/* --- Sessions ---------------------------------------------------------- */

typedef struct moira_session_options {
  uint32_t struct_size;
  int32_t threads;          /* 0: one per processor this process may use */
  int64_t memory_limit;     /* bytes held at the same time; 0: none */
  int32_t statistics_steps; /* steps kept for statistics; 0: 256, -1: none */
  int32_t log_level;        /* on stderr: 0 nothing ... 3 everything */
  moira_ranks *ranks;       /* that steps run with; NULL: one rank */
  const char *device; /* of a program for a GPU: "cuda", "cuda:N", "emulated",
                         "emulated:80"; NULL or "cpu": the processor */
} moira_session_options;

/* `options` may be NULL. Parameters that the bundle holds are bound. */
MOIRA_API int32_t moira_session_create(moira_bundle *bundle,
                                       const moira_session_options *options,
                                       moira_session **session);
/* NULL is legal. */
MOIRA_API void moira_session_destroy(moira_session *session);

/* Tensors: on the CPU (kDLCPU) or, of inputs and results of steps, on the
 * session's GPU (kDLCUDA and its number; of the emulated device kDLExtDev),
 * where nothing under way may write them; inputs of rank 0 are on the CPU, new
 * results on the GPU where an input is. Compact and row-major (`strides` NULL
 * or equal to that), one lane. Element types: float 16/32/64, bfloat 16, int
 * 8/32/64, and for i1 one byte per element (kDLUInt 8, or code 6 of newer
 * DLPack headers) of value 0 or 1. */

/* Packs a parameter from `tensor`, which is not needed afterwards. The name is
 * the manifest's; a parameter `...{}...` takes the tensor of all slices under
 * that very name, or slice by slice under names with a number for `{}`. Float
 * types are converted, rounding to nearest even. Binding again replaces. */
MOIRA_API int32_t moira_session_bind(moira_session *session, const char *name,
                                     const DLTensor *tensor);
/* Packs all parameters that are not bound yet from a safetensors checkpoint: a
 * file, an index (*.json) or a folder that holds one of them. */
MOIRA_API int32_t moira_session_bind_checkpoint(moira_session *session,
                                                const char *path);
/* Fills all parameters that are not bound yet with reproducible values,
 * uniform in +-1/sqrt(fan in). */
MOIRA_API int32_t moira_session_bind_random(moira_session *session,
                                            uint64_t seed);
/* How many parameters are not bound, and the name of the first (NULL when
 * none; lives as long as the session). Either pointer may be NULL. */
MOIRA_API int32_t moira_session_unbound(moira_session *session, int64_t *count,
                                        const char **name);

/* Makes an entry use a variant from the next step on; NULL or "" goes back to
 * the choice by rows. */
MOIRA_API int32_t moira_session_set_variant(moira_session *session,
                                            const char *entry,
                                            const char *variant);

typedef struct moira_plan_options {
  uint32_t struct_size;
  int32_t degree;   /* pipeline chunks; 0: 1 */
  int32_t exchange; /* 0 linear, 1 hierarchical */
  /* Which unit of weights stands where, [ranks, slots]; NULL: in their order.
   * Parameters in slots whose unit changes must be bound again. */
  const int32_t *slot_table;
  int64_t slot_count;     /* of all ranks */
  const int32_t *shadows; /* experts, each once, that all ranks hold in the */
  int32_t shadow_count;   /* next steps, in slots that the table leaves free */
} moira_plan_options;

/* Sets the run-time integers of all layers from the next step on. All ranks
 * set the same. */
MOIRA_API int32_t moira_session_set_plan(moira_session *session,
                                         const moira_plan_options *plan);
/* The same for one layer, by its number in the manifest. */
MOIRA_API int32_t moira_session_set_layer_plan(moira_session *session,
                                               int64_t layer,
                                               const moira_plan_options *plan);

/* Runs one step of `entry` (NULL: the only one that is no way back). `inputs`
 * are read during the call only. `results` has `result_count` elements, as many
 * as the entry has results: where an element is NULL, it receives a new tensor,
 * which the caller ends with its `deleter`; else it is the caller's tensor, of
 * the very type and shape that the step produces, and is filled. After a
 * failure every element is as it was, and the session stays usable. */
MOIRA_API int32_t moira_session_invoke(
    moira_session *session, const char *entry, const DLTensor *const *inputs,
    int32_t input_count, DLManagedTensor **results, int32_t result_count);

/* The bytes that the session would hold at most during such a step. Types and
 * shapes of `inputs` are read, not their data. Dynamic dims of results count
 * as the rows of the first input. */
MOIRA_API int32_t moira_session_predict_peak(moira_session *session,
                                             const char *entry,
                                             const DLTensor *const *inputs,
                                             int32_t input_count,
                                             int64_t *bytes);

typedef struct moira_memory {
  uint32_t struct_size;
  int64_t parameters; /* bytes held now */
  int64_t workspace;
  int64_t results;   /* allocated by the runtime and not deleted yet */
  int64_t peak;      /* highest sum of all so far */
  int64_t limit;     /* 0: none */
  int64_t residuals; /* of forward steps, with what is kept for the next */
  int64_t training;  /* gradients and states of optimizers */
} moira_memory;

MOIRA_API int32_t moira_session_memory(moira_session *session,
                                       moira_memory *memory);

/* --- Statistics -------------------------------------------------------- */

typedef struct moira_step_row {
  uint32_t struct_size;
  int64_t step;                     /* 0, 1, ... in the session */
  int32_t entry;                    /* index in the manifest */
  int32_t variant;                  /* index in the entry's variants */
  int64_t rows;                     /* dim 0 of the first input */
  int32_t error;                    /* MOIRA_OK or a code */
  int32_t layers;                   /* number of layer rows */
  double total;                     /* seconds */
  double seconds[MOIRA_PART_COUNT]; /* outside of layers, by MOIRA_PART_* */
} moira_step_row;

typedef struct moira_layer_row {
  uint32_t struct_size;
  int64_t layer;
  int64_t experts;
  const int32_t *counts; /* rows per expert before drops */
  const int32_t *sizes;  /* and after; both live as long as the statistics */
  int64_t routed;        /* sum of counts */
  int64_t dropped;       /* of these */
  int32_t degree;
  int32_t exchange;
  double seconds[MOIRA_PART_COUNT];
  int32_t ranks; /* rows of `matrix`; 0 where counts were not gathered */
  const int32_t *matrix;  /* [ranks, experts]: rows of each rank for each;
                             lives as long as the statistics */
  int64_t bytes_sent;     /* to other ranks: rows and weights */
  int64_t bytes_received; /* from them */
  const int32_t *shadows; /* experts that all ranks held; live as long as the */
  int32_t shadow_count;   /* statistics */
  double predicted;   /* seconds that the plan was to take, the way back with
                         it; 0: nobody said */
  const char *reason; /* why the plan is as it is; "": it was set */
} moira_layer_row;

/* Copies the rows of the last steps. */
MOIRA_API int32_t moira_session_statistics(moira_session *session,
                                           moira_statistics **statistics);
/* NULL is legal. */
MOIRA_API void moira_statistics_destroy(moira_statistics *statistics);
/* Steps held; 0 for NULL. */
MOIRA_API int64_t moira_statistics_steps(const moira_statistics *statistics);
/* Row of step `index`, 0 the oldest. */
MOIRA_API int32_t moira_statistics_step(const moira_statistics *statistics,
                                        int64_t index, moira_step_row *row);
/* The step with all its layers as one line of JSON (docs/statistics.md). The
 * text is ended by moira_text_free. */
MOIRA_API int32_t moira_statistics_json(const moira_statistics *statistics,
                                        int64_t index, char **json);
/* Ends a text that a function of the library has made; NULL is legal. */
MOIRA_API void moira_text_free(char *text);
/* Row of the `layer`-th layer in that step. */
MOIRA_API int32_t moira_statistics_layer(const moira_statistics *statistics,
                                         int64_t index, int32_t layer,
                                         moira_layer_row *row);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_RUNTIME_H */
