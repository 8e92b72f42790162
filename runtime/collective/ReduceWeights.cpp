// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/ReduceWeights.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

/// Calls action(rank, part) for each addend of `unit`, in the order of the sum:
/// by shard, then by rank, so that it does not depend on where shards stand.
template <typename Action>
void ReduceWeights::forTerms(int unit, const Action &action) const {
  int shards = placement->shards(), expert = placement->expertOf(unit);
  if (copies == 0) {
    for (int p = 0; p < placement->ranks(); ++p)
      action(p, int64_t(replicated ? expert : unit));
    return;
  }
  int parts = replicated ? shards : shards / copies;
  int first = unit - unit % shards % parts;
  for (int j = 0; j < parts; ++j)
    for (int i = 0; i < placement->holders(first + j); ++i) {
      Place place = placement->holder(first + j, i);
      action(place.rank, replicated
                             ? int64_t(place.slot)
                             : int64_t(place.slot) * parts + (unit - first));
    }
}

/// At most so many terms of any rank; the same on all.
int64_t ReduceWeights::countTerms() const {
  int64_t most = 1;
  for (int u = 0; u < placement->units(); ++u) {
    int64_t n = 0;
    forTerms(u, [&](int, int64_t) { ++n; });
    most = std::max(most, n);
  }
  return most * placement->slots();
}

/// Whether a slot has the first place of its unit on its rank: others have a
/// copy of it. A unit that a slot holds for a step stands nowhere.
static bool isFirst(const Placement &placement, int rank, int slot) {
  int unit = placement.unit(rank, slot);
  if (unit < 0)
    return false;
  for (int other = 0; other < slot; ++other)
    if (placement.unit(rank, other) == unit)
      return false;
  return true;
}

/// Lists what travels. Between two ranks both sides go by the receiver's slots
/// and then by the order of the sum.
void ReduceWeights::plan() {
  sends.clear();
  receives.clear();
  terms.clear();
  firstTerm.clear();
  for (int slot = 0; slot < placement->slots(); ++slot) {
    firstTerm.push_back(static_cast<int>(terms.size()));
    if (!isFirst(*owners, rank, slot))
      continue;
    forTerms(owners->unit(rank, slot), [&](int from, int64_t part) {
      if (from == rank) {
        terms.push_back(part);
        return;
      }
      terms.push_back(~static_cast<int64_t>(receives.size()));
      receives.push_back(from);
    });
  }
  firstTerm.push_back(static_cast<int>(terms.size()));
  for (int d = 1; d < placement->ranks(); ++d) {
    int to = groups.peer(rank, d);
    for (int slot = 0; slot < placement->slots(); ++slot)
      if (isFirst(*owners, to, slot))
        forTerms(owners->unit(to, slot), [&](int from, int64_t part) {
          if (from == rank)
            sends.push_back({to, part});
        });
  }
}

Status ReduceWeights::begin(const moira_reduce &reduce,
                            const Placement &newPlacement,
                            const Placement *lasting,
                            const RankGroups &newGroups, int64_t stagingBytes) {
  MOIRA_RETURN_IF_ERROR(checkReducible(reduce.dtype));
  if (reduce.count < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected 0 or more elements, got ", reduce.count));
  placement = &newPlacement;
  owners = lasting ? lasting : placement;
  groups = newGroups;
  rank = groups.rank;
  copies = reduce.placement.copies;
  replicated = reduce.replicated != 0;
  whole = static_cast<const char *>(reduce.whole);
  local = static_cast<char *>(reduce.local);
  count = reduce.count;
  dtype = reduce.dtype;
  size = reducibleBytes(dtype);
  done = 0;
  waiting = false;
  block = std::clamp<int64_t>(stagingBytes / (countTerms() * size), 1,
                              std::max<int64_t>(count, 1));
  plan();
  return Status();
}

void ReduceWeights::add(int64_t n) {
  const char *received =
      staging.ensure(static_cast<int64_t>(receives.size()) * block * size);
  for (int slot = 0; slot < placement->slots(); ++slot) {
    parts.clear();
    for (int i = firstTerm[slot]; i < firstTerm[slot + 1]; ++i)
      parts.push_back(terms[i] >= 0 ? ownPart(terms[i])
                                    : received + ~terms[i] * block * size);
    if (!parts.empty())
      reduceParts(local + (slot * count + done) * size, parts, n, dtype,
                  Reduction::Sum);
  }
}

/// Slots without a unit of their own get zeros, or what the first one has.
void ReduceWeights::finish() {
  int64_t bytes = count * size;
  for (int slot = 0; slot < placement->slots() && bytes > 0; ++slot) {
    if (firstTerm[slot] < firstTerm[slot + 1])
      continue;
    int unit = owners->unit(rank, slot);
    if (unit < 0) {
      std::memset(local + slot * bytes, 0, bytes);
      continue;
    }
    int first = 0;
    while (owners->unit(rank, first) != unit)
      ++first;
    copyBytes(local + slot * bytes, local + first * bytes, bytes);
  }
}

bool ReduceWeights::next(Batch &batch) {
  batch.sends.clear();
  batch.receives.clear();
  if (waiting) {
    int64_t n = std::min(block, count - done);
    add(n);
    done += n;
  }
  waiting = done < count;
  if (!waiting) {
    finish();
    return false;
  }
  int64_t bytes = std::min(block, count - done) * size;
  for (const Term &term : sends)
    batch.sends.push_back(
        {term.rank, const_cast<char *>(ownPart(term.part)), bytes});
  char *place =
      staging.ensure(static_cast<int64_t>(receives.size()) * block * size);
  for (size_t i = 0; i < receives.size(); ++i)
    batch.receives.push_back(
        {receives[i], place + int64_t(i) * block * size, bytes});
  return true;
}
