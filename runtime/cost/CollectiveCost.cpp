// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/CollectiveCost.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

// AllGather's own numbers.
static constexpr int treeRanks = 16;
static constexpr int64_t treeBytes = int64_t(16) << 20;

void CollectiveCost::begin() {
  ready.assign(topology.ranks(), 0);
  turns.assign(topology.ranks(), 0);
  batch.clear();
}

void CollectiveCost::send(int from, int to, int64_t bytes) {
  if (from != to && bytes > 0)
    batch.push_back({from, to, bytes, turns[from]++, 0, 0});
}

void CollectiveCost::endBatch() {
  schedule.place(ready, batch);
  for (const TimedMessage &message : batch)
    for (int rank : {message.from, message.to})
      ready[rank] = std::max(ready[rank], message.end);
  std::fill(turns.begin(), turns.end(), 0);
  batch.clear();
}

double CollectiveCost::last() const {
  return *std::max_element(ready.begin(), ready.end());
}

double CollectiveCost::allGather(int64_t bytes) {
  int ranks = topology.ranks();
  begin();
  if (ranks < treeRanks || bytes * ranks > treeBytes) {
    for (int rank = 0; rank < ranks; ++rank)
      for (int d = 1; d < ranks; ++d)
        send(rank, (rank + d) % ranks, bytes);
    endBatch();
    return last();
  }
  for (int distance = 1; distance < ranks; distance *= 2) {
    for (int rank = 0; rank < ranks; ++rank)
      send(rank, (rank + ranks - distance) % ranks,
           std::min(distance, ranks - distance) * bytes);
    endBatch();
  }
  return last();
}

/// Bit by bit: who has the data by then sends it that far.
double CollectiveCost::broadcast(int root, int64_t bytes) {
  int ranks = topology.ranks();
  begin();
  int bit = 1;
  while (bit < ranks)
    bit *= 2;
  while (bit /= 2) {
    for (int place = 0; place + bit < ranks; place += 2 * bit)
      send((place + root) % ranks, (place + bit + root) % ranks, bytes);
    endBatch();
  }
  return last();
}

double CollectiveCost::reduceScatter(int64_t count, int64_t elementBytes) {
  int ranks = topology.ranks();
  begin();
  int64_t block = std::clamp<int64_t>(stagingBytes / ranks / elementBytes, 1,
                                      std::max<int64_t>(count, 1));
  for (int64_t done = 0; done < count; done += block) {
    int64_t bytes = std::min(block, count - done) * elementBytes;
    for (int rank = 0; rank < ranks; ++rank)
      for (int d = 1; d < ranks; ++d)
        send(rank, (rank + d) % ranks, bytes);
    endBatch();
  }
  return last();
}

double CollectiveCost::allReduce(int64_t count, int64_t elementBytes) {
  int ranks = topology.ranks();
  begin();
  int64_t block = std::clamp<int64_t>(stagingBytes / elementBytes, ranks,
                                      std::max<int64_t>(count, ranks));
  for (int64_t done = 0; done < count && ranks > 1; done += block) {
    int64_t n = std::min(block, count - done);
    // The part that a rank adds up, then sends to all.
    auto part = [&](int rank) {
      return (n * (rank + 1) / ranks - n * rank / ranks) * elementBytes;
    };
    for (bool adds : {true, false}) {
      for (int rank = 0; rank < ranks; ++rank)
        for (int d = 1; d < ranks; ++d) {
          int to = (rank + d) % ranks;
          send(rank, to, part(adds ? to : rank));
        }
      endBatch();
    }
  }
  return last();
}
