// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions that can become products of a moe.grouped_matmul.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSPRODUCT_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSPRODUCT_H

#include "FormKernelsView.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include <vector>

namespace mlir::moe::detail {

/// Why something does not match, and the op to name.
struct Mismatch {
  Operation *op = nullptr;
  std::string reason;
};

/// Hears of what stays.
using MissFn = llvm::function_ref<void(const Mismatch &)>;

/// Whether all elements of `value` are a positive zero.
bool isPositiveZero(Value value);

/// Why a product with a bias stays when that fusion is disabled.
inline constexpr llvm::StringLiteral kBiasDisabled =
    "a product that starts from a bias, whose fusion is disabled";

/// Some places of a dimension: offset, offset + stride, ..., `size` of them.
struct Columns {
  int64_t offset = 0;
  int64_t stride = 1;
  int64_t size = 0;

  /// The places that `inner` picks of these.
  Columns select(Columns inner) const {
    return {offset + stride * inner.offset, stride * inner.stride, inner.size};
  }
  bool operator==(const Columns &other) const {
    return offset == other.offset && stride == other.stride &&
           size == other.size;
  }
};

/// A vector over the columns of a result: the places `columns` of dim `dim` of
/// `source`, whose other dims have size 1.
struct VectorSource {
  Value source;
  unsigned dim = 0;
  Columns columns;
};

/// rows [rows, K] times the places `n` of a weight's N dimension.
struct Product {
  Operation *op = nullptr;
  Value rows;
  /// Rank 2: `[N, K]` or `[K, N]` by `layout`.
  Value weight;
  WeightLayout layout = WeightLayout::NK;
  Columns n;
  std::optional<VectorSource> bias;
  /// The contraction whose sums this one goes on from; its own terms come first
  /// then.
  Operation *previous = nullptr;
  /// The products of the chain before this one, from the first on.
  std::vector<Product> earlier;

  FloatType getAccumulatorType() const;
  /// Whether `other` can stand in one kernel with this product.
  bool isCompatible(const Product &other) const;
  /// Whether one chain of sums can go on from `other` with this product.
  bool continues(const Product &other) const;
};

/// Matches a value read at `access` as a vector over the columns.
std::optional<VectorSource> matchVector(Access access, int64_t columns);

/// Matches `op` as a product of rows and one weight, accumulated in f32 (f64
/// for f64) from zero, from a bias vector or from another contraction.
FailureOr<Product> matchProduct(linalg::LinalgOp op, Mismatch &mismatch);

/// What an expert's gradient sums over its rows: a product `[N, K]` of two
/// tensors of rows, or with `lhs` null the rows themselves, `[K]`.
struct RowSum {
  Value lhs, rhs;
};

/// Matches `value`, of static shape: sums from zero in f32 (f64 for f64), at
/// most rounded then.
std::optional<RowSum> matchRowSum(Value value);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSPRODUCT_H
