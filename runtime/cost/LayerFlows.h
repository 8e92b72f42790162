// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many rows each rank has for each other one, under a slot table and
// shadows, without the cut into chunks.

#ifndef MOIRA_RUNTIME_COST_LAYERFLOWS_H
#define MOIRA_RUNTIME_COST_LAYERFLOWS_H

#include "collective/Placement.h"
#include "cost/BatchCost.h"
#include "cost/LayerShape.h"

namespace moira::runtime {

/// Rows by pair of ranks and by slot. `set` and `shadow` allocate nothing.
class LayerFlows {
public:
  /// `groups`: groups of ranks whose rows are told apart; 1: none.
  LayerFlows(const LayerShape &shape, int groups, int groupSize);

  /// counts[ranks, experts] under a table, r = copies >= 1. All stay as they
  /// are while the flows are used.
  void set(const Placement &placement, const int32_t *counts, int copies);
  /// From now on all ranks hold this expert too. Not twice.
  void shadow(int expert);
  int shadows() const { return shadowCount; }

  /// [ranks, ranks]: rows and pieces from p to q. Own ones count too. A piece
  /// is what one slot gets.
  const std::vector<Flow> &pairs() const { return pairList; }
  /// Rows of a rank's slot. Slots beyond the shape's are its shadows'.
  double slotRows(int rank, int slot) const {
    return slotTotals[size_t(rank) * width + slot];
  }
  /// Of those the ones that come from a group of ranks.
  double slotRowsFrom(int group, int rank, int slot) const {
    return fromGroups[(size_t(group) * ranks + rank) * width + slot];
  }
  int slotsWithShadows() const { return shape.slots + shadowCount * perShadow; }
  /// Rows that a rank has, of all experts.
  double ownRows(int rank) const { return own[rank]; }
  int groups() const { return groupCount; }

  /// Pieces with rows, of all pairs.
  double pieceCount() const { return totalPieces; }

  /// Of one of `degree` chunks, row by row: pairs[ranks, ranks], and in
  /// slots[ranks, slotsWithShadows()] the rows of slots.
  void chunk(int index, int degree, std::vector<Flow> &pairs,
             std::vector<double> &slots) const;
  /// Calls action(unit, rows) for all pieces of an expert's rows of one rank.
  template <typename Action>
  void pieces(int expert, int64_t rows, const Action &action) const {
    int parts = shape.shards / copies;
    for (int unit = 0; unit < shape.shards; ++unit) {
      int64_t j = unit % parts;
      int64_t piece = (j + 1) * rows / parts - j * rows / parts;
      action(expert * shape.shards + unit, double(piece));
    }
  }
  /// As many as `chunk` can need.
  size_t maxSlots() const { return slotTotals.size(); }

private:
  void move(int source, Place place, double rows, double sign);
  bool isDealtOut() const;
  void setDealtOut();
  void setAny();

  const LayerShape shape;
  const int ranks;
  const int groupCount, groupSize;
  int width;         ///< slots and shadows of a rank
  int perShadow = 1; ///< slots that a shadow takes
  const Placement *placement = nullptr;
  const int32_t *counts = nullptr;
  int copies = 1;
  double totalPieces = 0;
  int shadowCount = 0;
  std::vector<Flow> pairList;
  std::vector<double> slotTotals, fromGroups, own;
  std::vector<int64_t> sums;     ///< [groups, experts]
  std::vector<int32_t> shadowed; ///< by expert: number of its shadow, or -1
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LAYERFLOWS_H
