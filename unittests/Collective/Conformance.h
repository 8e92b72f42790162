// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every transport must do, seen through a communicator. Each function is
// called by all ranks, be they threads or processes, and compares what it gets
// with what docs/ranks.md says, computed here in the plainest way. It knows no
// test framework: a failure is a status whose message says what differs.

#ifndef MOIRA_UNITTESTS_COLLECTIVE_CONFORMANCE_H
#define MOIRA_UNITTESTS_COLLECTIVE_CONFORMANCE_H

#include "collective/Communicator.h"

#include <string>
#include <vector>

namespace moira::test {

/// How many rows rank p has for expert e.
enum class Counts { Padded, Ragged, Zeros, AllToOne, Uneven };
/// Which slot table: none, the identity written out, units in another order,
/// one spare slot per rank with replicas.
enum class Table { None, Permuted, Replicas };

struct ExchangeCase {
  int experts = 1;
  int copies = 1; ///< r
  int degree = 1;
  int schedule = MOIRA_SCHEDULE_EQUAL;
  int algorithm = 0; ///< 0 linear, 1 hierarchical
  Counts counts = Counts::Ragged;
  Table table = Table::None;
  int64_t rowBytes = 4;

  std::string describe() const;
};

/// Shards of an expert on a grid: experts and ranks divide one another.
int shardsFor(int experts, int ranks);
/// The slot table [ranks, slots] of a case, empty for none.
std::vector<int32_t> slotTable(Table kind, int experts, int ranks, int &slots);
int32_t rowsFor(Counts kind, int ranks, int experts, int rank, int expert);

/// There and back, chunk by chunk as schedules do it: counts, sizes, the order
/// of rows away, every byte, copies, memory around; with padded counts and
/// linear exchange the bytes of the closed forms.
Status testExchange(runtime::Communicator &ranks, const ExchangeCase &test);
/// All legal r, whole weights and replicated ones, with their bytes.
Status testWeights(runtime::Communicator &ranks, int experts, Table table,
                   int64_t bytes);
/// All legal r, sums of gradients of experts whole and replicated, all types,
/// with their bytes.
Status testGradients(runtime::Communicator &ranks, int experts, Table table);
/// Weights of experts to all ranks for a step, and their gradients back.
Status testShadows(runtime::Communicator &ranks);
/// Sums over all ranks of all types, with their bytes.
Status testSums(runtime::Communicator &ranks);
/// All-gather, broadcast, reductions, barrier, split.
Status testCollectives(runtime::Communicator &ranks);
/// Bytes of whole layers on 4 ranks (nothing elsewhere) as Tutel's layout
/// gives them, and its ragged exchanges on 2 ranks.
Status testGoldens(runtime::Communicator &ranks);

/// All exchanges of a covering set, by number: 0 <= part < exchangeParts.
constexpr int exchangeParts = 5;
Status testExchanges(runtime::Communicator &ranks, int part);

/// Everything.
Status testAll(runtime::Communicator &ranks);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_COLLECTIVE_CONFORMANCE_H
