// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a layer as a program in the `moe` dialect.

#ifndef MOIRA_TOOLS_IMPORT_PROGRAMWRITER_H
#define MOIRA_TOOLS_IMPORT_PROGRAMWRITER_H

#include "LayerWeights.h"

namespace moira::import {

/// The text of a module with one function, @main, from rows `tensor<?xDxT>` to
/// rows of the same type. Sums are f32; a value is rounded to the rows' type
/// exactly where the model's own code rounds it, except in the last sum, which
/// is rounded once. config.dtype is set. With `returnsLogits` the router's
/// logits are a second result.
std::string writeProgram(const ModelConfig &config, int64_t layer,
                         const LayerWeights &weights,
                         bool returnsLogits = false);

} // namespace moira::import

#endif // MOIRA_TOOLS_IMPORT_PROGRAMWRITER_H
