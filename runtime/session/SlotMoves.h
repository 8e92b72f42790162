// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From one lasting slot table to another (FlexMoE's expand, shrink, migrate):
// which slots get their bytes from where.

#ifndef MOIRA_RUNTIME_SESSION_SLOTMOVES_H
#define MOIRA_RUNTIME_SESSION_SLOTMOVES_H

#include "base/Memory.h"
#include "collective/Placement.h"
#include "collective/RaggedExchange.h"

#include <vector>

namespace moira::runtime {

/// A slot that gets another unit, and a slot that has it by now.
struct SlotMove {
  Place from, to;
};

/// What must move so that slots hold what `after` says, [ranks, slots]. A unit
/// that is nowhere on its new rank comes from the holder that the rank's rows
/// would go to. In the order of the places that get something.
std::vector<SlotMove> listMoves(const Placement &before,
                                const std::vector<int32_t> &after);

/// How many of these end on `rank`.
int64_t countArriving(const std::vector<SlotMove> &moves, int rank);

/// Carries moves out for memory of one kind after the other. Slots are read
/// before any is written, since units may change places: what arrives stands
/// beside them until then, counted as workspace.
class SlotMover {
public:
  SlotMover(std::vector<SlotMove> moves, int rank,
            std::shared_ptr<MemoryAccount> account)
      : moves(std::move(moves)), rank(rank), account(std::move(account)) {}

  /// What this rank sends of `slots`, [slots, bytes], and receives beside them.
  /// Valid until the next call. Fails where there is no memory for that.
  Result<const Pieces *> begin(void *slots, int64_t bytes);
  /// Puts what has come in place.
  void finish();

private:
  const std::vector<SlotMove> moves;
  const int rank;
  const std::shared_ptr<MemoryAccount> account;
  char *slots = nullptr;
  int64_t bytes = 0;
  Pieces pieces;
  Storage staging; ///< in the order of `moves` to this rank
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_SLOTMOVES_H
