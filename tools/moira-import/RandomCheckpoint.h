// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints with random weights, in the format of the published ones.

#ifndef MOIRA_TOOLS_IMPORT_RANDOMCHECKPOINT_H
#define MOIRA_TOOLS_IMPORT_RANDOMCHECKPOINT_H

#include "ModelConfig.h"

namespace moira::import {

struct RandomCheckpoint {
  Family family = Family::Olmoe;
  bool tiny = false;                 ///< the same router, small dimensions
  std::optional<io::DataType> dtype; ///< f32, bf16 or f16
  uint64_t seed = 0;
  int64_t shardBytes = 256 << 20;
};

/// Writes config.json, shards and index of a model with one layer, whose
/// mixture of experts is all that the files hold, into `folder`, which is
/// created. The bytes depend on the options alone. Returns the bytes written.
llvm::Expected<int64_t> writeRandomCheckpoint(const std::string &folder,
                                              const RandomCheckpoint &options);

} // namespace moira::import

#endif // MOIRA_TOOLS_IMPORT_RANDOMCHECKPOINT_H
