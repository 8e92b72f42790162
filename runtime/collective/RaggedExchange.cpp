// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/RaggedExchange.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// LinearExchange
//===----------------------------------------------------------------------===//

void LinearExchange::begin(int newRank, const Pieces &newPieces) {
  rank = newRank;
  pieces = &newPieces;
  ended = false;
}

/// Copies the pieces that a rank has for itself.
static void copyOwn(int rank, const Pieces &pieces) {
  auto from = pieces.sends.begin(), lastFrom = pieces.sends.end();
  auto own = [&](const Message &piece) { return piece.peer == rank; };
  for (const Message &to : pieces.receives) {
    if (!own(to))
      continue;
    from = std::find_if(from, lastFrom, own);
    if (from == lastFrom)
      return;
    copyBytes(to.data, from->data, to.bytes);
    ++from;
  }
}

bool LinearExchange::next(Batch &batch) {
  batch.sends.clear();
  batch.receives.clear();
  if (ended)
    return false;
  for (const Message &piece : pieces->sends)
    if (piece.peer != rank && piece.bytes > 0)
      batch.sends.push_back(piece);
  for (const Message &piece : pieces->receives)
    if (piece.peer != rank && piece.bytes > 0)
      batch.receives.push_back(piece);
  copyOwn(rank, *pieces);
  ended = true;
  return true;
}

//===----------------------------------------------------------------------===//
// HierarchicalExchange
//===----------------------------------------------------------------------===//

void HierarchicalExchange::Side::begin(const std::vector<Message> &messages,
                                       int ranks) {
  first.assign(ranks + 1, 0);
  for (const Message &message : messages)
    ++first[message.peer + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  order.resize(messages.size());
  piece.assign(first.begin(), first.end() - 1);
  for (size_t i = 0; i < messages.size(); ++i)
    order[piece[messages[i].peer]++] = static_cast<int32_t>(i);
  piece.assign(first.begin(), first.end() - 1);
  used.assign(ranks, 0);
}

void HierarchicalExchange::begin(int newRank, int newRanks, int newNodeSize,
                                 const Pieces &newPieces, const Flows &flows,
                                 int64_t stagingBytes) {
  rank = newRank;
  ranks = newRanks;
  nodeSize = newNodeSize;
  nodes = ranks / nodeSize;
  local = rank % nodeSize;
  node = rank / nodeSize;
  pieces = &newPieces;
  cut = std::max<int64_t>(stagingBytes / ranks, 1024);
  stage = 0;
  turn = 0;

  int64_t largest = 0;
  auto note = [&](int from, int to) {
    int64_t bytes = flows.bytes(from, to);
    largest = std::max(largest, bytes);
    return bytes;
  };
  mine.resize(ranks);
  forwarded.resize(ranks);
  arriving.resize(ranks);
  for (int i = 0; i < nodeSize; ++i)
    for (int b = 0; b < nodes; ++b) {
      mine[i * nodes + b] = note(rank, b * nodeSize + i);
      forwarded[i * nodes + b] =
          note(node * nodeSize + i, b * nodeSize + local);
      arriving[b * nodeSize + i] = note(b * nodeSize + i, rank);
    }
  turns = (largest + cut - 1) / cut;
  sending.begin(pieces->sends, ranks);
  receiving.begin(pieces->receives, ranks);
}

int64_t HierarchicalExchange::now(int64_t flow) const {
  return std::clamp<int64_t>(flow - turn * cut, 0, cut);
}

void HierarchicalExchange::pack(int peer, int64_t bytes, char *to) {
  int32_t &piece = sending.piece[peer];
  int64_t &used = sending.used[peer];
  while (bytes > 0) {
    const Message &message = pieces->sends[sending.order[piece]];
    int64_t share = std::min(bytes, message.bytes - used);
    copyBytes(to, static_cast<const char *>(message.data) + used, share);
    to += share;
    bytes -= share;
    used += share;
    if (used == message.bytes) {
      ++piece;
      used = 0;
    }
  }
}

void HierarchicalExchange::unpack(int peer, int64_t bytes, const char *from) {
  int32_t &piece = receiving.piece[peer];
  int64_t &used = receiving.used[peer];
  while (bytes > 0) {
    const Message &message = pieces->receives[receiving.order[piece]];
    int64_t share = std::min(bytes, message.bytes - used);
    copyBytes(static_cast<char *>(message.data) + used, from, share);
    from += share;
    bytes -= share;
    used += share;
    if (used == message.bytes) {
      ++piece;
      used = 0;
    }
  }
}

/// Bytes of one turn, all flows of a table together.
template <typename Now>
static int64_t total(const std::vector<int64_t> &flows, const Now &now) {
  int64_t bytes = 0;
  for (int64_t flow : flows)
    bytes += now(flow);
  return bytes;
}

/// Sends to the next rank first and to the one before last: no receiver is
/// asked by all at once. `sends` ascend by peer.
static void startAfter(int rank, std::vector<Message> &sends) {
  auto next = std::find_if(sends.begin(), sends.end(),
                           [&](const Message &m) { return m.peer > rank; });
  std::rotate(sends.begin(), next, sends.end());
}

/// Packs by local rank, then by node; exchanges within the node.
void HierarchicalExchange::gatherLocal(Batch &batch) {
  auto turnBytes = [&](int64_t flow) { return now(flow); };
  char *to = first.ensure(total(mine, turnBytes));
  char *from = second.ensure(
      std::max(total(forwarded, turnBytes), total(arriving, turnBytes)));
  char *own = nullptr;
  for (int j = 0; j < nodeSize; ++j) {
    char *begin = to;
    for (int b = 0; b < nodes; ++b) {
      int64_t bytes = now(mine[j * nodes + b]);
      pack(b * nodeSize + j, bytes, to);
      to += bytes;
    }
    if (j == local)
      own = begin;
    else if (to > begin)
      batch.sends.push_back({node * nodeSize + j, begin, to - begin});
  }
  startAfter(rank, batch.sends);
  for (int i = 0; i < nodeSize; ++i) {
    int64_t bytes = 0;
    for (int b = 0; b < nodes; ++b)
      bytes += now(forwarded[i * nodes + b]);
    if (i == local)
      copyBytes(from, own, bytes);
    else if (bytes > 0)
      batch.receives.push_back({node * nodeSize + i, from, bytes});
    from += bytes;
  }
}

/// Repacks by node, then by local rank; exchanges between namesakes.
void HierarchicalExchange::crossNodes(Batch &batch) {
  auto turnBytes = [&](int64_t flow) { return now(flow); };
  char *from = second.ensure(0);
  char *to = first.ensure(total(forwarded, turnBytes));
  char *own = nullptr;
  for (int b = 0; b < nodes; ++b) {
    char *start = to;
    const char *row = from;
    for (int i = 0; i < nodeSize; ++i)
      for (int c = 0; c < nodes; ++c) {
        int64_t bytes = now(forwarded[i * nodes + c]);
        if (c == b) {
          copyBytes(to, row, bytes);
          to += bytes;
        }
        row += bytes;
      }
    if (b == node)
      own = start;
    else if (to > start)
      batch.sends.push_back({b * nodeSize + local, start, to - start});
  }
  startAfter(rank, batch.sends);
  for (int a = 0; a < nodes; ++a) {
    int64_t bytes = 0;
    for (int i = 0; i < nodeSize; ++i)
      bytes += now(arriving[a * nodeSize + i]);
    if (a == node)
      copyBytes(from, own, bytes);
    else if (bytes > 0)
      batch.receives.push_back({a * nodeSize + local, from, bytes});
    from += bytes;
  }
}

void HierarchicalExchange::deliver() {
  const char *from = second.ensure(0);
  for (int a = 0; a < nodes; ++a)
    for (int i = 0; i < nodeSize; ++i) {
      int64_t bytes = now(arriving[a * nodeSize + i]);
      unpack(a * nodeSize + i, bytes, from);
      from += bytes;
    }
}

bool HierarchicalExchange::next(Batch &batch) {
  batch.sends.clear();
  batch.receives.clear();
  if (stage == 2) {
    deliver();
    ++turn;
    stage = 0;
  }
  if (turn == turns)
    return false;
  if (stage == 0)
    gatherLocal(batch);
  else
    crossNodes(batch);
  ++stage;
  return true;
}
