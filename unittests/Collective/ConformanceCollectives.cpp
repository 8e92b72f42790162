// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Naive.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

static Status differs(const std::string &what) {
  return Status(MOIRA_FAILED, what + " differs");
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

namespace {
/// One gather on one rank. Weights are known by their number: the unit, or the
/// expert where all of its holders have the same.
class WeightsTest {
public:
  WeightsTest(Communicator &ranks, const ExchangeCase &test, bool replicated,
              int64_t bytes)
      : ranks(ranks), grid(ranks, test), replicated(replicated), bytes(bytes) {}

  Status run();

private:
  int number(int unit) const {
    return replicated ? unit / grid.placement.shards : unit;
  }
  std::vector<int> expected() const;
  Status checkTraffic();

  Communicator &ranks;
  NaiveGrid grid;
  bool replicated;
  int64_t bytes;
};
} // namespace

/// What stands in `whole`, part by part; -1: nothing is written.
std::vector<int> WeightsTest::expected() const {
  const moira_placement &p = grid.placement;
  std::vector<int> numbers;
  if (p.copies == 0) {
    for (int i = 0; i < (replicated ? p.experts : p.experts * p.shards); ++i)
      numbers.push_back(i);
    return numbers;
  }
  int parts = replicated ? 1 : p.shards / p.copies;
  for (int slot = 0; slot < p.slots; ++slot) {
    int unit = grid.unit(ranks.rank(), slot);
    int group = unit < 0 ? 0 : unit % p.shards / (p.shards / p.copies);
    for (int j = 0; j < parts; ++j)
      numbers.push_back(unit < 0 ? -1
                        : replicated
                            ? number(unit)
                            : unit / p.shards * p.shards + group * parts + j);
  }
  return numbers;
}

Status WeightsTest::checkTraffic() {
  if (!grid.table.empty())
    return Status();
  const moira_placement &p = grid.placement;
  int64_t w = ranks.ranks(), all = int64_t(p.experts) * p.shards * bytes;
  int64_t due =
      p.copies > 0 ? (p.shards / p.copies - 1) * all / w : all * (w - 1) / w;
  if (replicated)
    due = p.copies > 0
              ? 0
              : (p.experts - std::max<int64_t>(1, p.experts / w)) * bytes;
  Traffic traffic = ranks.traffic();
  int64_t got = traffic[TrafficKind::Weights].bytesReceived;
  int64_t ofParameter =
      traffic.parameters.size() > 5 ? traffic.parameters[5].bytesReceived : 0;
  if (got == due && ofParameter == due)
    return Status();
  return Status(MOIRA_FAILED,
                concat("expected to receive ", due, " bytes, got ", got,
                       " and ", ofParameter, " of the parameter"));
}

Status WeightsTest::run() {
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  ranks.resetTraffic();
  const moira_placement &p = grid.placement;
  std::vector<char> local(p.slots * bytes + 1), part(bytes);
  for (int slot = 0; slot < p.slots; ++slot) {
    int unit = grid.unit(ranks.rank(), slot);
    if (unit < 0)
      continue;
    fillRow({0, number(unit), 0, 0, 0}, 7, part);
    copyBytes(local.data() + slot * bytes, part.data(), bytes);
  }
  std::vector<int> numbers = expected();
  std::vector<char> whole(numbers.size() * bytes + 64, 0x5a);
  moira_plan plan{};
  plan.degree = 1;
  plan.slots = grid.table.empty() ? 0 : p.slots;
  plan.slot_table = grid.table.empty() ? nullptr : grid.table.data();
  moira_gather gather{};
  gather.placement = p;
  gather.parameter = 5;
  gather.replicated = replicated;
  gather.local = local.data();
  gather.whole = whole.data();
  gather.bytes = bytes;
  Result<int64_t> ticket = ranks.gatherWeights(plan, gather);
  if (!ticket.ok())
    return ticket.status();
  MOIRA_RETURN_IF_ERROR(ranks.wait(*ticket));
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0)
      std::fill(part.begin(), part.end(), 0x5a);
    else
      fillRow({0, numbers[i], 0, 0, 0}, 7, part);
    if (std::memcmp(whole.data() + i * bytes, part.data(), bytes) != 0)
      return differs(concat("part ", i));
  }
  for (size_t i = numbers.size() * bytes; i < whole.size(); ++i)
    if (whole[i] != 0x5a)
      return differs("memory after the weights");
  return checkTraffic();
}

Status moira::test::testWeights(Communicator &ranks, int experts, Table table,
                                int64_t bytes) {
  int shards = shardsFor(experts, ranks.ranks());
  for (int copies = 0; copies <= shards; ++copies) {
    if (copies > 0 && shards % copies != 0)
      continue;
    for (bool replicated : {false, true}) {
      ExchangeCase test;
      test.experts = experts;
      test.copies = copies;
      test.table = table;
      MOIRA_RETURN_IF_ERROR(
          WeightsTest(ranks, test, replicated, bytes)
              .run()
              .within(concat("weights of ", bytes, " bytes",
                             replicated ? ", replicated, " : ", ",
                             test.describe())));
    }
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Plain collectives
//===----------------------------------------------------------------------===//

static Status testAllGather(Communicator &ranks, int64_t bytes) {
  std::vector<char> mine(bytes), all(bytes * ranks.ranks() + 1, 0x5a);
  fillRow({ranks.rank(), 0, 0, 0, 0}, 1, mine);
  MOIRA_RETURN_IF_ERROR(ranks.allGather(mine.data(), bytes, all.data()));
  for (int p = 0; p < ranks.ranks(); ++p) {
    fillRow({p, 0, 0, 0, 0}, 1, mine);
    if (std::memcmp(all.data() + p * bytes, mine.data(), bytes) != 0)
      return differs(concat("all-gather of ", bytes, " bytes, rank ", p));
  }
  return all.back() == 0x5a ? Status() : differs("memory after an all-gather");
}

static Status testBroadcast(Communicator &ranks, int root, int64_t bytes) {
  std::vector<char> data(bytes), expected(bytes);
  fillRow({root, 0, 0, 0, 0}, 2, expected);
  if (ranks.rank() == root)
    data = expected;
  MOIRA_RETURN_IF_ERROR(ranks.broadcast(root, data.data(), bytes));
  return data == expected
             ? Status()
             : differs(concat("broadcast of ", bytes, " bytes from ", root));
}

/// Values whose sum depends on the order of its terms, for floats.
template <typename T> static T term(int rank, int64_t i) {
  if (std::is_integral_v<T>)
    return static_cast<T>((rank * 37 + i * 11) % 101 - 50);
  return static_cast<T>((rank % 2 ? 1e7 : -1e7) + rank * 0.37 + i * 0.011);
}

template <typename T>
static T reduced(int ranks, int64_t i, Reduction reduction) {
  T value = term<T>(0, i);
  for (int p = 1; p < ranks; ++p)
    value = reduction == Reduction::Sum ? value + term<T>(p, i)
                                        : std::max(value, term<T>(p, i));
  return value;
}

template <typename T>
static Status testReductions(Communicator &ranks, int32_t dtype, int64_t count,
                             Reduction reduction) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i)
    data[i] = term<T>(ranks.rank(), i);
  MOIRA_RETURN_IF_ERROR(ranks.allReduce(data.data(), count, dtype, reduction));
  for (int64_t i = 0; i < count; ++i)
    if (data[i] != reduced<T>(ranks.ranks(), i, reduction))
      return differs(concat("all-reduce of ", count, ", element ", i));

  std::vector<T> in(count * ranks.ranks()), out(count);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = term<T>(ranks.rank(), i);
  MOIRA_RETURN_IF_ERROR(
      ranks.reduceScatter(in.data(), out.data(), count, dtype, reduction));
  for (int64_t i = 0; i < count; ++i)
    if (out[i] !=
        reduced<T>(ranks.ranks(), ranks.rank() * count + i, reduction))
      return differs(concat("reduce-scatter of ", count, ", element ", i));
  return Status();
}

/// Halves by parity, then all but the last rank; communication of both and of
/// the whole in turns.
static Status testSplit(Communicator &ranks) {
  Result<std::unique_ptr<Communicator>> half = ranks.split(ranks.rank() % 2);
  if (!half.ok())
    return half.status();
  bool last = ranks.rank() == ranks.ranks() - 1;
  Result<std::unique_ptr<Communicator>> most = ranks.split(last ? -1 : 9);
  if (!most.ok())
    return most.status();
  if ((*half)->rank() != ranks.rank() / 2 || !*most != last)
    return differs("split");
  std::vector<int32_t> all((*half)->ranks());
  int32_t mine = ranks.rank();
  MOIRA_RETURN_IF_ERROR((*half)->allGather(&mine, sizeof(mine), all.data()));
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != static_cast<int32_t>(2 * i) + ranks.rank() % 2)
      return differs("all-gather after a split");
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  if (last)
    return Status();
  int64_t sum = 1;
  MOIRA_RETURN_IF_ERROR((*most)->allReduce(&sum, 1, MOIRA_I64, Reduction::Sum));
  return sum == ranks.ranks() - 1 ? Status() : differs("sum after a split");
}

Status moira::test::testCollectives(Communicator &ranks) {
  for (int64_t bytes : {0, 1, 5, 1000, 40000})
    MOIRA_RETURN_IF_ERROR(testAllGather(ranks, bytes));
  for (int root = 0; root < ranks.ranks(); ++root)
    for (int64_t bytes : {0, 3, 5000})
      MOIRA_RETURN_IF_ERROR(testBroadcast(ranks, root, bytes));
  for (Reduction reduction : {Reduction::Sum, Reduction::Max})
    for (int64_t count : {0, 1, 7, 1000}) {
      MOIRA_RETURN_IF_ERROR(
          testReductions<float>(ranks, MOIRA_F32, count, reduction));
      MOIRA_RETURN_IF_ERROR(
          testReductions<double>(ranks, MOIRA_F64, count, reduction));
      MOIRA_RETURN_IF_ERROR(
          testReductions<int32_t>(ranks, MOIRA_I32, count, reduction));
      MOIRA_RETURN_IF_ERROR(
          testReductions<int64_t>(ranks, MOIRA_I64, count, reduction));
    }
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  return testSplit(ranks);
}
