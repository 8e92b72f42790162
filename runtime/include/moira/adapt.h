/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/adapt.h: plans that follow the loads. For sessions of several ranks
 * (moira/ranks.h); docs/selection.md says how plans are chosen. Everything that
 * moira/runtime.h says of errors, threads and ownership holds here.
 *
 * All ranks call adapt, stop_adapting, force and load_learned alike, between
 * the same steps: every rank decides for itself, and all come to the same. None
 * of these functions talks to the other ranks, unless it says "Collective".
 */
#ifndef MOIRA_ADAPT_H
#define MOIRA_ADAPT_H

#include "moira/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum moira_adapt_mode {
  MOIRA_ADAPT_FIXED = 0,   /* one candidate, the first or what is forced */
  MOIRA_ADAPT_MODEL = 1,   /* the model's best */
  MOIRA_ADAPT_MEASURED = 2 /* the model's, corrected by what was measured */
} moira_adapt_mode;

/* moira_adapt_defaults fills in the usual values. */
typedef struct moira_adapt_options {
  uint32_t struct_size;
  int32_t mode; /* MOIRA_ADAPT_... */
  /* 1: a step's loads decide for the next one. 0: for its own, all but the
   * variant. */
  int32_t lag;
  int32_t max_shadows;    /* experts shadowed at most; -1: as many as fit */
  const int32_t *degrees; /* pipeline chunks to choose from */
  int32_t degree_count;
  double trial_loss;         /* share of all steps that trials may cost */
  double initial_loss;       /* steps that they may cost at once */
  int32_t trial_spacing;     /* steps from one trial to the next, at least */
  int32_t trials_per_bucket; /* of a candidate, for loads alike */
  const char *numerics;      /* only variants with these bits; NULL: any */
  const char *qualified;     /* what variants must have passed at least: "none",
                                "twin" or "target"; NULL: "none" */
  const char *topology;      /* JSON of docs/topology.md; NULL: not described */
  const char *calibration;   /* JSON of docs/cost-model.md; NULL: assumed */
  const char *flight_log; /* file that rank 0 writes for a replay; NULL: none */
  const char *replay;     /* such a file, whose decisions are made again and
                             compared; NULL: none */
} moira_adapt_options;

/* Fills everything but struct_size. */
MOIRA_API int32_t moira_adapt_defaults(moira_adapt_options *options);

/* Lets the session choose variants and plans of `entry` (NULL: the only one
 * that is no way back) from the next step on. What was learned before is
 * forgotten; after a failure the entry does not adapt. `options` may be NULL.
 * MOIRA_INVALID_ARGUMENT where the program does not say what its layers cost,
 * or is not for several ranks. */
MOIRA_API int32_t moira_session_adapt(moira_session *session, const char *entry,
                                      const moira_adapt_options *options);
/* Goes back to what moira_session_set_variant and set_plan say. */
MOIRA_API int32_t moira_session_stop_adapting(moira_session *session,
                                              const char *entry);

/* Tokens that all ranks together bring to the next step, the same number on all
 * ranks, so that plans need not lag behind sizes that change; -1: not known. */
MOIRA_API int32_t moira_session_announce_tokens(moira_session *session,
                                                const char *entry,
                                                int64_t tokens);

/* Texts of the following functions are ended by moira_text_free. */

/* Plans to choose from, as a JSON list of names such as "r=1 degree=2". */
MOIRA_API int32_t moira_session_candidates(moira_session *session,
                                           const char *entry, char **json);
/* All layers run this one from the next step on; NULL or "": chosen again. */
MOIRA_API int32_t moira_session_force(moira_session *session, const char *entry,
                                      const char *candidate);
/* This rank may not run a variant, or may again (0); then no rank runs it, from
 * the step after the next one on. Ranks may differ in this. */
MOIRA_API int32_t moira_session_forbid(moira_session *session,
                                       const char *entry, const char *variant,
                                       int32_t forbidden);
/* Why the last decision is as it is, by layer, as JSON (docs/selection.md). */
MOIRA_API int32_t moira_session_explain(moira_session *session,
                                        const char *entry, char **json);
/* What was learned, as JSON, and back. A table of other layers, candidates or
 * ranks is refused, and nothing changes; MOIRA_DATA_LOSS for what is none. */
MOIRA_API int32_t moira_session_save_learned(moira_session *session,
                                             const char *entry, char **json);
MOIRA_API int32_t moira_session_load_learned(moira_session *session,
                                             const char *entry,
                                             const char *json);

/* Where weights stand for long (docs/placement.md). `table` receives
 * [ranks, slots] units of a layer, by its number in the manifest, as far as
 * `capacity` reaches; `count` how many there are, 0 for a layer that is not on
 * several ranks. Either pointer may be NULL. */
MOIRA_API int32_t moira_session_slot_table(moira_session *session,
                                           int64_t layer, int32_t *table,
                                           int64_t capacity, int64_t *count);
/* Gives a layer, and those that share its parameters, another table, and moves
 * weights, kept gradients and states of optimizers there. Nothing is bound
 * again. MOIRA_INVALID_ARGUMENT, before anything moves, for a table without
 * room for shadows that an adapting entry may choose; a failure while bytes
 * move leaves parameters unbound. Collective, with equal tables. */
MOIRA_API int32_t moira_session_move_weights(moira_session *session,
                                             int64_t layer,
                                             const int32_t *table,
                                             int64_t count);

/* Zeros are the usual choice. */
typedef struct moira_rebalance_options {
  uint32_t struct_size;
  double threshold;   /* rows of the fullest rank over the mean that are left
                         alone; 0: 1.1 */
  int32_t max_rounds; /* of one slot for another, in a call; 0: 16 */
  int64_t steps;      /* that a table is expected to last; 0: 100 */
  const char *topology, *calibration; /* as in moira_adapt_options */
} moira_rebalance_options;

/* Counts the loads of an entry's steps from now on. `options` may be NULL. All
 * ranks alike. */
MOIRA_API int32_t
moira_session_count_loads(moira_session *session, const char *entry,
                          const moira_rebalance_options *options);
/* Moves experts to where the loads since the last call want them; `moved` (may
 * be NULL) receives how many layers have changed. Collective. */
MOIRA_API int32_t moira_session_rebalance(moira_session *session,
                                          const char *entry, int64_t *moved);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_ADAPT_H */
