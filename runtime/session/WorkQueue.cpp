// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/WorkQueue.h"

using namespace moira;
using namespace moira::runtime;

/// Failures whose tickets are still told apart from successes.
static constexpr size_t keptFailures = 64;

WorkQueue::WorkQueue(Submit givenSubmit) : submit(std::move(givenSubmit)) {
  if (!submit)
    thread = std::thread([this] { serve(); });
}

WorkQueue::~WorkQueue() {
  std::unique_lock<std::mutex> lock(mutex);
  // Whoever runs the last piece has let go of the queue by then.
  changed.wait(lock, [&] { return ended == pushed && !running; });
  closing = true;
  changed.notify_all();
  lock.unlock();
  if (thread.joinable())
    thread.join();
}

int64_t WorkQueue::push(Work work) {
  int64_t ticket;
  {
    std::lock_guard<std::mutex> lock(mutex);
    pieces.push_back(std::move(work));
    ticket = ++pushed;
    if (!submit)
      changed.notify_all();
  }
  if (submit)
    submit(*this);
  return ticket;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// Writes down how the piece that has run has ended.
void WorkQueue::note(Status outcome) {
  ++ended;
  if (failed) {
    failures.back().last = ended;
  } else if (!outcome.ok()) {
    failed = true;
    if (failures.size() == keptFailures)
      failures.pop_front();
    failures.push_back({ended, ended, std::move(outcome)});
  }
}

void WorkQueue::runFront(std::unique_lock<std::mutex> &lock) {
  Work work = std::move(pieces.front());
  pieces.pop_front();
  bool skipped = failed;
  lock.unlock();
  Status outcome;
  try {
    if (!skipped)
      outcome = work();
  } catch (const std::bad_alloc &) {
    outcome = Status(MOIRA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    outcome = Status(MOIRA_FAILED, error.what());
  } catch (...) { // of a caller's own code
    outcome = Status(MOIRA_FAILED, "unknown failure");
  }
  work = nullptr; // whatever it holds goes before anyone hears of its end
  lock.lock();
  note(std::move(outcome));
  changed.notify_all();
}

void WorkQueue::runNext() {
  std::unique_lock<std::mutex> lock(mutex);
  ++allowed;
  if (running)
    return;
  running = true;
  runner = std::this_thread::get_id();
  while (allowed > 0 && !pieces.empty()) {
    --allowed;
    runFront(lock);
  }
  running = false;
  runner = std::thread::id();
  // Under the lock, since the queue may go as soon as it is free.
  changed.notify_all();
}

void WorkQueue::serve() {
  std::unique_lock<std::mutex> lock(mutex);
  runner = std::this_thread::get_id();
  while (true) {
    changed.wait(lock, [&] { return closing || !pieces.empty(); });
    if (pieces.empty())
      return;
    runFront(lock);
  }
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status WorkQueue::checkTicket(int64_t ticket) const {
  if (ticket >= 1 && ticket <= pushed)
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected a ticket of the queue, 1 to ", pushed,
                       ", got ", ticket));
}

Status WorkQueue::waitFor(std::unique_lock<std::mutex> &lock, int64_t ticket) {
  if (ended < ticket && runner == std::this_thread::get_id())
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected a wait from outside of the queue's work, got one "
                  "from a piece of it, which would wait for itself");
  changed.wait(lock, [&] { return ended >= ticket; });
  return Status();
}

Status WorkQueue::wait(int64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex);
  MOIRA_RETURN_IF_ERROR(checkTicket(ticket));
  MOIRA_RETURN_IF_ERROR(waitFor(lock, ticket));
  for (const Failure &failure : failures)
    if (ticket == failure.first)
      return failure.status;
    else if (ticket > failure.first && ticket <= failure.last)
      return failure.status.within(
          concat("not run, since ticket ", failure.first, " has failed"));
  return Status();
}

Result<bool> WorkQueue::done(int64_t ticket) const {
  std::lock_guard<std::mutex> lock(mutex);
  MOIRA_RETURN_IF_ERROR(checkTicket(ticket));
  return ended >= ticket;
}

Status WorkQueue::synchronize() {
  std::unique_lock<std::mutex> lock(mutex);
  MOIRA_RETURN_IF_ERROR(waitFor(lock, pushed));
  if (!failed)
    return Status();
  failed = false;
  return failures.back().status;
}
