// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Queue.h"

#include <algorithm>
#include <exception>
#include <new>

using namespace moira;
using namespace moira::runtime;

Queue::Queue(std::unique_ptr<Transport> newTransport,
             const CommunicatorOptions &options)
    : transport(std::move(newTransport)), options(options), tasks(capacity) {
  counted.peers.resize(transport ? transport->ranks() : 1);
  if (transport)
    thread = std::thread([this] { work(); });
}

Queue::~Queue() {
  if (!transport)
    return;
  close();
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  submitted.notify_one();
  thread.join();
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

int64_t Queue::submit(Performer &performer, const Request &request) {
  std::unique_lock<std::mutex> lock(mutex);
  if (!transport) {
    if (!failed) {
      lock.unlock();
      execute({&performer, request});
      lock.lock();
    }
    if (failed)
      return -1;
    ++endedCount;
    return submittedCount++;
  }
  ended.wait(lock, [&] { return submittedCount - endedCount < capacity; });
  if (failed)
    return -1;
  Task &task = tasks[submittedCount % capacity];
  task.performer = &performer;
  task.request = request;
  submitted.notify_one();
  return submittedCount++;
}

Status Queue::wait(int64_t ticket) {
  {
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait(lock, [&] {
      return endedCount > ticket || endedCount == submittedCount;
    });
    if (ticket >= submittedCount)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("wait: expected a ticket below ", submittedCount,
                           ", got ", ticket));
  }
  return failure();
}

void Queue::close() {
  bool busy;
  {
    std::lock_guard<std::mutex> lock(mutex);
    busy = endedCount < submittedCount;
  }
  if (busy)
    fail(MOIRA_FAILED, "the communicator was destroyed");
  drain();
}

void Queue::drain() {
  std::unique_lock<std::mutex> lock(mutex);
  ended.wait(lock, [&] { return endedCount == submittedCount; });
}

void Queue::work() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    submitted.wait(lock,
                   [&] { return stopping || endedCount < submittedCount; });
    if (endedCount == submittedCount)
      return;
    // The slot is not written to before its request has ended.
    Task &task = tasks[endedCount % capacity];
    if (!failed) {
      lock.unlock();
      execute(task);
      lock.lock();
    }
    ++endedCount;
    ended.notify_all();
  }
}

void Queue::execute(const Task &task) {
  Status status;
  blamed = -1;
  try {
    status = task.performer->perform(task.request, *this);
  } catch (const std::bad_alloc &) {
    status = Status(MOIRA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    status = Status(MOIRA_FAILED, error.what());
  }
  if (status.ok())
    return;
  Failure mine{blamed >= 0 ? blamed : rank(), status.code,
               task.request.describe() + ": " + status.message, steps};
  if (!transport)
    return learn(mine);
  std::optional<Failure> known = transport->failure();
  if (!known) {
    transport->abort(mine);
    known = transport->failure();
  }
  // Until then messages may still read and write the caller's memory.
  Clock::time_point begin = Clock::now();
  while (transport->test().ok() &&
         Clock::now() - begin < std::chrono::seconds(5))
    transport->idle();
  learn(known.value_or(mine));
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

/// Messages of more than `most` bytes become several; both sides cut alike.
static void cutMessages(std::vector<Message> &messages, int64_t most) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].bytes <= most)
      continue;
    Message rest = messages[i];
    rest.data = static_cast<char *>(rest.data) + most;
    rest.bytes -= most;
    messages[i].bytes = most;
    messages.insert(messages.begin() + i + 1, rest);
  }
}

Status Queue::run(Collective &collective, const Members &members,
                  const TrafficTag &tag) {
  while (collective.next(batch)) {
    for (std::vector<Message> *messages : {&batch.sends, &batch.receives}) {
      for (Message &message : *messages)
        message.peer = members.ranks[message.peer];
      cutMessages(*messages, options.messageBytes);
    }
    if (batch.sends.empty() && batch.receives.empty())
      continue;
    {
      std::lock_guard<std::mutex> lock(trafficMutex);
      counted.count(batch, tag);
    }
    MOIRA_RETURN_IF_ERROR(transport->post(batch));
    MOIRA_RETURN_IF_ERROR(carry());
  }
  return Status();
}

/// Waits until the batch has completed.
Status Queue::carry() {
  Clock::time_point begin = Clock::now();
  for (;;) {
    Result<bool> completed = transport->test();
    if (!completed.ok())
      return completed.status();
    if (*completed)
      return Status();
    if (interrupted)
      return Status(MOIRA_FAILED, "interrupted");
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds > options.timeoutSeconds) {
      blamed = transport->awaited();
      return Status(MOIRA_FAILED,
                    concat("expected its part within ", options.timeoutSeconds,
                           " seconds, got none (rank ", rank(), " waits)"));
    }
    transport->idle();
  }
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

void Queue::learn(const Failure &failure) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!failed)
    failed = failure;
}

void Queue::fail(const Failure &failure) {
  if (!transport)
    return learn(failure);
  transport->abort(failure);
  learn(transport->failure().value_or(failure));
}

Status Queue::toStatus(const Failure &failure) const {
  return Status(failure.code,
                transport ? concat("rank ", failure.rank, ": ", failure.reason)
                          : failure.reason);
}

Status Queue::failure() {
  std::lock_guard<std::mutex> lock(mutex);
  return failed ? toStatus(*failed) : Status();
}

Status Queue::outcome() {
  std::lock_guard<std::mutex> lock(mutex);
  return failed && failed->step <= steps ? toStatus(*failed) : Status();
}

Status Queue::poll() {
  if (transport)
    if (std::optional<Failure> told = transport->failure())
      learn(*told);
  return failure();
}

Status Queue::recover() {
  drain();
  interrupted = false;
  if (transport) {
    if (!transport->recoverable())
      return failure();
    Clock::time_point begin = Clock::now();
    while (!transport->recover()) {
      double seconds =
          std::chrono::duration<double>(Clock::now() - begin).count();
      if (interrupted || seconds > options.timeoutSeconds)
        return failure().within("expected all ranks to leave the failed step");
      transport->idle();
    }
  }
  std::lock_guard<std::mutex> lock(mutex);
  failed.reset();
  return Status();
}

Traffic Queue::traffic() {
  std::lock_guard<std::mutex> lock(trafficMutex);
  return counted;
}

void Queue::resetTraffic() {
  std::lock_guard<std::mutex> lock(trafficMutex);
  Traffic none;
  none.peers.resize(counted.peers.size());
  counted = std::move(none);
}

TrafficCount Queue::takeLayer(int64_t layer) {
  std::lock_guard<std::mutex> lock(trafficMutex);
  if (layer < 0 || layer >= static_cast<int64_t>(counted.layers.size()))
    return TrafficCount();
  return std::exchange(counted.layers[layer], TrafficCount());
}
