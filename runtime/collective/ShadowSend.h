// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of a shadowed expert on their way from the rank that owns them to
// those that have a slot for them in this step (docs/placement.md).

#ifndef MOIRA_RUNTIME_COLLECTIVE_SHADOWSEND_H
#define MOIRA_RUNTIME_COLLECTIVE_SHADOWSEND_H

#include "collective/Collective.h"
#include "collective/Placement.h"
#include "cost/LayerShape.h"

namespace moira::runtime {

/// One unit of one parameter. The step's slot table is that of the plan.
struct ShadowMove {
  int64_t layer = 0;
  moira_placement placement{};
  int32_t parameter = 0;            ///< index of the parameter table
  int32_t unit = 0;                 ///< expert * shards + shard
  const int32_t *lasting = nullptr; ///< [ranks, slots] without shadows
  void *slots = nullptr;            ///< [slots, bytes], this rank's
  int64_t bytes = 0;                ///< of one slot
};

/// `data` of place 0 to all places, one of three ways. Both ends of a message
/// are in the same batch, counted from the first one on.
class ShadowSend final : public Collective {
public:
  /// `place` of `count` places is this rank's.
  void begin(int place, int count, void *data, int64_t bytes,
             ShadowTransport transport);
  bool next(Batch &batch) override;

private:
  void part(int index, void *&address, int64_t &partBytes) const;

  int place = 0, count = 1;
  char *data = nullptr;
  int64_t bytes = 0;
  ShadowTransport transport = ShadowTransport::Tree;
  int round = 0;
  Broadcast tree;
};

/// The ranks between which a unit moves: the owner, which is the unit's first
/// holder in the lasting placement, then those behind it, one after the other,
/// that hold it in the step's alone. Allocates nothing where `ranks` has had
/// this size.
void findShadowRanks(const Placement &lasting, const Placement &step, int unit,
                     std::vector<int> &ranks);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_SHADOWSEND_H
