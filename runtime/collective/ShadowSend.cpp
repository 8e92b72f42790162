// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/ShadowSend.h"

using namespace moira;
using namespace moira::runtime;

void ShadowSend::begin(int newPlace, int newCount, void *newData,
                       int64_t newBytes, ShadowTransport newTransport) {
  place = newPlace;
  count = newCount;
  data = static_cast<char *>(newData);
  bytes = newBytes;
  transport = newTransport == ShadowTransport::BySize
                  ? shadowTransport(count, bytes)
                  : newTransport;
  round = 0;
  tree.begin(place, count, /*root=*/0, data, bytes);
}

void ShadowSend::part(int index, void *&address, int64_t &partBytes) const {
  int64_t begin = bytes * index / count;
  address = data + begin;
  partBytes = bytes * (index + 1) / count - begin;
}

bool ShadowSend::next(Batch &batch) {
  if (transport == ShadowTransport::Tree)
    return tree.next(batch);
  batch.sends.clear();
  batch.receives.clear();
  bool split = transport == ShadowTransport::Split;
  if (round == (split ? 2 : 1))
    return false;
  Message message;
  if (round == 0) {
    // All of it, or to each its own part.
    for (int to = 1; to < count; ++to) {
      if (place != 0 && place != to)
        continue;
      message = {place == 0 ? to : 0, data, bytes};
      if (split)
        part(to, message.data, message.bytes);
      (place == 0 ? batch.sends : batch.receives).push_back(message);
    }
  } else {
    // Each part from where it is to all but the owner.
    for (int d = 1; d < count; ++d) {
      int to = (place + d) % count, from = (place + count - d) % count;
      if (to != 0) {
        message.peer = to;
        part(place, message.data, message.bytes);
        batch.sends.push_back(message);
      }
      if (place != 0) {
        message.peer = from;
        part(from, message.data, message.bytes);
        batch.receives.push_back(message);
      }
    }
  }
  ++round;
  return true;
}

void runtime::findShadowRanks(const Placement &lasting, const Placement &step,
                              int unit, std::vector<int> &ranks) {
  int owner = lasting.holder(unit, 0).rank;
  ranks.assign(1, owner);
  for (int d = 1; d < step.ranks(); ++d) {
    int rank = (owner + d) % step.ranks();
    if (step.holderFor(unit, rank).rank == rank &&
        lasting.holderFor(unit, rank).rank != rank)
      ranks.push_back(rank);
  }
}
