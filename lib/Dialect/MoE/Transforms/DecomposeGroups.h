// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Experts one after the other, in the decompositions of what runs over groups
// of rows.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEGROUPS_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEGROUPS_H

#include "DecomposeBuilder.h"

namespace mlir::moe::detail {

/// Where the rows of one expert stand in ragged `[R, ..]` or padded
/// `[E, P, ..]` tensors.
struct Group {
  DecomposeBuilder &b;
  bool padded;
  Value expert, begin, size;

  Sizes offsets(Value tensor) const {
    Sizes result = {begin};
    if (padded)
      result.insert(result.begin(), expert);
    result.resize(cast<ShapedType>(tensor.getType()).getRank(),
                  b.getIndexAttr(0));
    return result;
  }
  Sizes sizes(Value tensor) const {
    Sizes result = {size};
    if (padded)
      result.insert(result.begin(), b.getIndexAttr(1));
    int64_t rank = cast<ShapedType>(tensor.getType()).getRank();
    for (int64_t d = result.size(); d < rank; ++d)
      result.push_back(b.size(tensor, d));
    return result;
  }
  /// The rows of this expert.
  Value of(Value tensor) const {
    int64_t rank = cast<ShapedType>(tensor.getType()).getRank();
    return b.slice(tensor, offsets(tensor), sizes(tensor),
                   padded ? rank - 1 : rank);
  }
  Value insert(Value rows, Value tensor) const {
    return b.insertSlice(rows, tensor, offsets(tensor), sizes(tensor));
  }
};

/// Offsets and sizes of `tensor[expert, ...]`.
std::pair<Sizes, Sizes> expertBounds(DecomposeBuilder &b, Value tensor,
                                     Value expert);

/// `tensor[expert, ...]`, without that dim.
Value expertSlice(DecomposeBuilder &b, Value tensor, Value expert);

/// Runs `body` for every group, carrying `outs`.
Values forEachGroup(DecomposeBuilder &b, Value groupSizes, bool padded,
                    ValueRange outs,
                    llvm::function_ref<Values(const Group &, ValueRange)> body);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSEGROUPS_H
