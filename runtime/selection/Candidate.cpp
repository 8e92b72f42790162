// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "selection/Candidate.h"

#include "base/Hash.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace moira;
using namespace moira::runtime;

std::string Candidate::describe() const {
  std::string text = concat("r=", plan.copies);
  if (plan.copies == 0)
    return text;
  if (plan.schedule == MOIRA_SCHEDULE_GROUPS)
    text += " groups";
  else
    text += concat(" degree=", plan.degree);
  if (plan.exchange == 1)
    text += " hierarchical";
  if (plan.shadows > 0)
    text += concat(" shadow=", plan.shadows);
  return text;
}

moira_plan Candidate::toPlan(const int32_t *slotTable, int slots) const {
  moira_plan result{};
  result.variant = variant;
  result.degree = plan.degree;
  result.exchange = plan.exchange;
  result.slots = slotTable ? slots : 0;
  result.slot_table = slotTable;
  return result;
}

Status SelectionSpace::check(const LayerModel &model) const {
  auto invalid = [](const std::string &what) {
    return Status(MOIRA_INVALID_ARGUMENT, "selection: expected " + what);
  };
  if (variants.empty() || variants.size() > 64)
    return invalid(concat("from 1 to 64 variants, got ", variants.size()));
  if (degrees.empty())
    return invalid("at least one degree, got none");
  if (hierarchical && !model.hasHierarchical())
    return invalid("no hierarchical exchange on a grid without nodes");
  for (const Candidate &candidate : candidates())
    MOIRA_RETURN_IF_ERROR(model.check(candidate.plan)
                              .within("selection: variant '" +
                                      variants[candidate.variant].name + "'"));
  return Status();
}

std::vector<Candidate> SelectionSpace::candidates() const {
  std::vector<Candidate> all;
  std::set<int> ordered(degrees.begin(), degrees.end());
  for (uint32_t v = 0; v < variants.size(); ++v) {
    const VariantChoice &variant = variants[v];
    // Without exchanges there is nothing to cut, to route or to shadow. Chunks
    // of one group each have few messages as they are.
    bool moves = variant.copies > 0;
    bool equal = moves && variant.schedule == MOIRA_SCHEDULE_EQUAL;
    bool cut = equal && variant.cut;
    bool shadowing =
        moves && (shadowCopies < 0 || variant.copies == shadowCopies);
    for (int shadows = 0; shadows <= (shadowing ? maxShadows : 0); ++shadows)
      for (int exchange = 0; exchange <= (equal && hierarchical); ++exchange)
        for (int degree : ordered) {
          if (!cut && degree != *ordered.begin())
            continue;
          all.push_back({v,
                         {variant.copies, variant.schedule, cut ? degree : 1,
                          exchange, shadows}});
        }
  }
  auto key = [](const Candidate &c) {
    return std::tuple(c.plan.copies, c.plan.shadows, c.variant, c.plan.exchange,
                      c.plan.degree);
  };
  std::sort(all.begin(), all.end(),
            [&](const auto &a, const auto &b) { return key(a) < key(b); });
  return all;
}

uint64_t SelectionSpace::hash() const {
  uint64_t hash = 0;
  for (const Candidate &c : candidates()) {
    const int64_t numbers[] = {c.variant,     c.plan.copies,   c.plan.schedule,
                               c.plan.degree, c.plan.exchange, c.plan.shadows};
    hash = hashBytes(numbers, sizeof(numbers), hash);
  }
  for (const VariantChoice &variant : variants) {
    hash = hashBytes(variant.name.data(), variant.name.size(), hash);
    hash = hashBytes(variant.numerics.data(), variant.numerics.size(), hash);
  }
  return hash;
}
