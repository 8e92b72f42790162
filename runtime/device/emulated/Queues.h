// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work is done when somebody waits for it, one piece at a time, from whichever
// queue comes next: queues that nothing orders run in different orders with
// different seeds.

#ifndef MOIRA_RUNTIME_DEVICE_EMULATED_QUEUES_H
#define MOIRA_RUNTIME_DEVICE_EMULATED_QUEUES_H

#include "device/Device.h"

#include <chrono>
#include <deque>
#include <functional>
#include <map>

namespace moira::runtime {

class EmulatedQueues {
public:
  void setSeed(uint64_t seed) { state = seed; }

  DeviceQueue createQueue();
  /// Does what is left in it first.
  Status destroyQueue(DeviceQueue queue);
  Event createEvent();
  Status destroyEvent(Event event);
  Status record(Event event, DeviceQueue queue);
  /// Of the host's clock: how long the emulation took.
  Result<double> secondsBetween(Event first, Event second);
  Status wait(DeviceQueue queue, Event event);
  Status beginCapture(DeviceQueue queue);
  Result<std::vector<std::function<Status()>>> endCapture(DeviceQueue queue);
  Status push(DeviceQueue queue, std::function<Status()> work);
  Status synchronize(DeviceQueue queue);

private:
  struct Item {
    enum { Work, Record, Wait } kind;
    std::function<Status()> work;
    Event event = 0;
    uint64_t time = 0; ///< which of the event's records
  };
  struct State {
    std::deque<Item> items;
    Status failure; ///< the first one; later work is dropped
    bool captures = false;
    std::vector<std::function<Status()>> captured;
  };
  struct EventState {
    uint64_t recorded = 0, happened = 0;
    std::chrono::steady_clock::time_point time;
  };
  Status findQueue(DeviceQueue queue, State *&found);
  Status findEvent(Event event, EventState *&found);
  bool isReady(const State &state);
  void step(State &state);

  std::map<DeviceQueue, State> queues;
  std::map<Event, EventState> events;
  uint64_t next = 1;
  uint64_t state = 0; ///< of the random order; 0: in turn
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_DEVICE_EMULATED_QUEUES_H
