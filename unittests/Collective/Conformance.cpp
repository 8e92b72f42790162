// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Conformance.h"

#include "Collective/Naive.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

std::string ExchangeCase::describe() const {
  static const char *const countNames[] = {"padded", "ragged", "zeros",
                                           "all to one", "uneven"};
  static const char *const tableNames[] = {"identity", "permuted", "replicas"};
  return concat("E=", experts, " r=", copies, " degree=", degree,
                schedule == MOIRA_SCHEDULE_EQUAL ? " equal" : " groups",
                algorithm == 0 ? " linear " : " hierarchical ",
                countNames[static_cast<int>(counts)], " ",
                tableNames[static_cast<int>(table)], " row of ", rowBytes);
}

//===----------------------------------------------------------------------===//
// Exchange
//===----------------------------------------------------------------------===//

namespace {
/// One case on one rank.
class ExchangeTest {
public:
  ExchangeTest(Communicator &ranks, const ExchangeCase &test)
      : ranks(ranks), test(test), grid(ranks, test) {}

  Status run();

private:
  Status gather();
  Status sendThere();
  Status checkMerged();
  Status sendBack();
  Status checkHome();
  Status checkTraffic();
  moira_exchange exchange(int direction, int64_t chunk) const;

  Communicator &ranks;
  const ExchangeCase &test;
  NaiveGrid grid;
  moira_plan plan{};
  std::vector<int32_t> matrix;
  int64_t chunks = 1;
  int64_t homeRows = 0;
  std::vector<char> home, back;
  std::vector<std::vector<char>> away; ///< by chunk
};
} // namespace

static constexpr int64_t guard = 64; ///< bytes that nobody may write
static constexpr char guardByte = 0x5a;

static bool isGuard(const char *from) {
  return std::all_of(from, from + guard,
                     [](char byte) { return byte == guardByte; });
}

moira_exchange ExchangeTest::exchange(int direction, int64_t chunk) const {
  moira_exchange value{};
  value.layer = 3;
  value.placement = grid.placement;
  value.direction = direction;
  value.schedule = test.schedule;
  value.chunk = chunk;
  value.chunks = chunks;
  value.counts = matrix.data();
  value.home_rows = homeRows;
  value.row_bytes = test.rowBytes;
  return value;
}

Status ExchangeTest::gather() {
  std::vector<int32_t> mine;
  for (int e = 0; e < test.experts; ++e)
    mine.push_back(grid.count(ranks.rank(), e));
  matrix.assign(ranks.ranks() * test.experts, -1);
  MOIRA_RETURN_IF_ERROR(ranks.gatherCounts(3, test.experts, mine.data(),
                                           RankRecord(), matrix.data()));
  for (int p = 0; p < ranks.ranks(); ++p)
    for (int e = 0; e < test.experts; ++e)
      if (matrix[p * test.experts + e] != grid.count(p, e))
        return Status(MOIRA_FAILED,
                      concat("counts of rank ", p, " expert ", e, ": expected ",
                             grid.count(p, e), ", got ",
                             matrix[p * test.experts + e]));
  return Status();
}

Status ExchangeTest::sendThere() {
  // All chunks are queued before the first is waited for.
  std::vector<int64_t> tickets;
  for (int64_t i = 0; i < chunks; ++i) {
    moira_exchange there = exchange(MOIRA_TO_EXPERTS, i);
    std::vector<int32_t> sizes(grid.placement.slots, -1);
    Result<int64_t> rows = ranks.receiveSizes(plan, there, sizes.data());
    if (!rows.ok())
      return rows.status();
    std::vector<NaiveRow> expected = grid.awayRows(ranks.rank(), i, chunks);
    std::vector<int32_t> expectedSizes(grid.placement.slots);
    for (const NaiveRow &row : expected)
      ++expectedSizes[row.slot];
    if (*rows != int64_t(expected.size()) || sizes != expectedSizes)
      return Status(MOIRA_FAILED,
                    concat("sizes of chunk ", i, ": expected ", expected.size(),
                           " rows, got ", *rows));
    away.emplace_back(*rows * test.rowBytes + guard, guardByte);
    there.home = home.data();
    there.away = away.back().data();
    Result<int64_t> ticket = ranks.exchange(plan, there);
    if (!ticket.ok())
      return ticket.status();
    tickets.push_back(*ticket);
  }
  for (int64_t i = 0; i < chunks; ++i) {
    MOIRA_RETURN_IF_ERROR(ranks.wait(tickets[i]));
    std::vector<NaiveRow> expected = grid.awayRows(ranks.rank(), i, chunks);
    std::vector<char> row(test.rowBytes);
    for (size_t k = 0; k < expected.size(); ++k) {
      fillRow(expected[k], 0, row);
      if (std::memcmp(away[i].data() + k * test.rowBytes, row.data(),
                      test.rowBytes) != 0)
        return Status(MOIRA_FAILED,
                      concat("row ", k, " of chunk ", i, " away differs"));
    }
    if (!isGuard(away[i].data() + expected.size() * test.rowBytes))
      return Status(MOIRA_FAILED, concat("chunk ", i, " writes past its rows"));
  }
  return Status();
}

/// What a way back needs stands as one chunk would have brought it.
Status ExchangeTest::checkMerged() {
  NaiveGrid whole = grid;
  whole.schedule = MOIRA_SCHEDULE_EQUAL;
  std::vector<NaiveRow> expected = whole.awayRows(ranks.rank(), 0, 1);
  std::vector<char> merged(expected.size() * test.rowBytes + guard, guardByte);
  size_t rows = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    auto moves = ranks.mergeRows(plan, exchange(MOIRA_TO_EXPERTS, i));
    if (!moves.ok())
      return moves.status();
    for (const Communicator::RowMove &move : **moves) {
      copyBytes(merged.data() + move.to * test.rowBytes,
                away[i].data() + move.from * test.rowBytes,
                move.rows * test.rowBytes);
      rows += move.rows;
    }
    if (chunks == 1 && (*moves)->size() > 1)
      return Status(MOIRA_FAILED, "one chunk moves in several parts");
  }
  std::vector<char> row(test.rowBytes);
  for (size_t k = 0; k < expected.size(); ++k) {
    fillRow(expected[k], 0, row);
    if (std::memcmp(merged.data() + k * test.rowBytes, row.data(),
                    test.rowBytes) != 0)
      return Status(MOIRA_FAILED, concat("merged row ", k, " differs"));
  }
  return rows == expected.size() &&
                 isGuard(merged.data() + expected.size() * test.rowBytes)
             ? Status()
             : Status(MOIRA_FAILED, "merging moves other rows, too");
}

Status ExchangeTest::sendBack() {
  std::vector<int64_t> tickets;
  for (int64_t i = 0; i < chunks; ++i) {
    // What comes back tells which copy it is.
    std::vector<NaiveRow> rows = grid.awayRows(ranks.rank(), i, chunks);
    std::vector<char> row(test.rowBytes);
    for (size_t k = 0; k < rows.size(); ++k) {
      fillRow(rows[k], rows[k].copy + 1, row);
      copyBytes(away[i].data() + k * test.rowBytes, row.data(), test.rowBytes);
    }
    moira_exchange there = exchange(MOIRA_TO_TOKENS, i);
    there.home = back.data();
    there.away = away[i].data();
    Result<int64_t> ticket = ranks.exchange(plan, there);
    if (!ticket.ok())
      return ticket.status();
    tickets.push_back(*ticket);
  }
  for (int64_t ticket : tickets)
    MOIRA_RETURN_IF_ERROR(ranks.wait(ticket));
  return Status();
}

Status ExchangeTest::checkHome() {
  std::vector<NaiveRow> rows = grid.homeRows(ranks.rank());
  std::vector<char> row(test.rowBytes);
  for (int c = 0; c < test.copies; ++c) {
    const char *copy = back.data() + c * homeRows * test.rowBytes;
    for (size_t k = 0; k < rows.size(); ++k) {
      fillRow(rows[k], c + 1, row);
      if (std::memcmp(copy + k * test.rowBytes, row.data(), test.rowBytes) != 0)
        return Status(MOIRA_FAILED,
                      concat("row ", k, " of copy ", c, " at home differs"));
    }
    // Rows between the last one and the next copy.
    for (int64_t k = rows.size() * test.rowBytes; k < homeRows * test.rowBytes;
         ++k)
      if (copy[k] != guardByte)
        return Status(MOIRA_FAILED,
                      concat("copy ", c, " writes past its rows"));
  }
  return isGuard(back.data() + test.copies * homeRows * test.rowBytes)
             ? Status()
             : Status(MOIRA_FAILED, "the last copy writes past its rows");
}

/// Closed forms of docs/ranks.md, for one direction: r E C (W - 1) / W rows.
Status ExchangeTest::checkTraffic() {
  if (test.counts != Counts::Padded || test.algorithm != 0 ||
      test.table != Table::None)
    return Status();
  int64_t w = ranks.ranks();
  int64_t rows = test.copies * test.experts *
                 int64_t(grid.count(ranks.rank(), 0)) * (w - 1) / w;
  Traffic traffic = ranks.traffic();
  for (TrafficKind kind :
       {TrafficKind::RowsToExperts, TrafficKind::RowsToTokens}) {
    const TrafficCount &count = traffic[kind];
    if (count.bytesReceived != rows * test.rowBytes ||
        count.bytesSent != rows * test.rowBytes)
      return Status(MOIRA_FAILED, concat("expected ", rows * test.rowBytes,
                                         " bytes, sent ", count.bytesSent,
                                         ", received ", count.bytesReceived));
  }
  return Status();
}

Status ExchangeTest::run() {
  ranks.resetTraffic();
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  plan.degree = test.degree;
  plan.exchange = test.algorithm;
  plan.slots = grid.table.empty() ? 0 : grid.placement.slots;
  plan.slot_table = grid.table.empty() ? nullptr : grid.table.data();
  chunks = ranks.chunks(plan, test.schedule);
  MOIRA_RETURN_IF_ERROR(gather());

  std::vector<NaiveRow> rows = grid.homeRows(ranks.rank());
  homeRows = rows.size() + 2; // copies need not be dense
  home.assign(rows.size() * test.rowBytes, 0);
  std::vector<char> row(test.rowBytes);
  for (size_t k = 0; k < rows.size(); ++k) {
    fillRow(rows[k], 0, row);
    copyBytes(home.data() + k * test.rowBytes, row.data(), test.rowBytes);
  }
  back.assign(test.copies * homeRows * test.rowBytes + guard, guardByte);
  MOIRA_RETURN_IF_ERROR(sendThere());
  MOIRA_RETURN_IF_ERROR(checkMerged());
  MOIRA_RETURN_IF_ERROR(sendBack());
  MOIRA_RETURN_IF_ERROR(checkHome());
  return checkTraffic();
}

Status moira::test::testExchange(Communicator &ranks,
                                 const ExchangeCase &test) {
  return ExchangeTest(ranks, test).run().within(test.describe());
}
