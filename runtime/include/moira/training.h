/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/training.h: steps with a way back, gradients and optimizers. For
 * bundles that were compiled with --gradients; docs/gradients.md. Everything
 * that moira/runtime.h says of errors, threads and ownership holds here.
 */
#ifndef MOIRA_TRAINING_H
#define MOIRA_TRAINING_H

#include "moira/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a forward step leaves for its way back, with the plan that it ran with.
 * Any number may be alive. It may be used several times, be destroyed at any
 * time and in any order, and outlive its session, without which it is of no
 * use. */
typedef struct moira_residuals moira_residuals;

/* As moira_session_invoke, with `results` for those of the program itself
 * (moira_bundle_own_results says how many), and a handle for the way back. */
MOIRA_API int32_t moira_session_forward(
    moira_session *session, const char *entry, const DLTensor *const *inputs,
    int32_t input_count, DLManagedTensor **results, int32_t result_count,
    moira_residuals **residuals);
/* NULL is legal. */
MOIRA_API void moira_residuals_destroy(moira_residuals *residuals);

/* Results of entry `entry` without residuals. */
MOIRA_API int32_t moira_bundle_own_results(const moira_bundle *bundle,
                                           int32_t entry, int32_t *count);
/* The entry that computes the gradients of entry `entry`; its results are what
 * moira_session_backward gives. MOIRA_NOT_FOUND where there is none. */
MOIRA_API int32_t moira_bundle_backward(const moira_bundle *bundle,
                                        int32_t entry, int32_t *backward);

/* Computes gradients. `gradients`: one for each own result of a float type, of
 * its very type and shape. `results`: gradients of the inputs of a float type,
 * then of parameters. MOIRA_INVALID_ARGUMENT where the handle is another
 * session's, or where parameters have been bound, placed or updated since. */
MOIRA_API int32_t moira_session_backward(moira_session *session,
                                         const moira_residuals *residuals,
                                         const DLTensor *const *gradients,
                                         int32_t gradient_count,
                                         DLManagedTensor **results,
                                         int32_t result_count);
/* The same, but gradients of parameters are added to those that the session
 * keeps, in the order of the calls; `results` are those of inputs. */
MOIRA_API int32_t moira_session_accumulate(moira_session *session,
                                           const moira_residuals *residuals,
                                           const DLTensor *const *gradients,
                                           int32_t gradient_count,
                                           DLManagedTensor **results,
                                           int32_t result_count);
/* Forgets the gradients that the session keeps. */
MOIRA_API int32_t moira_session_zero_gradients(moira_session *session);
/* The root of the sum of squares of all kept gradients, of all ranks. */
MOIRA_API int32_t moira_session_gradient_norm(moira_session *session,
                                              double *norm);

typedef enum moira_update_rule {
  MOIRA_SGD = 0,
  MOIRA_ADAM = 1,
  MOIRA_ADAMW = 2
} moira_update_rule;

/* Numbers of one update. moira_update_defaults fills in the usual ones. */
typedef struct moira_update_options {
  uint32_t struct_size;
  int32_t rule; /* MOIRA_SGD ... */
  double learning_rate;
  double momentum; /* sgd, in [0, 1) */
  int32_t nesterov;
  double beta1, beta2, epsilon; /* adam, adamw */
  double weight_decay;          /* adamw: decoupled */
  double gradient_scale;        /* gradients count times this */
} moira_update_options;

/* Fills everything but struct_size. */
MOIRA_API int32_t moira_update_defaults(moira_update_options *options,
                                        int32_t rule);
/* Updates every parameter that has a gradient, with the code that the bundle
 * has for the rule (moira-compile --optimizer). States begin at zero. */
MOIRA_API int32_t moira_session_update(moira_session *session,
                                       const moira_update_options *options);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_TRAINING_H */
