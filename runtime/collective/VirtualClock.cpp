// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/VirtualClock.h"

#include <algorithm>
#include <chrono>
#include <ctime>

using namespace moira;
using namespace moira::runtime;

double moira::runtime::threadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

void VirtualClock::pause() {
  if (running && factor > 0)
    compute += factor * (threadCpuSeconds() - cpu);
  running = false;
}

void VirtualClock::resume() {
  running = true;
  if (factor > 0)
    cpu = threadCpuSeconds();
}

double VirtualClock::seconds() {
  bool was = running;
  pause();
  if (was)
    resume();
  return compute;
}

//===----------------------------------------------------------------------===//
// VirtualNetwork
//===----------------------------------------------------------------------===//

/// Round by round: a rank begins a round when it has ended the one before.
void VirtualNetwork::time(Meeting &meeting, const Members &members) {
  std::vector<double> ready(topology.ranks());
  std::vector<TimedMessage> messages;
  bool more = true;
  for (size_t round = 0; more; ++round) {
    more = false;
    messages.clear();
    for (int m = 0; m < members.size(); ++m) {
      const OperationTrace &operation = meeting.operations[m];
      int rank = members.ranks[m];
      ready[rank] = meeting.times[m];
      if (round >= operation.roundEnds.size())
        continue;
      more = true;
      size_t first = round == 0 ? 0 : operation.roundEnds[round - 1];
      for (size_t i = first; i < operation.roundEnds[round]; ++i)
        messages.push_back({rank, operation.sends[i].to,
                            operation.sends[i].bytes,
                            static_cast<int>(i - first), 0, 0});
    }
    schedule.place(ready, messages);
    for (const TimedMessage &message : messages)
      for (int rank : {message.from, message.to})
        ready[rank] = std::max(ready[rank], message.end);
    for (int m = 0; m < members.size(); ++m)
      meeting.times[m] = ready[members.ranks[m]];
  }
}

Result<double> VirtualNetwork::settle(const Key &key, const Members &members,
                                      double begin,
                                      const OperationTrace &operation,
                                      const std::function<bool()> &failed) {
  if (members.ranks.back() >= topology.ranks())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a topology of more than ",
                         members.ranks.back(), " ranks, got ",
                         topology.ranks()));
  std::unique_lock<std::mutex> lock(mutex);
  // Operations of steps that failed have never met.
  meetings.erase(meetings.lower_bound(Key{key.group, 0, 0}),
                 meetings.lower_bound(Key{key.group, key.step, 0}));
  std::shared_ptr<Meeting> &place = meetings[key];
  if (!place) {
    place = std::make_shared<Meeting>();
    place->times.resize(members.size());
    place->operations.resize(members.size());
  }
  std::shared_ptr<Meeting> meeting = place;
  meeting->times[members.rank] = begin;
  meeting->operations[members.rank] = operation;
  if (++meeting->arrived == members.size()) {
    time(*meeting, members);
    meeting->settled = true;
    meetings.erase(key);
    changed.notify_all();
  }
  while (!meeting->settled) {
    changed.wait_for(lock, std::chrono::milliseconds(50));
    if (!meeting->settled && failed())
      return Status(MOIRA_FAILED, "another rank has failed");
  }
  return meeting->times[members.rank];
}
