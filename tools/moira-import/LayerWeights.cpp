// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LayerWeights.h"

#include "io/Safetensors.h"

using namespace moira;
using namespace moira::import;
using llvm::Twine;

/// Names below `block`, for instance "model.layers.0.mlp.".
static LayerWeights namesIn(const std::string &block, bool mixtral,
                            bool stacked) {
  LayerWeights names;
  names.router = block + "gate.weight";
  names.stacked = stacked;
  std::string expert = block + (stacked ? "experts." : "experts.{}.");
  if (stacked) {
    names.gate = names.up = expert + "gate_up_proj";
    names.down = expert + "down_proj";
    return names;
  }
  names.gate = expert + (mixtral ? "w1" : "gate_proj") + ".weight";
  names.up = expert + (mixtral ? "w3" : "up_proj") + ".weight";
  names.down = expert + (mixtral ? "w2" : "down_proj") + ".weight";
  return names;
}

static std::string blockName(const ModelConfig &config, int64_t layer) {
  return "model.layers." + std::to_string(layer) +
         (config.family == Family::Mixtral ? ".block_sparse_moe." : ".mlp.");
}

LayerWeights import::publishedNames(const ModelConfig &config, int64_t layer) {
  return namesIn(blockName(config, layer), config.family == Family::Mixtral,
                 /*stacked=*/false);
}

LayerWeights import::frameworkNames(const ModelConfig &config, int64_t layer) {
  return namesIn("model.layers." + std::to_string(layer) + ".mlp.",
                 config.family == Family::Mixtral, /*stacked=*/true);
}

/// The name of expert `e`'s own tensor.
static std::string expertName(const std::string &name, int64_t e) {
  size_t at = name.find("{}");
  return name.substr(0, at) + std::to_string(e) + name.substr(at + 2);
}

/// Checks that `name` is there, holds floats and has `shape`; returns its type.
static llvm::Expected<io::DataType> checkOne(const io::Safetensors &checkpoint,
                                             const std::string &name,
                                             const io::Shape &shape) {
  Result<io::MappedTensor> tensor = checkpoint.tensor(name);
  if (!tensor.ok())
    return makeError(tensor.status().message);
  bool isFloat = runtime::isFloat(tensor->dtype);
  Status status = io::checkTensor(
      *tensor, isFloat ? tensor->dtype : io::DataType::BF16, shape);
  if (!status.ok())
    return makeError(status.message);
  return tensor->dtype;
}

/// Checks a matrix per expert, or the one tensor that holds all of them.
static llvm::Error checkExperts(const io::Safetensors &checkpoint,
                                const std::string &name, bool stacked,
                                int64_t experts, io::Shape matrix) {
  if (stacked) {
    matrix.insert(matrix.begin(), experts);
    return checkOne(checkpoint, name, matrix).takeError();
  }
  for (int64_t e = 0; e < experts; ++e)
    if (llvm::Error error =
            checkOne(checkpoint, expertName(name, e), matrix).takeError())
      return error;
  return llvm::Error::success();
}

llvm::Expected<LayerWeights>
import::findWeights(ModelConfig &config, int64_t layer,
                    const io::Safetensors &checkpoint) {
  // Published checkpoints first, so that messages name their tensors. The
  // framework's own layout calls the block "mlp" in every family.
  LayerWeights names = publishedNames(config, layer);
  LayerWeights other = frameworkNames(config, layer);
  if (checkpoint.contains(other.gate))
    names = other;

  llvm::Expected<io::DataType> routerType =
      checkOne(checkpoint, names.router, {config.experts, config.hidden});
  if (!routerType)
    return routerType.takeError();
  if (!config.dtype)
    config.dtype = *routerType;

  auto check = [&](const std::string &name, int64_t rows, int64_t columns) {
    return checkExperts(checkpoint, name, names.stacked, config.experts,
                        {rows, columns});
  };
  if (names.stacked) {
    if (llvm::Error error = check(names.gate, 2 * config.width, config.hidden))
      return std::move(error);
  } else {
    if (llvm::Error error = check(names.gate, config.width, config.hidden))
      return std::move(error);
    if (llvm::Error error = check(names.up, config.width, config.hidden))
      return std::move(error);
  }
  if (llvm::Error error = check(names.down, config.hidden, config.width))
    return std::move(error);
  return names;
}
