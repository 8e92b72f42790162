// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Record.h"

#include "base/Hash.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

static_assert(sizeof(RankRecord) == 48, "travels between ranks");

std::optional<Failure>
moira::runtime::findDisagreement(const std::vector<RankRecord> &records) {
  for (size_t rank = 1; rank < records.size(); ++rank) {
    const RankRecord &first = records[0], &other = records[rank];
    const char *what = other.program != first.program ? "program"
                       : other.layer != first.layer   ? "layer"
                       : other.plan != first.plan     ? "plan"
                       : other.shapes != first.shapes ? "shapes of inputs"
                                                      : nullptr;
    if (what)
      return Failure{
          static_cast<int>(rank), MOIRA_INVALID_ARGUMENT,
          concat("expected the same ", what, " as on rank 0, got another")};
  }
  return std::nullopt;
}

SharedRecord
moira::runtime::combineRecords(const std::vector<RankRecord> &records) {
  SharedRecord shared;
  shared.variants = ~uint64_t(0);
  for (const RankRecord &record : records) {
    shared.variants &= record.variants;
    shared.seconds = std::max(shared.seconds, record.seconds);
  }
  return shared;
}

uint64_t moira::runtime::hashPlan(const moira_plan &plan, int ranks) {
  const int64_t numbers[] = {plan.variant, plan.degree, plan.exchange,
                             plan.slot_table ? plan.slots : 0};
  uint64_t hash = hashBytes(numbers, sizeof(numbers));
  if (!plan.slot_table)
    return hash;
  return hashBytes(plan.slot_table,
                   sizeof(int32_t) * size_t(ranks) * size_t(plan.slots), hash);
}
