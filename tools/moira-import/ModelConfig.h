// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a model's config.json says about its mixture-of-experts layers.

#ifndef MOIRA_TOOLS_IMPORT_MODELCONFIG_H
#define MOIRA_TOOLS_IMPORT_MODELCONFIG_H

#include "io/Tensor.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace moira::import {

enum class Family { Olmoe, Mixtral, Qwen3 };

/// "olmoe", "mixtral", "qwen3": values of --model.
llvm::StringRef familyName(Family family);

enum class Activation { Silu, Gelu, Relu };

struct ModelConfig {
  Family family = Family::Olmoe;
  std::string architecture; ///< "OlmoeForCausalLM", or the model type
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t width = 0; ///< of one expert
  int64_t experts = 0;
  int64_t topK = 0;
  bool normalize = false; ///< weights of a token are divided by their sum
  Activation activation = Activation::Silu;
  /// Type of rows and weights; nothing where the configuration names none.
  std::optional<io::DataType> dtype;
  /// Layers without experts (Qwen3 only).
  std::vector<int64_t> denseLayers;
  int64_t sparseStep = 1; ///< every so many layers have experts (Qwen3 only)

  bool hasExperts(int64_t layer) const;
  /// The weights are rounded to the rows' type before rows are multiplied with
  /// them; Mixtral keeps them in f32.
  bool roundsWeights() const { return family != Family::Mixtral; }
};

/// Reads the text of a config.json; `path` begins messages.
llvm::Expected<ModelConfig> parseModelConfig(llvm::StringRef text,
                                             llvm::StringRef path);

/// An error with this line.
llvm::Error makeError(const llvm::Twine &message);

} // namespace moira::import

#endif // MOIRA_TOOLS_IMPORT_MODELCONFIG_H
