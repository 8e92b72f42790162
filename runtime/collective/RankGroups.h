// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks in groups of neighbours, and in which order they send to each other.

#ifndef MOIRA_RUNTIME_COLLECTIVE_RANKGROUPS_H
#define MOIRA_RUNTIME_COLLECTIVE_RANKGROUPS_H

namespace moira::runtime {

/// Ranks, and the groups of neighbours among them: ranks [i * groupSize,
/// (i + 1) * groupSize) are group i, the last may be smaller.
struct RankGroups {
  int rank = 0;
  int ranks = 1;
  int groupSize = 1;

  int count() const { return (ranks + groupSize - 1) / groupSize; }
  int groupOf(int r) const { return r / groupSize; }

  /// The rank to which rank r sends as its d-th, d < ranks; itself for d = 0.
  /// For each d no two ranks have the same one. Where all groups are of one
  /// size, that also holds for what goes to one group alone: a group and then a
  /// neighbour in it, both counted from the rank's own.
  int peer(int r, int d) const {
    if (ranks % groupSize != 0)
      return (r + d) % ranks;
    int group = (r / groupSize + d / groupSize) % count();
    return group * groupSize + (r + d) % groupSize;
  }
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_RANKGROUPS_H
