// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a shard's elements stand in the slice of the file that it is cut from.

#ifndef MOIRA_RUNTIME_SESSION_PARAMETERSHARD_H
#define MOIRA_RUNTIME_SESSION_PARAMETERSHARD_H

#include "session/Manifest.h"

namespace moira::runtime {

/// Runs of equal length at equal distances. Counted in elements:
///
///   slice [4, 6], dim 0 in 2 shards       shard 1: 1 run of 12 at 12
///   slice [4, 6], dim 1 in 2 shards       shard 1: 4 runs of 3 at 3, 9, 15, 21
///   the same in 2 parts x 3 / 3 shards    shard 1: 8 runs of 1 at 1, 4, 7, ...
///
/// One after the other they are the shard as the pack entry reads it.
struct ParameterShard {
  int64_t runs = 1;
  int64_t first = 0;    ///< where the first one begins
  int64_t distance = 0; ///< from the beginning of a run to that of the next
  int64_t length = 0;   ///< of a run

  int64_t count() const { return runs * length; }
  /// From the first element to the last one, with what stands between.
  int64_t span() const {
    return runs == 0 ? 0 : (runs - 1) * distance + length;
  }
};

/// Shard `index` of a slice; the whole slice of a parameter without placement.
ParameterShard findShard(const ParameterSpec &spec, int64_t index);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PARAMETERSHARD_H
