// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Collective.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

static void clear(Batch &batch) {
  batch.sends.clear();
  batch.receives.clear();
}

//===----------------------------------------------------------------------===//
// AllGather, Broadcast
//===----------------------------------------------------------------------===//

/// From this number of ranks on latency counts more than copies, up to this
/// number of bytes in all.
static constexpr int treeRanks = 16;
static constexpr int64_t treeBytes = int64_t(16) << 20;

void AllGather::begin(int newRank, int newRanks, const void *mine,
                      int64_t newBytes, void *newAll) {
  rank = newRank;
  ranks = newRanks;
  bytes = newBytes;
  all = static_cast<char *>(newAll);
  ended = false;
  copyBytes(all + rank * bytes, mine, bytes);
  distance = ranks >= treeRanks && bytes * ranks <= treeBytes ? 1 : 0;
  if (distance)
    copyBytes(staging.ensure(ranks * bytes), all + rank * bytes, bytes);
}

bool AllGather::next(Batch &batch) {
  clear(batch);
  if (ended)
    return false;
  if (distance == 0) {
    for (int d = 1; d < ranks; ++d) {
      int to = (rank + d) % ranks, from = (rank + ranks - d) % ranks;
      batch.sends.push_back({to, all + rank * bytes, bytes});
      batch.receives.push_back({from, all + from * bytes, bytes});
    }
    ended = true;
    return ranks > 1;
  }
  char *blocks = staging.ensure(ranks * bytes);
  if (distance < ranks) {
    int64_t size = std::min(distance, ranks - distance) * bytes;
    batch.sends.push_back({(rank + ranks - distance) % ranks, blocks, size});
    batch.receives.push_back(
        {(rank + distance) % ranks, blocks + distance * bytes, size});
    distance *= 2;
    return true;
  }
  for (int i = 0; i < ranks; ++i)
    copyBytes(all + (rank + i) % ranks * bytes, blocks + i * bytes, bytes);
  ended = true;
  return false;
}

void Broadcast::begin(int newRank, int newRanks, int newRoot, void *newData,
                      int64_t newBytes) {
  rank = newRank;
  ranks = newRanks;
  root = newRoot;
  data = newData;
  bytes = newBytes;
  for (bit = 1; bit < ranks;)
    bit *= 2;
}

bool Broadcast::next(Batch &batch) {
  clear(batch);
  bit /= 2;
  if (bit == 0)
    return false;
  // Those that have the data are the multiples of two bits by now. A rank whose
  // turn has not come has an empty batch: both ends count batches alike.
  int place = (rank + ranks - root) % ranks;
  if (place % (2 * bit) == 0 && place + bit < ranks)
    batch.sends.push_back({(place + bit + root) % ranks, data, bytes});
  else if (place % (2 * bit) == bit)
    batch.receives.push_back({(place - bit + root) % ranks, data, bytes});
  return true;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Status ReduceScatter::begin(int newRank, int newRanks, const void *newIn,
                            void *newOut, int64_t newCount, int32_t newDtype,
                            Reduction newReduction, int64_t stagingBytes) {
  MOIRA_RETURN_IF_ERROR(checkReducible(newDtype));
  rank = newRank;
  ranks = newRanks;
  in = static_cast<const char *>(newIn);
  out = static_cast<char *>(newOut);
  count = newCount;
  dtype = newDtype;
  reduction = newReduction;
  done = 0;
  waiting = false;
  block = std::clamp<int64_t>(stagingBytes / ranks / reducibleBytes(dtype), 1,
                              std::max<int64_t>(count, 1));
  return Status();
}

bool ReduceScatter::next(Batch &batch) {
  clear(batch);
  int64_t size = reducibleBytes(dtype);
  char *parts = staging.ensure(ranks * block * size);
  if (waiting) {
    int64_t n = std::min(block, count - done);
    char *result = out + done * size;
    addends.clear();
    for (int p = 0; p < ranks; ++p)
      addends.push_back(p == rank ? in + (rank * count + done) * size
                                  : parts + p * block * size);
    reduceParts(result, addends, n, dtype, reduction);
    done += n;
  }
  waiting = done < count;
  if (!waiting)
    return false;
  int64_t bytes = std::min(block, count - done) * size;
  for (int d = 1; d < ranks; ++d) {
    int to = (rank + d) % ranks, from = (rank + ranks - d) % ranks;
    batch.sends.push_back(
        {to, const_cast<char *>(in) + (to * count + done) * size, bytes});
    batch.receives.push_back({from, parts + from * block * size, bytes});
  }
  return true;
}

Status AllReduce::begin(int newRank, int newRanks, const void *in,
                        void *newData, int64_t newCount, int32_t newDtype,
                        Reduction newReduction, int64_t stagingBytes) {
  MOIRA_RETURN_IF_ERROR(checkReducible(newDtype));
  if (newCount < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 0 or more elements, got ", newCount));
  copyBytes(newData, in, newCount * reducibleBytes(newDtype));
  rank = newRank;
  ranks = newRanks;
  data = static_cast<char *>(newData);
  count = newCount;
  dtype = newDtype;
  reduction = newReduction;
  done = 0;
  stage = 0;
  // All ranks' shares of one part are staged: together as much as the block.
  block = std::clamp<int64_t>(stagingBytes / reducibleBytes(dtype), ranks,
                              std::max<int64_t>(count, ranks));
  return Status();
}

AllReduce::Part AllReduce::part(int r) const {
  int64_t n = std::min(block, count - done);
  int64_t begin = n * r / ranks;
  return {done + begin, n * (r + 1) / ranks - begin};
}

bool AllReduce::next(Batch &batch) {
  clear(batch);
  if (ranks == 1)
    return false;
  int64_t size = reducibleBytes(dtype);
  if (stage == 2) {
    done += std::min(block, count - done);
    stage = 0;
  }
  if (done >= count)
    return false;
  Part mine = part(rank);
  int64_t room = (std::min(block, count - done) + ranks - 1) / ranks * size;
  char *parts = staging.ensure(room * ranks);
  if (stage == 1) {
    char *result = data + mine.begin * size;
    copyBytes(parts + rank * room, result, mine.count * size);
    addends.clear();
    for (int p = 0; p < ranks; ++p)
      addends.push_back(parts + p * room);
    reduceParts(result, addends, mine.count, dtype, reduction);
  }
  for (int d = 1; d < ranks; ++d) {
    int to = (rank + d) % ranks, from = (rank + ranks - d) % ranks;
    Part theirs = part(stage == 0 ? to : from);
    char *place = data + theirs.begin * size;
    if (stage == 0) {
      batch.sends.push_back({to, place, theirs.count * size});
      batch.receives.push_back({from, parts + from * room, mine.count * size});
    } else {
      batch.sends.push_back({to, data + mine.begin * size, mine.count * size});
      batch.receives.push_back({from, place, theirs.count * size});
    }
  }
  ++stage;
  return true;
}
