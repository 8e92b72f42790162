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
  size_t ranks = transport ? transport->ranks() : 1;
  counted.peers.resize(ranks);
  sentTo.resize(ranks);
  receivedFrom.resize(ranks);
  if (options.clock)
    ends.resize(endsKept);
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
      execute({&performer, request, clock() ? clock()->seconds() : 0});
      lock.lock();
    }
    if (failed)
      return -1;
    if (clock())
      ends[endedCount % endsKept] = freeAt;
    ++endedCount;
    return submittedCount++;
  }
  ended.wait(lock, [&] { return submittedCount - endedCount < capacity; });
  if (failed)
    return -1;
  Task &task = tasks[submittedCount % capacity];
  task.performer = &performer;
  task.request = request;
  task.asked = clock() ? clock()->seconds() : 0;
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
    if (clock() && ticket >= 0)
      clock()->waitUntil(ends[ticket % endsKept]);
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
    if (clock())
      ends[endedCount % endsKept] = freeAt;
    ++endedCount;
    ended.notify_all();
  }
}

void Queue::execute(const Task &task) {
  Status status;
  blamed = -1;
  operation.sends.clear();
  operation.roundEnds.clear();
  sendPeers.clear();
  receivePeers.clear();
  begun = clock() ? std::max(freeAt, task.asked) : realSeconds();
  try {
    status = task.performer->perform(task.request, *this);
    if (status.ok() && clock())
      status = settle(task);
  } catch (const std::bad_alloc &) {
    status = Status(MOIRA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    status = Status(MOIRA_FAILED, error.what());
  }
  if (status.ok() && trace()) {
    double end = clock() ? freeAt : realSeconds();
    trace()->add(TraceEvent{task.request.describe(), TraceQueue::Communication,
                            begun, end});
    traceFlows(/*sent=*/true, begun);
    traceFlows(/*sent=*/false, end);
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
  SteadyClock::time_point begin = SteadyClock::now();
  while (transport->test().ok() &&
         SteadyClock::now() - begin < std::chrono::seconds(5))
    transport->idle();
  learn(known.value_or(mine));
}

/// Times the request on the virtual network.
Status Queue::settle(const Task &task) {
  Performer &performer = *task.performer;
  if (performer.step != steps) {
    performer.step = steps;
    performer.index = 0;
  }
  Result<double> end = clock()->network->settle(
      {performer.members.group, performer.step, performer.index++},
      performer.members, begun, operation,
      [&] { return transport && transport->failure(); });
  if (!end.ok())
    return end.status();
  freeAt = *end;
  return Status();
}

/// One end of each message of the request. Messages between two ranks have
/// numbers in their order, so both ends know the id.
void Queue::traceFlows(bool sent, double time) {
  for (int peer : sent ? sendPeers : receivePeers) {
    uint64_t number = (sent ? sentTo : receivedFrom)[peer]++;
    uint64_t from = sent ? rank() : peer, to = sent ? peer : rank();
    trace()->add(TraceFlow{from << 52 | to << 40 | number, time, sent});
  }
}

double Queue::endOf(int64_t ticket) {
  std::lock_guard<std::mutex> lock(mutex);
  return ends.empty() || ticket < 0 ? 0 : ends[ticket % endsKept];
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
    if (clock()) {
      for (const Message &message : batch.sends)
        if (message.bytes > 0)
          operation.sends.push_back({message.peer, message.bytes});
      operation.roundEnds.push_back(operation.sends.size());
    }
    if (trace()) {
      for (const Message &message : batch.sends)
        if (message.bytes > 0)
          sendPeers.push_back(message.peer);
      for (const Message &message : batch.receives)
        if (message.bytes > 0)
          receivePeers.push_back(message.peer);
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
  SteadyClock::time_point begin = SteadyClock::now();
  for (;;) {
    // It counts once, when it is noticed: never is one lost between steps.
    if (interrupted.exchange(false))
      return Status(MOIRA_FAILED, "interrupted");
    Result<bool> completed = transport->test();
    if (!completed.ok())
      return completed.status();
    if (*completed)
      return Status();
    double seconds =
        std::chrono::duration<double>(SteadyClock::now() - begin).count();
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
  if (transport) {
    if (!transport->recoverable())
      return failure();
    SteadyClock::time_point begin = SteadyClock::now();
    while (!transport->recover()) {
      double seconds =
          std::chrono::duration<double>(SteadyClock::now() - begin).count();
      // An interrupt meanwhile is left to the step that begins: there all ranks
      // learn of it.
      if (seconds > options.timeoutSeconds)
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
