// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Traffic.h"

using namespace moira;
using namespace moira::runtime;

static TrafficCount &entry(std::vector<TrafficCount> &list, int64_t index,
                           TrafficCount &otherwise) {
  if (index < 0)
    return otherwise;
  if (static_cast<int64_t>(list.size()) <= index)
    list.resize(index + 1);
  return list[index];
}

void Traffic::count(const Batch &batch, const TrafficTag &tag) {
  TrafficCount nowhere;
  TrafficCount &ofKind = kinds[static_cast<int>(tag.kind)];
  TrafficCount &ofLayer = entry(layers, tag.layer, nowhere);
  TrafficCount &ofParameter = entry(parameters, tag.parameter, nowhere);
  for (const Message &message : batch.sends)
    for (TrafficCount *to :
         {&ofKind, &ofLayer, &ofParameter, &peers[message.peer]}) {
      to->bytesSent += message.bytes;
      to->messagesSent += message.bytes > 0;
    }
  for (const Message &message : batch.receives)
    for (TrafficCount *to :
         {&ofKind, &ofLayer, &ofParameter, &peers[message.peer]}) {
      to->bytesReceived += message.bytes;
      to->messagesReceived += message.bytes > 0;
    }
}
