// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hidden dimension through slices and reshapes, in both directions.

#ifndef MOIRA_LIB_DIALECT_MOE_UTILS_HIDDENVIEWS_H
#define MOIRA_LIB_DIALECT_MOE_UTILS_HIDDENVIEWS_H

#include "moira/Dialect/MoE/Utils/Separability.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::moe::detail {

/// From the place in a slice's source to that in the slice, or back; nothing
/// where the slice takes neither all of the dimension nor one of its parts.
std::optional<HiddenPlace> throughSlice(tensor::ExtractSliceOp slice,
                                        HiddenPlace place, int64_t hidden,
                                        bool toResult);

/// From a place in the type with more dims, `expanded`, to that in the one with
/// fewer, whose dims are `groups`.
std::optional<HiddenPlace> mergePlace(RankedTensorType expanded,
                                      ArrayRef<ReassociationIndices> groups,
                                      HiddenPlace place);
/// The other direction.
std::optional<HiddenPlace> splitPlace(RankedTensorType expanded,
                                      ArrayRef<ReassociationIndices> groups,
                                      HiddenPlace place);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_UTILS_HIDDENVIEWS_H
