// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/queue.h.

#include "moira/queue.h"

#include "session/CApiSupport.h"
#include "session/WorkQueue.h"

using namespace moira;
using namespace moira::runtime;

struct moira_queue {
  explicit moira_queue(WorkQueue::Submit submit) : work(std::move(submit)) {}
  WorkQueue work;
};

int32_t moira_queue_create(const moira_queue_options *options,
                           moira_queue **queue) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    moira_queue_options value{};
    if (options)
      MOIRA_RETURN_IF_ERROR(readStruct(options, value));
    WorkQueue::Submit submit;
    if (value.submit)
      submit = [value](WorkQueue &work) {
        value.submit(
            value.context,
            [](void *piece) { static_cast<WorkQueue *>(piece)->runNext(); },
            &work);
      };
    *queue = new moira_queue(std::move(submit));
    return Status();
  });
}

void moira_queue_destroy(moira_queue *queue) { delete queue; }

static void push(moira_queue *queue, WorkQueue::Work work, int64_t *ticket) {
  int64_t pushed = queue->work.push(std::move(work));
  if (ticket)
    *ticket = pushed;
}

int32_t moira_queue_invoke(moira_queue *queue, moira_session *session,
                           const char *entry, const DLTensor *const *inputs,
                           int32_t input_count, DLManagedTensor **results,
                           int32_t result_count, int64_t *ticket) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    MOIRA_REQUIRE(session);
    Result<StepArguments> read =
        readStep(*session, entry, inputs, input_count, results, result_count,
                 /*withResiduals=*/true);
    if (!read.ok() && !session->hasOthers())
      return read.status();
    if (!read.ok()) {
      push(
          queue,
          [session, fault = read.status()] { return session->refuse(fault); },
          ticket);
      return Status();
    }
    // A copy of the work shares it.
    auto step = std::make_shared<StepArguments>(std::move(*read));
    push(
        queue,
        [session, step, results] { return runInvoke(session, *step, results); },
        ticket);
    return Status();
  });
}

int32_t moira_queue_call(moira_queue *queue, int32_t (*function)(void *),
                         void *argument, int64_t *ticket) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    MOIRA_REQUIRE(function);
    push(
        queue,
        [function, argument]() -> Status {
          int32_t code = function(argument);
          return code == MOIRA_OK ? Status()
                                  : Status(code, moira_error_message());
        },
        ticket);
    return Status();
  });
}

int32_t moira_queue_after(moira_queue *queue, moira_queue *other,
                          int64_t ticket, int64_t *own_ticket) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    MOIRA_REQUIRE(other);
    // Refuses what is no ticket at once.
    Result<bool> done = other->work.done(ticket);
    if (!done.ok())
      return done.status();
    // What this queue has been given before has ended by then anyway.
    if (queue == other)
      push(queue, [] { return Status(); }, own_ticket);
    else
      push(
          queue, [other, ticket] { return other->work.wait(ticket); },
          own_ticket);
    return Status();
  });
}

int32_t moira_queue_wait(moira_queue *queue, int64_t ticket) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    return queue->work.wait(ticket);
  });
}

int32_t moira_queue_done(moira_queue *queue, int64_t ticket, int32_t *done) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    MOIRA_REQUIRE(done);
    Result<bool> ended = queue->work.done(ticket);
    if (!ended.ok())
      return ended.status();
    *done = *ended;
    return Status();
  });
}

int32_t moira_queue_synchronize(moira_queue *queue) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(queue);
    return queue->work.synchronize();
  });
}
