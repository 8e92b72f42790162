// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients in the packed form of their parameters.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSGRADIENTS_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSGRADIENTS_H

#include "AssignLayoutsPack.h"

namespace mlir::moe::detail {

/// A parameter, as the program has it, and one form that a function reads.
struct PackedParameter {
  ParamAttr param;
  Attribute shard;
  RankedTensorType logical;
  Packing packing;
};

/// Packs the results of `function` that are gradients of parameters with one
/// argument, one of `packed`. Returns how many.
unsigned packGradients(func::FuncOp function, ArrayRef<PackedParameter> packed);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSGRADIENTS_H
