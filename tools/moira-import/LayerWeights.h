// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a layer's weights stand in a checkpoint.

#ifndef MOIRA_TOOLS_IMPORT_LAYERWEIGHTS_H
#define MOIRA_TOOLS_IMPORT_LAYERWEIGHTS_H

#include "ModelConfig.h"

namespace moira::io {
class Safetensors;
} // namespace moira::io

namespace moira::import {

/// Names of the tensors of one layer; `{}` stands for the expert's number.
struct LayerWeights {
  std::string router;
  std::string gate, up, down;
  /// Gate and up projection are halves of one tensor, `gate`, that holds all
  /// experts; `down` holds all experts too.
  bool stacked = false;
};

/// The names that a checkpoint of this family uses on disk.
LayerWeights publishedNames(const ModelConfig &config, int64_t layer);

/// The names that the framework uses in memory, where all experts are stacked.
LayerWeights frameworkNames(const ModelConfig &config, int64_t layer);

/// Finds the layer's tensors in `checkpoint`, which holds them as published or
/// as the framework keeps them in memory, and checks their shapes. Sets
/// config.dtype to the router's type where it is not set.
llvm::Expected<LayerWeights> findWeights(ModelConfig &config, int64_t layer,
                                         const io::Safetensors &checkpoint);

} // namespace moira::import

#endif // MOIRA_TOOLS_IMPORT_LAYERWEIGHTS_H
