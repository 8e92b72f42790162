// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of the gradients of experts, where their shards stand.

#ifndef MOIRA_RUNTIME_COLLECTIVE_REDUCEWEIGHTS_H
#define MOIRA_RUNTIME_COLLECTIVE_REDUCEWEIGHTS_H

#include "collective/Collective.h"
#include "collective/Placement.h"
#include "collective/RankGroups.h"
#include "collective/Reduction.h"

namespace moira::runtime {

/// The transpose of a gather of weights (docs/ranks.md, "Gradients"). Each unit
/// of this rank gets the sum of what everyone has for it that gathered it; a
/// rank's own part does not travel.
class ReduceWeights final : public Collective {
public:
  /// `placement` is set for reduce.placement and stays as it is to the end.
  /// With `lasting` only slots that hold their unit there too get a sum, the
  /// rest of them, which hold it for a step, zeros. `groups` are those ranks,
  /// seen from this one. About `stagingBytes` are
  /// held beside the caller's memory; equal on all ranks.
  Status begin(const moira_reduce &reduce, const Placement &placement,
               const Placement *lasting, const RankGroups &groups,
               int64_t stagingBytes);
  bool next(Batch &batch) override;

private:
  /// One addend of a unit: the part of moira_reduce.whole on a rank.
  struct Term {
    int rank;
    int64_t part;
  };
  template <typename Action>
  void forTerms(int unit, const Action &action) const;
  int64_t countTerms() const;
  void plan();
  const char *ownPart(int64_t part) const {
    return whole + (part * count + done) * size;
  }
  void add(int64_t n);
  void finish();

  /// Who has parts, and who gets sums.
  const Placement *placement = nullptr, *owners = nullptr;
  RankGroups groups;
  int rank = 0;
  int copies = 0;
  bool replicated = false;
  const char *whole = nullptr;
  char *local = nullptr;
  int64_t count = 0; ///< elements of a slot
  int64_t size = 0;  ///< bytes of an element
  int32_t dtype = 0;
  int64_t done = 0;  ///< elements of each slot before the block under way
  int64_t block = 0; ///< elements of a block
  bool waiting = false;
  std::vector<Term> sends;    ///< to whom, which part of mine; per block
  std::vector<int> receives;  ///< from whom; i stands in staging block i
  std::vector<int64_t> terms; ///< all slots': part if >= 0, else ~ of staging
  std::vector<int> firstTerm; ///< [slots + 1], into terms
  std::vector<const void *> parts;
  Staging staging; ///< [receives, block]
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_REDUCEWEIGHTS_H
