// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Naive.h"

#include "base/Convert.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// How an element type is stored, and what it is added in.
template <typename T> struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored bits) { return fromHalf(bits); }
  static Stored store(Sum value) { return toHalf(value); }
};
struct Bfloat {
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored bits) { return fromBfloat(bits); }
  static Stored store(Sum value) { return toBfloat(value); }
};

/// Whose sum depends on the order of its terms, for floats.
template <typename Type>
typename Type::Stored term(int rank, int64_t part, int64_t i) {
  using Sum = typename Type::Sum;
  int64_t mixed = rank * 37 + part * 23 + i * 11;
  if (std::is_integral_v<Sum>)
    return Type::store(static_cast<Sum>(mixed % 101 - 50));
  double large = std::is_same_v<typename Type::Stored, uint16_t> ? 900 : 1e7;
  return Type::store(static_cast<Sum>(((rank + part) % 2 ? large : -large) +
                                      mixed % 89 * 0.37 + i * 0.011));
}

/// One sum of gradients on one rank.
template <typename Type> class GradientsTest {
  using Stored = typename Type::Stored;

public:
  GradientsTest(Communicator &ranks, const ExchangeCase &test, bool replicated,
                int64_t count, int32_t dtype)
      : ranks(ranks), grid(ranks, test), replicated(replicated), count(count),
        dtype(dtype) {}

  Status run() {
    MOIRA_RETURN_IF_ERROR(ranks.barrier());
    ranks.resetTraffic();
    const moira_placement &p = grid.placement;
    int64_t parts = p.copies == 0
                        ? int64_t(p.experts) * (replicated ? 1 : p.shards)
                        : int64_t(p.slots) * (replicated ? 1 : shardsOfGroup());
    std::vector<Stored> whole(parts * count + 1);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < count; ++i)
        whole[part * count + i] = term<Type>(ranks.rank(), part, i);
    const Stored mark = 77;
    std::vector<Stored> local(p.slots * count + 8, mark);
    moira_plan plan{};
    plan.degree = 1;
    plan.slots = grid.table.empty() ? 0 : p.slots;
    plan.slot_table = grid.table.empty() ? nullptr : grid.table.data();
    moira_reduce reduce{};
    reduce.placement = p;
    reduce.parameter = 3;
    reduce.replicated = replicated;
    reduce.whole = whole.data();
    reduce.local = local.data();
    reduce.count = count;
    reduce.dtype = dtype;
    Result<int64_t> ticket = ranks.reduceWeights(plan, reduce);
    MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
    for (int slot = 0; slot < p.slots; ++slot)
      for (int64_t i = 0; i < count; ++i)
        if (local[slot * count + i] != expected(slot, i))
          return Status(MOIRA_FAILED,
                        concat("slot ", slot, ", element ", i, " differs"));
    for (size_t i = p.slots * count; i < local.size(); ++i)
      if (local[i] != mark)
        return Status(MOIRA_FAILED, "memory after the sums differs");
    return checkTraffic();
  }

private:
  int shardsOfGroup() const {
    return grid.placement.shards / grid.placement.copies;
  }

  Stored expected(int slot, int64_t i) const {
    const moira_placement &p = grid.placement;
    int unit = grid.unit(ranks.rank(), slot);
    if (unit < 0)
      return Type::store(0);
    int expert = unit / p.shards, shard = unit % p.shards;
    std::vector<Stored> terms;
    if (p.copies == 0) {
      for (int q = 0; q < grid.ranks; ++q)
        terms.push_back(term<Type>(q, replicated ? expert : unit, i));
    } else {
      int m = shardsOfGroup(), first = replicated ? 0 : shard / m * m;
      for (int h = first; h < (replicated ? p.shards : first + m); ++h)
        for (int q = 0; q < grid.ranks; ++q)
          for (int l = 0; l < p.slots; ++l)
            if (grid.unit(q, l) == expert * p.shards + h) {
              terms.push_back(
                  term<Type>(q, replicated ? l : l * m + shard - first, i));
              break; // a rank's second place of a unit gets no rows
            }
    }
    typename Type::Sum sum = Type::load(terms[0]);
    for (size_t k = 1; k < terms.size(); ++k)
      sum += Type::load(terms[k]);
    return Type::store(sum);
  }

  /// (s / r - 1) P / W and P (W - 1) / W, as the gather (docs/ranks.md).
  Status checkTraffic() {
    if (!grid.table.empty())
      return Status();
    const moira_placement &p = grid.placement;
    int64_t w = grid.ranks, bytes = count * sizeof(Stored);
    int64_t own = int64_t(p.experts) * p.shards / w * bytes;
    int64_t due = p.copies == 0 ? own * (w - 1)
                  : replicated  ? own * (p.shards - 1)
                                : own * (shardsOfGroup() - 1);
    Traffic traffic = ranks.traffic();
    int64_t got = traffic[TrafficKind::Gradients].bytesReceived;
    int64_t ofParameter =
        traffic.parameters.size() > 3 ? traffic.parameters[3].bytesReceived : 0;
    if (got == due && ofParameter == due)
      return Status();
    return Status(MOIRA_FAILED,
                  concat("expected to receive ", due, " bytes, got ", got,
                         " and ", ofParameter, " of the parameter"));
  }

  Communicator &ranks;
  NaiveGrid grid;
  bool replicated;
  int64_t count;
  int32_t dtype;
};
} // namespace

template <typename Type>
static Status testGradientsOf(Communicator &ranks, int experts, Table table,
                              int64_t count, int32_t dtype) {
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
          GradientsTest<Type>(ranks, test, replicated, count, dtype)
              .run()
              .within(concat("gradients of ", count, " elements of type ",
                             dtype, replicated ? ", replicated, " : ", ",
                             test.describe())));
    }
  }
  return Status();
}

Status moira::test::testGradients(Communicator &ranks, int experts,
                                  Table table) {
  for (int64_t count : {0, 1, 700})
    MOIRA_RETURN_IF_ERROR(
        testGradientsOf<Plain<float>>(ranks, experts, table, count, MOIRA_F32));
  MOIRA_RETURN_IF_ERROR(
      testGradientsOf<Bfloat>(ranks, experts, table, 33, MOIRA_BF16));
  MOIRA_RETURN_IF_ERROR(
      testGradientsOf<Half>(ranks, experts, table, 33, MOIRA_F16));
  MOIRA_RETURN_IF_ERROR(
      testGradientsOf<Plain<double>>(ranks, experts, table, 33, MOIRA_F64));
  return testGradientsOf<Plain<int32_t>>(ranks, experts, table, 33, MOIRA_I32);
}

template <typename Type>
static Status testSumOf(Communicator &ranks, int64_t count, int32_t dtype,
                        bool inPlace) {
  using Stored = typename Type::Stored;
  std::vector<Stored> in(count), out(count + 1, Stored(77));
  for (int64_t i = 0; i < count; ++i)
    in[i] = term<Type>(ranks.rank(), 0, i);
  if (inPlace)
    std::copy(in.begin(), in.end(), out.begin());
  Result<int64_t> ticket = ranks.startAllReduce(
      inPlace ? out.data() : in.data(), out.data(), count, dtype);
  MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
  for (int64_t i = 0; i < count; ++i) {
    typename Type::Sum sum = Type::load(term<Type>(0, 0, i));
    for (int p = 1; p < ranks.ranks(); ++p)
      sum += Type::load(term<Type>(p, 0, i));
    if (out[i] != Type::store(sum) || in[i] != term<Type>(ranks.rank(), 0, i))
      return Status(MOIRA_FAILED, concat("sum of ", count, " of type ", dtype,
                                         ", element ", i, " differs"));
  }
  return out[count] == Stored(77)
             ? Status()
             : Status(MOIRA_FAILED, "memory after a sum differs");
}

Status moira::test::testSums(Communicator &ranks) {
  for (bool inPlace : {false, true})
    for (int64_t count : {0, 1, 5, 3000}) {
      MOIRA_RETURN_IF_ERROR(
          testSumOf<Plain<float>>(ranks, count, MOIRA_F32, inPlace));
      MOIRA_RETURN_IF_ERROR(
          testSumOf<Plain<double>>(ranks, count, MOIRA_F64, inPlace));
      MOIRA_RETURN_IF_ERROR(
          testSumOf<Bfloat>(ranks, count, MOIRA_BF16, inPlace));
      MOIRA_RETURN_IF_ERROR(testSumOf<Half>(ranks, count, MOIRA_F16, inPlace));
      MOIRA_RETURN_IF_ERROR(
          testSumOf<Plain<int32_t>>(ranks, count, MOIRA_I32, inPlace));
      MOIRA_RETURN_IF_ERROR(
          testSumOf<Plain<int64_t>>(ranks, count, MOIRA_I64, inPlace));
    }
  ranks.resetTraffic();
  // 2 (W - 1) / W of the elements, where W divides them.
  int64_t count = 6 * ranks.ranks();
  std::vector<float> data(count);
  Result<int64_t> ticket =
      ranks.startAllReduce(data.data(), data.data(), count, MOIRA_F32);
  MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket) : ticket.status());
  int64_t got = ranks.traffic()[TrafficKind::Sums].bytesReceived;
  int64_t due = 2 * 6 * (ranks.ranks() - 1) * int64_t(sizeof(float));
  if (got == due)
    return Status();
  return Status(MOIRA_FAILED, concat("expected to receive ", due,
                                     " bytes in a sum, got ", got));
}
