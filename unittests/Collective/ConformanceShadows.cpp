// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collective/Naive.h"
#include "placement/Shadowing.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// All experts shadowed at once, each rank with one slot that stays free.
class ShadowsTest {
public:
  ShadowsTest(Communicator &ranks, int experts) : ranks(ranks) {
    LayerShape shape;
    shape.ranks = ranks.ranks();
    shape.experts = experts;
    shape.shards = shardsFor(experts, ranks.ranks());
    shape.slots = shape.units() + 1;
    constants = {experts, shape.shards, shape.shards, shape.slots};
    base = shape.evenTable();
  }

  Status run(int64_t bytes);
  Status reduce();

private:
  Status prepare();
  /// By shards of experts in order, those of ours.
  bool owns(int slot) const {
    return base[size_t(ranks.rank()) * constants.slots + slot] >= 0;
  }
  int unit(int slot) const {
    return table[size_t(ranks.rank()) * constants.slots + slot];
  }

  Communicator &ranks;
  moira_placement constants;
  std::vector<int32_t> base, table;
  moira_plan plan{};
};
} // namespace

Status ShadowsTest::prepare() {
  Placement lasting;
  MOIRA_RETURN_IF_ERROR(lasting.set(constants, base.data(), ranks.ranks()));
  std::vector<int32_t> all(constants.experts);
  std::iota(all.begin(), all.end(), 0);
  MOIRA_RETURN_IF_ERROR(
      writeShadowTable(lasting, all.data(), constants.experts, table));
  plan.degree = 1;
  plan.slots = constants.slots;
  plan.slot_table = table.data();
  MOIRA_RETURN_IF_ERROR(ranks.barrier());
  ranks.resetTraffic();
  return Status();
}

Status ShadowsTest::run(int64_t bytes) {
  MOIRA_RETURN_IF_ERROR(prepare());
  std::vector<char> slots(constants.slots * bytes, 0x5a), part(bytes);
  for (int slot = 0; slot < constants.slots; ++slot)
    if (owns(slot)) {
      fillRow({0, unit(slot), 0, 0, 0}, 3, part);
      copyBytes(slots.data() + slot * bytes, part.data(), bytes);
    }
  ShadowMove move;
  move.placement = constants;
  move.parameter = 5;
  move.lasting = base.data();
  move.slots = slots.data();
  move.bytes = bytes;
  Result<int64_t> ticket = int64_t(-1); // overwritten: units are at least 1
  int units = constants.experts * constants.shards;
  for (move.unit = 0; move.unit < units; ++move.unit) {
    ticket = ranks.moveShadow(plan, move);
    if (!ticket.ok())
      return ticket.status();
  }
  MOIRA_RETURN_IF_ERROR(ranks.wait(*ticket));
  int64_t due = 0;
  for (int slot = 0; slot < constants.slots; ++slot) {
    if (unit(slot) < 0)
      std::fill(part.begin(), part.end(), 0x5a);
    else
      fillRow({0, unit(slot), 0, 0, 0}, 3, part);
    if (!std::equal(part.begin(), part.end(), slots.begin() + slot * bytes))
      return Status(MOIRA_FAILED, concat("slot ", slot, " differs"));
    due += unit(slot) >= 0 && !owns(slot) ? bytes : 0;
  }
  Traffic traffic = ranks.traffic();
  int64_t got = traffic[TrafficKind::Shadows].bytesReceived;
  if (got == due && (due == 0 || traffic.parameters[5].bytesReceived == due))
    return Status();
  return Status(MOIRA_FAILED,
                concat("expected to receive ", due, " bytes, got ", got));
}

/// Owners get the sums of all ranks' parts, in their order; the rest zeros.
Status ShadowsTest::reduce() {
  MOIRA_RETURN_IF_ERROR(prepare());
  constexpr int64_t count = 3;
  auto value = [&](int rank, int unit, int64_t i) {
    return static_cast<float>((rank % 2 ? 1e7 : -1e7) + rank * 0.37 + unit +
                              i * 0.011);
  };
  std::vector<float> whole(constants.slots * count), local(whole.size(), -1);
  for (int slot = 0; slot < constants.slots; ++slot)
    for (int64_t i = 0; i < count; ++i)
      whole[slot * count + i] = value(ranks.rank(), unit(slot), i);
  moira_reduce reduce{};
  reduce.placement = constants;
  reduce.whole = whole.data();
  reduce.local = local.data();
  reduce.count = count;
  reduce.dtype = MOIRA_F32;
  Result<int64_t> ticket = ranks.reduceWeights(plan, reduce, base.data());
  if (!ticket.ok())
    return ticket.status();
  MOIRA_RETURN_IF_ERROR(ranks.wait(*ticket));
  int64_t due = 0;
  for (int slot = 0; slot < constants.slots; ++slot) {
    due +=
        owns(slot) ? (ranks.ranks() - 1) * count * int64_t(sizeof(float)) : 0;
    for (int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int p = 0; p < ranks.ranks() && owns(slot); ++p)
        sum = p == 0 ? value(p, unit(slot), i) : sum + value(p, unit(slot), i);
      if (local[slot * count + i] != sum)
        return Status(MOIRA_FAILED,
                      concat("gradient of slot ", slot, ": expected ", sum,
                             ", got ", local[slot * count + i]));
    }
  }
  int64_t got = ranks.traffic()[TrafficKind::Gradients].bytesReceived;
  return got == due
             ? Status()
             : Status(MOIRA_FAILED, concat("expected to receive ", due,
                                           " bytes of gradients, got ", got));
}

Status moira::test::testShadows(Communicator &ranks) {
  for (int experts = 1; experts <= 2 * ranks.ranks(); ++experts) {
    if (experts % ranks.ranks() != 0 && ranks.ranks() % experts != 0)
      continue;
    ShadowsTest test(ranks, experts);
    // Nothing, whole ones and, above 256 KiB, parts.
    for (int64_t bytes : {0, 6, 300001})
      if (bytes < 7 || experts <= 4)
        MOIRA_RETURN_IF_ERROR(test.run(bytes).within(
            concat("shadows of ", experts, " experts, ", bytes, " bytes")));
    MOIRA_RETURN_IF_ERROR(
        test.reduce().within(concat("shadows of ", experts, " experts")));
  }
  return Status();
}
