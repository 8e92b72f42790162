// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LinkSchedule.h"

#include <algorithm>
#include <tuple>

using namespace moira;
using namespace moira::runtime;

void LinkSchedule::place(const std::vector<double> &ready,
                         std::vector<TimedMessage> &messages) {
  for (TimedMessage &message : messages)
    message.begin = std::max(ready[message.from], ready[message.to]);
  std::sort(messages.begin(), messages.end(),
            [](const TimedMessage &a, const TimedMessage &b) {
              return std::tie(a.begin, a.turn, a.from) <
                     std::tie(b.begin, b.turn, b.from);
            });
  free.assign(topology.links().size(), 0);
  for (TimedMessage &message : messages) {
    const std::vector<int> &path = topology.path(message.from, message.to);
    for (int link : path)
      message.begin = std::max(message.begin, free[link]);
    // The first byte passes; a wider link is free before the last arrives.
    for (int link : path)
      free[link] = message.begin + topology.links()[link].overhead +
                   message.bytes / topology.links()[link].bandwidth;
    message.end = message.begin + topology.messageSeconds(
                                      message.from, message.to, message.bytes);
  }
}
