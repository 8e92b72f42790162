/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * moira/queue.h: steps that run while the caller goes on. Everything that
 * moira/runtime.h says of errors and ownership holds here.
 *
 * A queue runs what it is given in the order of the calls, one piece at a time,
 * on a thread of its own or where the caller says. A ticket names a piece of
 * its queue: 1, 2, ... Whatever a piece has written can be read once
 * moira_queue_wait, moira_queue_done or moira_queue_synchronize has said that
 * it has ended, by the thread that was told.
 *
 * Failures. After a piece that fails nothing else runs: what stands behind it
 * fails for the same reason, so that no step reads what another has not
 * written. moira_queue_synchronize reports the failure and makes the queue
 * usable again. Queues of ranks do all of this at the same piece.
 *
 * Threads. Any thread may call any function; work of several threads runs in
 * the order of their calls. Work may queue more work, but not wait for its own
 * queue (MOIRA_INVALID_ARGUMENT) nor destroy it.
 */
#ifndef MOIRA_QUEUE_H
#define MOIRA_QUEUE_H

#include "moira/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moira_queue moira_queue;

typedef struct moira_queue_options {
  uint32_t struct_size;
  /* Where work runs; NULL: on a thread of the queue. Else the queue calls this
   * once for every piece, on the thread that queues it, and `run(work)` must
   * be called once for each, on any thread and not before `submit` has been
   * called: by the caller's own thread pool, event loop or stream callback.
   * Whatever the order of these calls, pieces run in theirs. */
  void (*submit)(void *context, void (*run)(void *work), void *work);
  void *context;
} moira_queue_options;

/* `options` may be NULL. */
MOIRA_API int32_t moira_queue_create(const moira_queue_options *options,
                                     moira_queue **queue);
/* Waits until all work has ended. NULL is legal. */
MOIRA_API void moira_queue_destroy(moira_queue *queue);

/* Queues a step, as moira_session_invoke runs it. The session, the data of
 * `inputs` and the array `results` with the caller's tensors in it stay as they
 * are until the piece has ended; `inputs` itself and shapes are copied. What
 * is wrong with the arguments is reported at once and not queued, unless the
 * session has other ranks, which must hear of it. `ticket` may be NULL. */
MOIRA_API int32_t moira_queue_invoke(moira_queue *queue, moira_session *session,
                                     const char *entry,
                                     const DLTensor *const *inputs,
                                     int32_t input_count,
                                     DLManagedTensor **results,
                                     int32_t result_count, int64_t *ticket);
/* Queues a call. What it returns is MOIRA_OK or a code; of a failure the
 * message is that of moira_error_message there. So every other function of a
 * session can be queued. */
MOIRA_API int32_t moira_queue_call(moira_queue *queue,
                                   int32_t (*function)(void *argument),
                                   void *argument, int64_t *ticket);
/* What is queued from here on waits for a piece of another queue, and fails
 * where that fails. Occupies its thread meanwhile. The other queue must live
 * until then. */
MOIRA_API int32_t moira_queue_after(moira_queue *queue, moira_queue *other,
                                    int64_t ticket, int64_t *own_ticket);

/* Waits until a piece has ended; its outcome. Does not end a failure. */
MOIRA_API int32_t moira_queue_wait(moira_queue *queue, int64_t ticket);
/* Whether it has ended, in whatever way. */
MOIRA_API int32_t moira_queue_done(moira_queue *queue, int64_t ticket,
                                   int32_t *done);
/* Waits until all that was queued before the call has ended. Returns the first
 * failure since the last call, and ends it: what is queued next runs again. */
MOIRA_API int32_t moira_queue_synchronize(moira_queue *queue);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_QUEUE_H */
