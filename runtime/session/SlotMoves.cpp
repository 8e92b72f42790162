// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/SlotMoves.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

std::vector<SlotMove> runtime::listMoves(const Placement &before,
                                         const std::vector<int32_t> &after) {
  std::vector<SlotMove> moves;
  for (int rank = 0; rank < before.ranks(); ++rank)
    for (int slot = 0; slot < before.slots(); ++slot) {
      int unit = after[size_t(rank) * before.slots() + slot];
      if (unit >= 0 && unit != before.unit(rank, slot))
        moves.push_back({before.holderFor(unit, rank), {rank, slot}});
    }
  return moves;
}

int64_t runtime::countArriving(const std::vector<SlotMove> &moves, int rank) {
  return std::count_if(moves.begin(), moves.end(), [&](const SlotMove &move) {
    return move.to.rank == rank;
  });
}

Result<const Pieces *> SlotMover::begin(void *newSlots, int64_t newBytes) {
  slots = static_cast<char *>(newSlots);
  bytes = newBytes;
  pieces.clear();
  staging = Storage(); // that of the kind before goes first
  Result<Storage> made = Storage::allocate(account, MemoryKind::Workspace,
                                           countArriving(moves, rank) * bytes);
  if (!made.ok())
    return made.status();
  staging = std::move(*made);
  char *next = static_cast<char *>(staging.data());
  for (const SlotMove &move : moves) {
    if (move.from.rank == rank)
      pieces.sends.push_back(
          {move.to.rank, slots + move.from.slot * bytes, bytes});
    if (move.to.rank != rank)
      continue;
    pieces.receives.push_back({move.from.rank, next, bytes});
    next += bytes;
  }
  return &pieces;
}

void SlotMover::finish() {
  auto *next = static_cast<const char *>(staging.data());
  for (const SlotMove &move : moves) {
    if (move.to.rank != rank)
      continue;
    copyBytes(slots + move.to.slot * bytes, next, bytes);
    next += bytes;
  }
}
