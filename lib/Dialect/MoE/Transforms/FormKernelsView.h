// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors seen from one element: which coordinates of a tensor the element
// (row d0, column d1) of a result reads.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSVIEW_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSVIEW_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::moe::detail {

/// The element of `value` that a result's element (d0, d1) reads: `map` has one
/// result per dimension of `value`.
struct Access {
  Value value;
  AffineMap map;

  /// The access to rank-2 `value` at (d0, d1) itself.
  static Access identity(Value value);
  /// Whether the access is (d0, d1).
  bool isIdentity() const;
};

/// A coordinate `stride * dim + offset`; without `dim` the constant `offset`.
struct LinearCoord {
  std::optional<unsigned> dim;
  int64_t stride = 0;
  int64_t offset = 0;
};

/// Reads `expr` as a linear coordinate of one dim with a positive stride.
std::optional<LinearCoord> getLinearCoord(AffineExpr expr);

/// The loops of `op` that compute the element of result #`result` at the
/// coordinates `map`; nothing when the result is no permutation of the loops.
std::optional<AffineMap> getLoopsOf(linalg::LinalgOp op, unsigned result,
                                    AffineMap map);

/// Steps from a value to the operand that it copies: through slices, reshapes,
/// casts, transposes, broadcasts, and widenings to f32 (exact, so that a reader
/// in f32 sees the same number). Stops at the first other op.
Access lookThrough(Access access);

/// One step of `lookThrough`; `access` itself where it stops.
Access lookThroughOnce(Access access);

/// The value whose elements `value` has at the same places, before any
/// widening to f32; `value` itself when there is none.
Value lookThroughWidening(Value value);

/// Takes widenings to f32 at the end of elementwise ops of `block` apart from
/// them: the narrow tensor is the one to store, and its readers widen it.
void exposeNarrow(RewriterBase &rewriter, Block &block);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSVIEW_H
