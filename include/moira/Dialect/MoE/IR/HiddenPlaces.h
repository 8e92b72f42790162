// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What experts that differentiation has made or extended say of the hidden
// dimension (docs/gradients.md, "Hidden blocks"). Their bodies yield it and
// read it as rows, so that it cannot be found from their last products.

#ifndef MOIRA_DIALECT_MOE_IR_HIDDENPLACES_H
#define MOIRA_DIALECT_MOE_IR_HIDDENPLACES_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include <optional>

namespace mlir::moe {

/// Where a tensor has the hidden dimension. A dim of `parts` times the hidden
/// size holds that many things, such as a gate and an up projection: one after
/// the other, or element by element (`interleaved`).
struct HiddenPlace {
  int64_t dim = 0;
  int64_t parts = 1;
  bool interleaved = false;

  bool operator==(const HiddenPlace &other) const {
    return dim == other.dim && parts == other.parts &&
           interleaved == other.interleaved;
  }
};

/// Name of the attribute (DenseI64Array) of a moe.expert that holds, for each
/// per-expert operand, the dim of one expert's slice that is hidden (-1: none),
/// its parts, and whether they are interleaved (0 or 1).
inline constexpr llvm::StringLiteral kHiddenPlacesAttrName =
    "moe.hidden_places";

using HiddenPlaces = SmallVector<std::optional<HiddenPlace>>;

/// The place in each per-expert operand; nothing where the op does not say.
std::optional<HiddenPlaces> getHiddenPlaces(ExpertOp expert);
void setHiddenPlaces(ExpertOp expert,
                     ArrayRef<std::optional<HiddenPlace>> places);

namespace detail {
LogicalResult verifyHiddenPlaces(Operation *op, Attribute value);
} // namespace detail

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_IR_HIDDENPLACES_H
