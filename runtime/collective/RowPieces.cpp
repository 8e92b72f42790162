// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/RowPieces.h"

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

void moira::runtime::rowPieces(const moira_exchange &exchange,
                               const ExchangeLayout &layout,
                               const RankGroups &groups, Pieces &pieces) {
  pieces.clear();
  bool toTokens = exchange.direction == MOIRA_TO_TOKENS;
  std::vector<Message> &ofHome = toTokens ? pieces.receives : pieces.sends;
  std::vector<Message> &ofAway = toTokens ? pieces.sends : pieces.receives;
  auto add = [&](std::vector<Message> &list, int peer, void *memory,
                 const RowRange &range) {
    int64_t bytes = range.rows * exchange.row_bytes;
    if (bytes > 0)
      list.push_back(
          {peer, static_cast<char *>(memory) + range.begin * exchange.row_bytes,
           bytes});
  };
  for (int d = 0; d < groups.ranks; ++d) {
    int peer = groups.peer(groups.rank, d);
    for (int slot = 0; slot < layout.slots(); ++slot) {
      add(ofHome, peer, exchange.home, layout.home(peer, slot));
      add(ofAway, peer, exchange.away, layout.away(slot, peer));
    }
  }
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

namespace {
/// Which part of the weights a rank gets from where: `to` counts the parts of
/// moira_gather.whole.
struct Part {
  int64_t to;
  Place from;
};

/// Lists what `rank` needs, in one order for all who ask.
class Needs {
public:
  Needs(const moira_gather &gather, const Placement &placement)
      : placement(placement), shards(placement.shards()),
        copies(gather.placement.copies), replicated(gather.replicated) {}

  template <typename Action> void of(int rank, const Action &action) const {
    if (copies == 0 && replicated) {
      for (int e = 0; e < placement.experts(); ++e)
        action(Part{e, anyOf(e, rank)});
    } else if (copies == 0) {
      for (int u = 0; u < placement.units(); ++u)
        action(Part{u, placement.holderFor(u, rank)});
    } else {
      ofSlots(rank, action);
    }
  }

private:
  template <typename Action>
  void ofSlots(int rank, const Action &action) const {
    int parts = replicated ? 1 : shards / copies;
    for (int slot = 0; slot < placement.slots(); ++slot) {
      int unit = placement.unit(rank, slot);
      if (unit < 0)
        continue;
      int first = replicated ? unit : unit - unit % shards % parts;
      for (int j = 0; j < parts; ++j)
        action(Part{int64_t(slot) * parts + j,
                    placement.holderFor(first + j, rank)});
    }
  }

  /// A holder of any shard of an expert: the rank itself if it is one. Else
  /// neighbours ask for different shards.
  Place anyOf(int expert, int rank) const {
    for (int h = 0; h < shards; ++h) {
      Place place = placement.holderFor(expert * shards + h, rank);
      if (place.rank == rank)
        return place;
    }
    return placement.holderFor(expert * shards + rank % shards, rank);
  }

  const Placement &placement;
  const int shards;
  const int copies;
  const bool replicated;
};
} // namespace

Status moira::runtime::weightPieces(const moira_gather &gather,
                                    const Placement &placement,
                                    const RankGroups &groups, Pieces &pieces) {
  const int rank = groups.rank;
  pieces.clear();
  if (gather.bytes < 0)
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("gather: expected 0 or more bytes, got ", gather.bytes));
  int64_t bytes = gather.bytes;
  if (bytes == 0)
    return Status();
  auto *local = static_cast<char *>(const_cast<void *>(gather.local));
  auto *whole = static_cast<char *>(gather.whole);
  Needs needs(gather, placement);
  needs.of(rank, [&](const Part &part) {
    pieces.receives.push_back({part.from.rank, whole + part.to * bytes, bytes});
  });
  for (int d = 0; d < groups.ranks; ++d) {
    int peer = groups.peer(rank, d);
    needs.of(peer, [&](const Part &part) {
      if (part.from.rank == rank)
        pieces.sends.push_back({peer, local + part.from.slot * bytes, bytes});
    });
  }
  return Status();
}
