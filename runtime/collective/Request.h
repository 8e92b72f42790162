// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What stands in a communicator's queue.

#ifndef MOIRA_RUNTIME_COLLECTIVE_REQUEST_H
#define MOIRA_RUNTIME_COLLECTIVE_REQUEST_H

#include "collective/RaggedExchange.h"
#include "collective/ShadowSend.h"

#include <string>

namespace moira::runtime {

/// One operation with all that it needs, in a size that the queue holds
/// without allocating. Which fields count depends on the kind.
struct Request {
  enum class Kind {
    Exchange,      ///< exchange, plan
    GatherWeights, ///< gather, plan
    GatherCounts,  ///< layer, in, bytes, out
    AllGather,     ///< in, bytes, out
    Broadcast,     ///< out, bytes, root
    ReduceWeights, ///< reduce, plan, lasting
    MoveShadow,    ///< shadow, plan
    MoveSlots,     ///< pieces, parameter (in `gather`)
    AllReduce,     ///< in, out, count, dtype, reduction
    ReduceScatter, ///< in, out, count, dtype, reduction
    EndStep,       ///< in, bytes, out
    Split,         ///< in, bytes, out
  };

  Kind kind = Kind::AllGather;
  moira_plan plan{};
  moira_exchange exchange{};
  moira_gather gather{};
  moira_reduce reduce{};
  ShadowMove shadow{};
  const Pieces *pieces = nullptr;
  /// Slots that hold a unit here get its gradient; null: all that hold it.
  const int32_t *lasting = nullptr;
  int64_t layer = -1;
  const void *in = nullptr;
  void *out = nullptr;
  int64_t bytes = 0;
  int64_t count = 0;
  int32_t dtype = 0;
  int root = 0;
  Reduction reduction = Reduction::Sum;

  /// For errors and traces, such as "exchange to experts, layer 0, chunk 2".
  std::string describe() const;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_REQUEST_H
