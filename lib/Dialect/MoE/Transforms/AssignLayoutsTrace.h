// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From what a kernel reads back to the parameter that it is made of, also where
// ranks put shards of it together.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSTRACE_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSTRACE_H

#include "AssignLayoutsPack.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe::detail {

/// A weight of a kernel that is a parameter, or a part of one.
struct ParameterUse {
  BlockArgument argument;
  /// Of what the argument holds: one shard, where it is gathered.
  Packing packing;
  GatherWeightsOp gather;

  /// Shards that `gather` puts together in a dimension.
  int64_t getParts() {
    return gather && gather.getDim() ? gather.getPlacement().getPartsPerGroup()
                                     : 1;
  }
  /// Sets the packing of a shard from that of the whole weight. False where
  /// packed shards side by side are not the packed weight.
  bool setForm(WeightLayout layout, PanelForm form);
};

/// Follows a weight `[E, a, b]` back to a parameter of `function` that is made
/// of matrices.
std::optional<ParameterUse> traceParameter(func::FuncOp function, Value weight);

/// Follows a slice `[E, a]` of a vector back to a parameter.
std::optional<ParameterUse> traceVector(func::FuncOp function,
                                        tensor::ExtractSliceOp slice);

/// Puts the packed shards `packed` together as `gather` does plain ones.
Value gatherPacked(GatherWeightsOp gather, Value packed);

/// Lets every gather be a concatenation of memory: those in another dimension
/// than 1 or of several parts become a gather of whole shards and a transpose.
void orderGathers(func::FuncOp function);

/// The same for sums of gradients, the transposes of gathers.
void orderReductions(func::FuncOp function);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_ASSIGNLAYOUTSTRACE_H
