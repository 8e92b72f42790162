// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FormKernelsProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static RankedTensorType tensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

FloatType Product::getAccumulatorType() const {
  return cast<FloatType>(tensorType(op->getResult(0)).getElementType());
}

bool Product::isCompatible(const Product &other) const {
  return earlier.empty() && other.earlier.empty() && rows == other.rows &&
         layout == other.layout && n.size == other.n.size &&
         tensorType(weight).getElementType() ==
             tensorType(other.weight).getElementType();
}

bool Product::continues(const Product &other) const {
  auto element = [](Value value) { return tensorType(value).getElementType(); };
  return layout == other.layout && n == other.n && !bias &&
         tensorType(weight) == tensorType(other.weight) &&
         tensorType(rows).getShape() == tensorType(other.rows).getShape() &&
         element(rows) == element(other.rows);
}

std::optional<VectorSource> mlir::moe::detail::matchVector(Access access,
                                                           int64_t columns) {
  access = lookThrough(access);
  auto type = dyn_cast<RankedTensorType>(access.value.getType());
  if (!type || !type.hasStaticShape())
    return std::nullopt;
  std::optional<VectorSource> vector;
  for (auto [d, expr] : llvm::enumerate(access.map.getResults())) {
    std::optional<LinearCoord> coord = getLinearCoord(expr);
    if (!coord)
      return std::nullopt;
    if (!coord->dim && type.getDimSize(d) == 1)
      continue;
    if (vector || coord->dim != 1)
      return std::nullopt;
    vector = VectorSource{access.value,
                          static_cast<unsigned>(d),
                          {coord->offset, coord->stride, columns}};
  }
  return vector;
}

/// `value`, or what it widens.
static Value beforeWidening(Value value) {
  auto ext = value.getDefiningOp<arith::ExtFOp>();
  return ext ? ext.getIn() : value;
}

/// Whether the payload is `acc + a` with a at most widened.
static bool isAdd(linalg::LinalgOp op) {
  Block *block = op.getBlock();
  if (op->getNumOperands() != 2 || op->getNumResults() != 1)
    return false;
  auto add =
      block->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  Value in = block->getArgument(0), acc = block->getArgument(1);
  return (add.getLhs() == acc && beforeWidening(add.getRhs()) == in) ||
         (add.getRhs() == acc && beforeWidening(add.getLhs()) == in);
}

/// Whether the payload is `acc + a * b` with a and b at most widened.
static bool isMultiplyAdd(linalg::LinalgOp op) {
  Block *block = op.getBlock();
  if (op->getNumOperands() != 3 || op->getNumResults() != 1)
    return false;
  BlockArgument acc = block->getArgument(2);
  auto isFactor = [&](Value value, unsigned i) {
    return beforeWidening(value) == block->getArgument(i);
  };
  auto areFactors = [&](Value a, Value b) {
    return (isFactor(a, 0) && isFactor(b, 1)) ||
           (isFactor(a, 1) && isFactor(b, 0));
  };
  Value yielded = block->getTerminator()->getOperand(0);
  if (auto fma = yielded.getDefiningOp<math::FmaOp>())
    return fma.getC() == acc && areFactors(fma.getA(), fma.getB());
  auto add = yielded.getDefiningOp<arith::AddFOp>();
  if (!add || (add.getLhs() != acc && add.getRhs() != acc))
    return false;
  Value other = add.getLhs() == acc ? add.getRhs() : add.getLhs();
  auto mul = other.getDefiningOp<arith::MulFOp>();
  return mul && areFactors(mul.getLhs(), mul.getRhs());
}

/// Sets the weight of `product` from the operand `rhs`, read at (n, k).
static LogicalResult matchWeight(Product &product, Value rhs, AffineMap map) {
  int64_t n = tensorType(product.op->getResult(0)).getDimSize(1);
  int64_t k = tensorType(product.rows).getDimSize(1);
  Access access = lookThrough({rhs, map});
  auto type = dyn_cast<RankedTensorType>(access.value.getType());
  if (!type || type.getRank() != 2 || !type.hasStaticShape())
    return failure();
  std::optional<LinearCoord> first = getLinearCoord(access.map.getResult(0));
  std::optional<LinearCoord> second = getLinearCoord(access.map.getResult(1));
  if (!first || !second || !first->dim || !second->dim ||
      *first->dim == *second->dim)
    return failure();
  bool nk = *first->dim == 0;
  LinearCoord nCoord = nk ? *first : *second, kCoord = nk ? *second : *first;
  if (kCoord.offset != 0 || kCoord.stride != 1 ||
      type.getDimSize(nk ? 1 : 0) != k)
    return failure();
  product.weight = access.value;
  product.layout = nk ? WeightLayout::NK : WeightLayout::KN;
  product.n = {nCoord.offset, nCoord.stride, n};
  return success();
}

static bool isZero(Value value) {
  return matchPattern(value, m_PosZeroFloat());
}

/// Sets the bias of `product` from the contraction's init.
static LogicalResult matchInit(Product &product, Value init) {
  Access access = lookThrough(Access::identity(init));
  if (isZero(access.value))
    return success();
  if (auto fill = access.value.getDefiningOp<linalg::FillOp>())
    if (isZero(fill.getInputs().front()))
      return success();
  if (auto op = init.getDefiningOp<linalg::LinalgOp>();
      op && !op.isAllParallelLoops()) {
    product.previous = op;
    return success();
  }
  product.bias = matchVector(access, product.n.size);
  return success(product.bias.has_value());
}

/// Whether rows of `rows` and weights of `weight` can be multiplied in `acc`.
static bool areElementTypes(Type rows, Type weight, Type acc) {
  auto isNarrow = [](Type type) {
    return type.isF16() || type.isBF16() || type.isF32();
  };
  if (acc.isF64())
    return rows.isF64() && weight.isF64();
  return acc.isF32() && isNarrow(rows) && isNarrow(weight);
}

FailureOr<Product> mlir::moe::detail::matchProduct(linalg::LinalgOp op,
                                                   Mismatch &mismatch) {
  auto fail = [&](StringRef reason) {
    mismatch = {op, reason.str()};
    return failure();
  };
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  if (failed(dims) || !isMultiplyAdd(op))
    return fail("a reduction that is no product of rows and a weight");
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!dims->batch.empty() || dims->m.size() != 1 || dims->n.size() != 1 ||
      dims->k.size() != 1 || !result || result.getRank() != 2)
    return fail("a contraction of other than two matrices");
  MLIRContext *context = op.getContext();
  AffineExpr d0 = getAffineDimExpr(0, context),
             d1 = getAffineDimExpr(1, context);
  // Reading (row, k), (n, k) and (row, n), whatever the loops are called.
  auto rename = [&](OpOperand *operand, unsigned first, unsigned second) {
    SmallVector<AffineExpr> loops(3, getAffineConstantExpr(0, context));
    loops[first] = d0;
    loops[second] = d1;
    return op.getMatchingIndexingMap(operand).compose(
        AffineMap::get(2, 0, loops, context));
  };
  unsigned m = dims->m[0], n = dims->n[0], k = dims->k[0];
  OpOperand *lhs = op.getDpsInputOperand(0), *rhs = op.getDpsInputOperand(1);
  auto isRowMajor = [&]() {
    return rename(lhs, m, k).isIdentity() &&
           rename(op.getDpsInitOperand(0), m, n).isIdentity();
  };
  if (!isRowMajor()) { // the rows may be the second operand
    std::swap(lhs, rhs);
    std::swap(m, n);
    if (!isRowMajor())
      return fail("a contraction with transposed rows or result");
  }
  Product product;
  product.op = op;
  product.rows = lookThroughWidening(lhs->get());
  if (result.isDynamicDim(1) || tensorType(product.rows).isDynamicDim(1))
    return fail("a contraction whose columns or depth is dynamic");
  if (failed(matchWeight(product, rhs->get(), rename(rhs, n, k))))
    return fail("a weight that is no matrix in [N, K] or [K, N]");
  if (!areElementTypes(tensorType(product.rows).getElementType(),
                       tensorType(product.weight).getElementType(),
                       result.getElementType()))
    return fail("a contraction that does not accumulate in f32 (f64 for f64)");
  if (failed(matchInit(product, op.getDpsInitOperand(0)->get())))
    return fail("a contraction that starts from neither zero, a bias vector "
                "nor another contraction");
  return product;
}

//===----------------------------------------------------------------------===//
// Sums over rows
//===----------------------------------------------------------------------===//

/// The sum that `value` is, before it was rounded.
static Value beforeRounding(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto trunc = dyn_cast_if_present<arith::TruncFOp>(op))
    return trunc.getIn();
  auto generic = dyn_cast_if_present<linalg::LinalgOp>(op);
  if (!generic || !generic.isAllParallelLoops() ||
      generic.getNumDpsInputs() != 1 || generic->getNumResults() != 1 ||
      !llvm::all_of(generic.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return value;
  auto trunc = generic.getBlock()
                   ->getTerminator()
                   ->getOperand(0)
                   .getDefiningOp<arith::TruncFOp>();
  if (!trunc || trunc.getIn() != generic.getBlock()->getArgument(0))
    return value;
  return generic.getDpsInputOperand(0)->get();
}

bool mlir::moe::detail::isPositiveZero(Value value) {
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return isZero(fill.getInputs().front());
  return isZero(value);
}

std::optional<RowSum> mlir::moe::detail::matchRowSum(Value value) {
  auto op = beforeRounding(value).getDefiningOp<linalg::LinalgOp>();
  if (!op || op->getNumResults() != 1 ||
      !isPositiveZero(op.getDpsInitOperand(0)->get()))
    return std::nullopt;
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  Type acc = getElementTypeOrSelf(op->getResult(0).getType());
  // The operand of rows, in the order of its dims.
  auto rowsOf = [&](unsigned i) -> std::optional<std::pair<Value, unsigned>> {
    OpOperand *operand = op.getDpsInputOperand(i);
    auto type = dyn_cast<RankedTensorType>(operand->get().getType());
    AffineMap map = op.getMatchingIndexingMap(operand);
    if (!type || type.getRank() != 2 || type.isDynamicDim(1) ||
        !map.isProjectedPermutation() ||
        kinds[map.getDimPosition(0)] != utils::IteratorType::reduction)
      return std::nullopt;
    return std::pair{lookThroughWidening(operand->get()),
                     map.getDimPosition(1)};
  };
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (isAdd(op)) {
    auto rows = rowsOf(0);
    if (!rows || kinds.size() != 2 || out.getNumResults() != 1 ||
        out.getDimPosition(0) != rows->second || !(acc.isF32() || acc.isF64()))
      return std::nullopt;
    return RowSum{Value(), rows->first};
  }
  if (kinds.size() != 3 || !isMultiplyAdd(op) || out.getNumResults() != 2)
    return std::nullopt;
  auto lhs = rowsOf(0), rhs = rowsOf(1);
  if (!lhs || !rhs || lhs->second == rhs->second ||
      !areElementTypes(tensorType(lhs->first).getElementType(),
                       tensorType(rhs->first).getElementType(), acc))
    return std::nullopt;
  if (out.getDimPosition(0) != lhs->second)
    std::swap(lhs, rhs);
  if (out.getDimPosition(0) != lhs->second ||
      out.getDimPosition(1) != rhs->second)
    return std::nullopt;
  return RowSum{lhs->first, rhs->first};
}
