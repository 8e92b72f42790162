// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Naive.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

//===----------------------------------------------------------------------===//
// Covering sets
//===----------------------------------------------------------------------===//

template <typename Action>
static Status forGrids(Communicator &ranks, const Action &action) {
  for (int experts : {1, 2, 4, 8, 12, 16}) {
    int w = ranks.ranks();
    if (experts % w != 0 && w % experts != 0)
      continue;
    int shards = shardsFor(experts, w);
    for (int copies = 1; copies <= shards; ++copies)
      if (shards % copies == 0) {
        ExchangeCase test;
        test.experts = experts;
        test.copies = copies;
        MOIRA_RETURN_IF_ERROR(action(test));
      }
  }
  return Status();
}

/// Each set varies two things against the grids; what they do to each other is
/// in the layout alone.
Status moira::test::testExchanges(Communicator &ranks, int part) {
  constexpr int64_t rowSizes[] = {1, 4, 12, 16, 20, 24, 40};
  auto withBoth = [&](ExchangeCase test) -> Status {
    for (int algorithm : {0, 1}) {
      test.algorithm = algorithm;
      MOIRA_RETURN_IF_ERROR(testExchange(ranks, test));
    }
    return Status();
  };
  return forGrids(ranks, [&](ExchangeCase test) -> Status {
    switch (part) {
    case 0: // counts and tables
      for (Counts counts : {Counts::Padded, Counts::Ragged, Counts::Zeros,
                            Counts::AllToOne, Counts::Uneven})
        for (Table table : {Table::None, Table::Permuted, Table::Replicas}) {
          test.counts = counts;
          test.table = table;
          MOIRA_RETURN_IF_ERROR(withBoth(test));
        }
      return Status();
    case 1: // chunks
      for (int degree : {1, 2, 4, 8})
        for (Counts counts : {Counts::Padded, Counts::Ragged, Counts::Uneven}) {
          test.degree = degree;
          test.counts = counts;
          MOIRA_RETURN_IF_ERROR(withBoth(test));
        }
      return Status();
    case 2: // groups
      test.schedule = MOIRA_SCHEDULE_GROUPS;
      for (Counts counts : {Counts::Ragged, Counts::Zeros, Counts::AllToOne})
        for (Table table : {Table::None, Table::Permuted, Table::Replicas}) {
          test.counts = counts;
          test.table = table;
          MOIRA_RETURN_IF_ERROR(withBoth(test));
        }
      return Status();
    case 3: // row sizes, C21 among them
      for (int64_t bytes : rowSizes) {
        test.rowBytes = bytes;
        MOIRA_RETURN_IF_ERROR(withBoth(test));
      }
      return Status();
    default: // large rows, rows without bytes
      if (test.experts != ranks.ranks())
        return Status();
      for (int64_t bytes : {0, 70001}) {
        test.rowBytes = bytes;
        MOIRA_RETURN_IF_ERROR(withBoth(test));
      }
      return Status();
    }
  });
}

//===----------------------------------------------------------------------===//
// Goldens
//===----------------------------------------------------------------------===//

/// Received by all ranks together since the last reset.
static Status expectReceived(Communicator &ranks, int64_t rows,
                             int64_t weights) {
  Traffic traffic = ranks.traffic();
  int64_t got[] = {traffic[TrafficKind::RowsToExperts].bytesReceived +
                       traffic[TrafficKind::RowsToTokens].bytesReceived,
                   traffic[TrafficKind::Weights].bytesReceived};
  MOIRA_RETURN_IF_ERROR(ranks.allReduce(got, 2, MOIRA_I64, Reduction::Sum));
  if (got[0] == rows && got[1] == weights)
    return Status();
  return Status(MOIRA_FAILED,
                concat("expected ", rows, " bytes of rows and ", weights,
                       " of weights, got ", got[0], " and ", got[1]));
}

/// C18: one forward step with C = 4 and H = 8, elements of 4 bytes.
static Status testVolume(Communicator &ranks, int experts, int copies,
                         int64_t in, int64_t out, int64_t rows,
                         int64_t weights) {
  constexpr int64_t hidden = 8, capacity = 4, element = 4;
  int shards = shardsFor(experts, 4);
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  ranks.resetTraffic();
  moira_plan plan{};
  plan.degree = 1;
  moira_placement placement = {experts, shards, copies, 1};
  std::vector<int32_t> counts(4 * experts, capacity);
  std::vector<char> home(experts * capacity * in * element * shards * 2);
  std::vector<char> away(4 * home.size());
  moira_exchange exchange{};
  exchange.placement = placement;
  exchange.chunks = 1;
  exchange.counts = counts.data();
  exchange.home = home.data();
  exchange.home_rows = experts * capacity;
  exchange.away = away.data();
  for (int direction = 0; direction < 2 && copies > 0; ++direction) {
    exchange.direction = direction;
    exchange.row_bytes = element * (direction == MOIRA_TO_EXPERTS ? in : out);
    Result<int64_t> ticket = ranks.exchange(plan, exchange);
    MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
  }
  moira_gather gather{};
  gather.placement = placement;
  gather.bytes = (hidden * in + hidden + hidden * out) / shards * element;
  std::vector<char> local(gather.bytes), whole(gather.bytes * experts * shards);
  gather.local = local.data();
  gather.whole = whole.data();
  Result<int64_t> ticket = ranks.gatherWeights(plan, gather);
  MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
  return expectReceived(ranks, rows * element, weights * element)
      .within(concat("E=", experts, " r=", copies));
}

/// C23: what each rank has for each, and what comes.
static Status testRagged(Communicator &ranks, int experts, int copies,
                         std::vector<int32_t> counts,
                         std::vector<std::vector<int32_t>> expected) {
  moira_plan plan{};
  plan.degree = 1;
  moira_exchange exchange{};
  exchange.placement = {experts, shardsFor(experts, 2), copies, 1};
  exchange.chunks = 1;
  exchange.counts = counts.data();
  std::vector<int32_t> home(16, 10 * (ranks.rank() + 1)), away(16, -1);
  exchange.home = home.data();
  exchange.away = away.data();
  exchange.row_bytes = sizeof(int32_t);
  Result<int64_t> ticket = ranks.exchange(plan, exchange);
  MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
  std::vector<int32_t> due = expected[ranks.rank()];
  due.resize(16, -1);
  return away == due ? Status()
                     : Status(MOIRA_FAILED, "a ragged exchange differs");
}

Status moira::test::testGoldens(Communicator &ranks) {
  if (ranks.ranks() == 4) {
    struct {
      int experts, copies;
      int64_t out, rows, weights;
    } const cases[] = {{2, 0, 4, 0, 432},   {2, 1, 4, 192, 144},
                       {2, 2, 4, 384, 0},   {1, 0, 6, 0, 264},
                       {1, 1, 6, 120, 264}, {1, 2, 6, 240, 88},
                       {1, 4, 6, 480, 0}};
    for (const auto &c : cases)
      MOIRA_RETURN_IF_ERROR(
          testVolume(ranks, c.experts, c.copies, 4, c.out, c.rows, c.weights));
  }
  if (ranks.ranks() == 2) {
    MOIRA_RETURN_IF_ERROR(testRagged(ranks, 2, 1, {1, 4, 2, 1},
                                     {{10, 20, 20}, {10, 10, 10, 10, 20}}));
    MOIRA_RETURN_IF_ERROR(testRagged(ranks, 2, 1, {0, 5, 3, 0},
                                     {{20, 20, 20}, {10, 10, 10, 10, 10}}));
    MOIRA_RETURN_IF_ERROR(testRagged(ranks, 2, 1, {0, 0, 0, 0}, {{}, {}}));
    // A gather of 5 and 3 rows: one expert, a copy to each shard.
    std::vector<int32_t> all = {10, 10, 10, 10, 10, 20, 20, 20};
    MOIRA_RETURN_IF_ERROR(testRagged(ranks, 1, 2, {5, 3}, {all, all}));
  }
  return Status();
}

Status moira::test::testAll(Communicator &ranks) {
  MOIRA_RETURN_IF_ERROR(testCollectives(ranks));
  MOIRA_RETURN_IF_ERROR(testSums(ranks));
  MOIRA_RETURN_IF_ERROR(testShadows(ranks));
  MOIRA_RETURN_IF_ERROR(testGoldens(ranks));
  for (int part = 0; part < exchangeParts; ++part)
    MOIRA_RETURN_IF_ERROR(testExchanges(ranks, part));
  for (int experts : {1, 2, 4, 8, 12})
    if (experts % ranks.ranks() == 0 || ranks.ranks() % experts == 0)
      for (Table table : {Table::None, Table::Permuted, Table::Replicas}) {
        for (int64_t bytes : {0, 3, 1000})
          MOIRA_RETURN_IF_ERROR(testWeights(ranks, experts, table, bytes));
        MOIRA_RETURN_IF_ERROR(testGradients(ranks, experts, table));
      }
  return Status();
}
