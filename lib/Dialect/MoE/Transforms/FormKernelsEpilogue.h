// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A moe.grouped_matmul in the making, and the scalar program that follows its
// products.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEPILOGUE_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEPILOGUE_H

#include "FormKernelsProduct.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>

namespace mlir::moe::detail {

/// The columns of a product that one accumulator holds.
struct Accumulator {
  Product product;
  /// Places of the product's result.
  Columns columns;
};

/// One grouped_matmul. All values are those of the matched program (the body of
/// an expert, or a function); `KernelContext` says what they become.
struct Kernel {
  SmallVector<Value> results;
  int64_t columns = 0;
  SmallVector<Accumulator> accumulators;
  SmallVector<VectorSource> vectors;
  SmallVector<Value> elements;
  SmallVector<Value> scalars;
  std::unique_ptr<Region> epilogue;

  Value getRows() const { return accumulators.front().product.rows; }
  Operation *getOp() const { return results.front().getDefiningOp(); }
};

/// What a tensor element is to a kernel.
struct Leaf {
  enum Kind {
    /// Computed in the epilogue from its own operands.
    Inline,
    Accumulator,
    Vector,
    /// Rows with the kernel's columns.
    Element,
    /// One value per row: [rows] or [rows, 1].
    RowScalar,
    Reject
  };
  Kind kind = Inline;
  detail::Accumulator accumulator{};
  VectorSource vector{};
  Value value{};
  std::string reason{};

  static Leaf reject(const Twine &reason) {
    Leaf leaf;
    leaf.kind = Reject;
    leaf.reason = reason.str();
    return leaf;
  }
};

/// Writes the epilogue of a kernel by following its result back to leaves.
class EpilogueBuilder {
public:
  using Resolver = std::function<Leaf(Access)>;

  EpilogueBuilder(Kernel &kernel, Resolver resolve, Mismatch &mismatch);

  /// Fills `kernel` so that it computes its results ([rows, N], static N).
  LogicalResult build();

private:
  FailureOr<Value> get(Access access);
  FailureOr<Value> compute(Access access);
  FailureOr<Value> inlinePayload(linalg::LinalgOp op, unsigned result,
                                 AffineMap loops);
  FailureOr<Value> inlineElementwise(Operation *op, AffineMap map);
  /// A scalar that the payload of an op takes from outside.
  FailureOr<Value> getCaptured(Operation *user, Value value);
  FailureOr<Value> clonePayloadOp(Operation &op, IRMapping &mapping);
  Value addArgument(const Leaf &leaf, Access access);
  LogicalResult fail(Operation *op, const Twine &reason);

  Kernel &kernel;
  Resolver resolve;
  Mismatch &mismatch;
  OpBuilder builder;
  llvm::DenseMap<std::pair<Value, AffineMap>, Value> known;
};

/// Where the values of a kernel come from when it is created.
class KernelContext {
public:
  virtual ~KernelContext() = default;
  /// `[G, ...]` for a weight or vector source of the matched program.
  virtual Value getStacked(OpBuilder &builder, Location loc, Value source) = 0;
  /// `[R, ...]` or `[E, P, ...]` for rows of the matched program.
  virtual Value getRows(Value value) = 0;
  virtual Value getSizes(OpBuilder &builder, Location loc) = 0;
  virtual RankedTensorType getResultType(Value result) = 0;
  virtual IntegerAttr getLayer() = 0;
  /// How the kernel's hidden dimension is cut; null where it is not.
  virtual HiddenAttr getHidden(const Kernel &kernel) { return {}; }
};

/// Creates the op and returns its results; `kernel.epilogue` is moved into it.
ValueRange createKernel(OpBuilder &builder, Kernel &kernel,
                        KernelContext &context);

/// Creates sums over the rows of each group, `result` of `[G, N, K]` or `[G,
/// K]`.
Value createRowSum(OpBuilder &builder, Location loc, RowSum sum, Value sizes,
                   RankedTensorType result, IntegerAttr layer);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEPILOGUE_H
