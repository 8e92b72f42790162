// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every transport does with a batch before it sends any of it.

#ifndef MOIRA_RUNTIME_COLLECTIVE_SELFMESSAGES_H
#define MOIRA_RUNTIME_COLLECTIVE_SELFMESSAGES_H

#include "collective/Transport.h"

#include <cstring>

namespace moira::runtime {

/// Refuses peers that do not exist and sizes below 0.
inline Status checkBatch(const Batch &batch, int ranks) {
  for (const std::vector<Message> *side : {&batch.sends, &batch.receives})
    for (const Message &message : *side) {
      if (message.peer < 0 || message.peer >= ranks)
        return Status(
            MOIRA_INVALID_ARGUMENT,
            concat("expected a peer below ", ranks, ", got ", message.peer));
      if (message.bytes < 0 || (message.bytes > 0 && !message.data))
        return Status(MOIRA_INVALID_ARGUMENT,
                      concat("expected memory of 0 or more bytes for rank ",
                             message.peer, ", got ", message.bytes));
    }
  return Status();
}

/// Copies what a rank sends to itself, in order. Host memory.
inline Status copySelfMessages(const Batch &batch, int rank) {
  auto next = [rank](const std::vector<Message> &side, size_t at) {
    while (at < side.size() && (side[at].peer != rank || side[at].bytes == 0))
      ++at;
    return at;
  };
  size_t send = next(batch.sends, 0), receive = next(batch.receives, 0);
  while (send < batch.sends.size() && receive < batch.receives.size()) {
    const Message &from = batch.sends[send], &to = batch.receives[receive];
    if (from.bytes != to.bytes)
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("rank ", rank, " sends ", from.bytes,
                           " bytes to itself and receives ", to.bytes));
    std::memmove(to.data, from.data, static_cast<size_t>(from.bytes));
    send = next(batch.sends, send + 1);
    receive = next(batch.receives, receive + 1);
  }
  if (send < batch.sends.size() || receive < batch.receives.size())
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("rank ", rank,
                         " sends itself another number of messages than it "
                         "receives"));
  return Status();
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_SELFMESSAGES_H
