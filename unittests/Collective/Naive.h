// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// docs/ranks.md word by word: rows are listed one by one, holders are searched
// in the table. Slow, and written without the product's arithmetic.

#ifndef MOIRA_UNITTESTS_COLLECTIVE_NAIVE_H
#define MOIRA_UNITTESTS_COLLECTIVE_NAIVE_H

#include "Collective/Conformance.h"

namespace moira::test {

/// One row on its way.
struct NaiveRow {
  int source = 0; ///< rank of the token
  int expert = 0;
  int64_t index = 0; ///< in its segment
  int copy = 0;
  int slot = 0; ///< where it goes
};

/// Bytes that tell which row this is; `mark` tells rows on the way back.
void fillRow(const NaiveRow &row, int mark, std::vector<char> &bytes);

struct NaiveGrid {
  NaiveGrid(const runtime::Communicator &ranks, const ExchangeCase &test);

  int32_t count(int rank, int expert) const {
    return rowsFor(counts, ranks, placement.experts, rank, expert);
  }
  int unit(int rank, int slot) const;
  /// Where rank `source` finds a unit.
  runtime::Place holder(int unit, int source) const;
  /// A rank's rows in their order.
  std::vector<NaiveRow> homeRows(int rank) const;
  /// The rows of a chunk at a rank's experts, in their order.
  std::vector<NaiveRow> awayRows(int rank, int64_t chunk, int64_t chunks) const;

  int ranks;
  int groupSize;
  int schedule;
  Counts counts;
  moira_placement placement{};
  std::vector<int32_t> table; ///< empty: identity
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_COLLECTIVE_NAIVE_H
