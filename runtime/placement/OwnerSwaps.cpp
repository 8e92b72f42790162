// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "placement/OwnerSwaps.h"

#include "placement/Shadowing.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

namespace {
/// Sums of what is counted, and which experts are everywhere.
struct Loads {
  std::vector<int64_t> ofExpert;
  std::vector<char> shadowed;

  Loads(const Placement &placement, const int32_t *counts, int shadows)
      : shadowed(placement.experts()) {
    std::vector<int32_t> order;
    orderByLoad(counts, placement.ranks(), placement.experts(), shadows,
                ofExpert, order);
    for (int32_t expert : order)
      shadowed[expert] = 1;
  }
};
} // namespace

static std::vector<int64_t> rowsOf(const Placement &placement,
                                   const int32_t *counts, const Loads &loads) {
  std::vector<int64_t> rows(placement.ranks());
  for (int source = 0; source < placement.ranks(); ++source)
    for (int e = 0; e < placement.experts(); ++e)
      rows[loads.shadowed[e] ? source : placement.holderFor(e, source).rank] +=
          counts[size_t(source) * placement.experts() + e];
  return rows;
}

std::vector<int64_t>
moira::runtime::rowsBesideShadows(const Placement &placement,
                                  const int32_t *counts, int shadows) {
  return rowsOf(placement, counts, Loads(placement, counts, shadows));
}

std::vector<OwnerSwap> moira::runtime::swapOwners(const Placement &placement,
                                                  const int32_t *counts,
                                                  int shadows, int most,
                                                  std::vector<int32_t> &table) {
  int ranks = placement.ranks(), slots = placement.slots();
  Loads loads(placement, counts, shadows);
  std::vector<int64_t> rows = rowsOf(placement, counts, loads);
  table.clear();
  std::vector<int> holders(placement.experts());
  for (int rank = 0; rank < ranks; ++rank)
    for (int slot = 0; slot < slots; ++slot) {
      table.push_back(placement.unit(rank, slot));
      if (table.back() >= 0)
        ++holders[table.back()];
    }
  auto at = [&](Place place) -> int32_t & {
    return table[size_t(place.rank) * slots + place.slot];
  };
  // Rows that leave with an expert; -1: it stays.
  auto weight = [&](Place place) -> int64_t {
    int32_t expert = at(place);
    if (expert < 0 || holders[expert] != 1)
      return -1;
    return loads.shadowed[expert] ? 0 : loads.ofExpert[expert];
  };
  std::vector<OwnerSwap> swaps;
  while (int(swaps.size()) < most) {
    int fullest =
        int(std::max_element(rows.begin(), rows.end()) - rows.begin());
    int64_t least = rows[fullest];
    OwnerSwap best{{-1, -1}, {-1, -1}};
    for (int slot = 0; slot < slots; ++slot) {
      Place mine{fullest, slot};
      int64_t gives = weight(mine);
      for (int other = 0; gives > 0 && other < ranks; ++other)
        for (int s = 0; other != fullest && s < slots; ++s) {
          int64_t gets = weight({other, s});
          if (gets < 0 || gets >= gives)
            continue;
          int64_t fuller = std::max(rows[fullest] - gives + gets,
                                    rows[other] + gives - gets);
          if (fuller >= least)
            continue;
          least = fuller;
          best = {mine, {other, s}};
        }
    }
    if (best.first.rank < 0)
      break;
    int64_t moved = weight(best.first) - weight(best.second);
    rows[best.first.rank] -= moved;
    rows[best.second.rank] += moved;
    std::swap(at(best.first), at(best.second));
    swaps.push_back(best);
  }
  return swaps;
}
