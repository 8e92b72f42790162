// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "device/emulated/Queues.h"

#include <utility>

using namespace moira;
using namespace moira::runtime;

Status EmulatedQueues::findQueue(DeviceQueue queue, State *&found) {
  auto place = queues.find(queue);
  if (place == queues.end())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected a queue, got ", queue));
  found = &place->second;
  return Status();
}

Status EmulatedQueues::findEvent(Event event, EventState *&found) {
  auto place = events.find(event);
  if (place == events.end())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected an event, got ", event));
  found = &place->second;
  return Status();
}

DeviceQueue EmulatedQueues::createQueue() {
  queues[next];
  return next++;
}

Status EmulatedQueues::destroyQueue(DeviceQueue queue) {
  Status status = synchronize(queue);
  queues.erase(queue);
  return status;
}

Event EmulatedQueues::createEvent() {
  events[next];
  return next++;
}

Status EmulatedQueues::destroyEvent(Event event) {
  EventState *state = nullptr;
  MOIRA_RETURN_IF_ERROR(findEvent(event, state));
  for (auto &queue : queues)
    for (const Item &item : queue.second.items)
      if (item.event == event)
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("emulated device: expected an event that no queue "
                             "uses, got ",
                             event));
  events.erase(event);
  return Status();
}

Status EmulatedQueues::record(Event event, DeviceQueue queue) {
  EventState *what = nullptr;
  State *where = nullptr;
  MOIRA_RETURN_IF_ERROR(findEvent(event, what));
  MOIRA_RETURN_IF_ERROR(findQueue(queue, where));
  where->items.push_back({Item::Record, {}, event, ++what->recorded});
  return Status();
}

Result<double> EmulatedQueues::secondsBetween(Event first, Event second) {
  EventState *from = nullptr, *to = nullptr;
  MOIRA_RETURN_IF_ERROR(findEvent(first, from));
  MOIRA_RETURN_IF_ERROR(findEvent(second, to));
  if (!from->happened || !to->happened)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "emulated device: expected events that have happened, got "
                  "one that has not");
  return std::chrono::duration<double>(to->time - from->time).count();
}

Status EmulatedQueues::wait(DeviceQueue queue, Event event) {
  EventState *what = nullptr;
  State *where = nullptr;
  MOIRA_RETURN_IF_ERROR(findEvent(event, what));
  MOIRA_RETURN_IF_ERROR(findQueue(queue, where));
  where->items.push_back({Item::Wait, {}, event, what->recorded});
  return Status();
}

Status EmulatedQueues::beginCapture(DeviceQueue queue) {
  State *where = nullptr;
  MOIRA_RETURN_IF_ERROR(findQueue(queue, where));
  if (where->captures)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected a queue that keeps nothing "
                         "yet, got ",
                         queue));
  where->captures = true;
  return Status();
}

Result<std::vector<std::function<Status()>>>
EmulatedQueues::endCapture(DeviceQueue queue) {
  State *where = nullptr;
  MOIRA_RETURN_IF_ERROR(findQueue(queue, where));
  if (!where->captures)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected a queue that keeps its "
                         "work, got ",
                         queue));
  where->captures = false;
  return std::exchange(where->captured, {});
}

Status EmulatedQueues::push(DeviceQueue queue, std::function<Status()> work) {
  State *where = nullptr;
  MOIRA_RETURN_IF_ERROR(findQueue(queue, where));
  if (where->captures)
    where->captured.push_back(std::move(work));
  else
    where->items.push_back({Item::Work, std::move(work), 0, 0});
  return Status();
}

bool EmulatedQueues::isReady(const State &state) {
  if (state.items.empty())
    return false;
  const Item &item = state.items.front();
  return item.kind != Item::Wait || events[item.event].happened >= item.time;
}

void EmulatedQueues::step(State &state) {
  Item item = std::move(state.items.front());
  state.items.pop_front();
  if (item.kind == Item::Record) {
    events[item.event].happened = item.time;
    events[item.event].time = std::chrono::steady_clock::now();
  }
  if (item.kind != Item::Work || !state.failure.ok())
    return;
  state.failure = item.work();
}

Status EmulatedQueues::synchronize(DeviceQueue queue) {
  State *wanted = nullptr;
  MOIRA_RETURN_IF_ERROR(findQueue(queue, wanted));
  if (wanted->captures)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected nobody to wait for queue ",
                         queue, ", which keeps its work"));
  while (!wanted->items.empty()) {
    std::vector<State *> ready;
    for (auto &entry : queues)
      if (isReady(entry.second))
        ready.push_back(&entry.second);
    if (ready.empty())
      return Status(MOIRA_FAILED,
                    concat("emulated device: queue ", queue,
                           " waits for an event that no queue will record"));
    State *chosen = ready.front();
    if (state) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      chosen = ready[(state >> 33) % ready.size()];
    } else if (isReady(*wanted)) {
      chosen = wanted;
    }
    step(*chosen);
  }
  Status failure = wanted->failure;
  wanted->failure = Status();
  return failure;
}
