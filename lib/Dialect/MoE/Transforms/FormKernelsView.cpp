// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FormKernelsView.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"

using namespace mlir;
using namespace mlir::moe::detail;

Access Access::identity(Value value) {
  return {value, AffineMap::getMultiDimIdentityMap(2, value.getContext())};
}

bool Access::isIdentity() const { return map.isIdentity(); }

std::optional<LinearCoord> mlir::moe::detail::getLinearCoord(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return LinearCoord{std::nullopt, 0, constant.getValue()};
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return LinearCoord{dim.getPosition(), 1, 0};
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  // Simplified expressions hold their constant on the right.
  auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS());
  std::optional<LinearCoord> lhs = getLinearCoord(binary.getLHS());
  if (!constant || !lhs)
    return std::nullopt;
  int64_t value = constant.getValue();
  if (expr.getKind() == AffineExprKind::Add)
    return LinearCoord{lhs->dim, lhs->stride, lhs->offset + value};
  if (expr.getKind() == AffineExprKind::Mul && value > 0)
    return LinearCoord{lhs->dim, lhs->stride * value, lhs->offset * value};
  return std::nullopt;
}

std::optional<AffineMap> mlir::moe::detail::getLoopsOf(linalg::LinalgOp op,
                                                       unsigned result,
                                                       AffineMap map) {
  if (!op.isAllParallelLoops())
    return std::nullopt;
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(result));
  if (!out.isPermutation())
    return std::nullopt;
  return inversePermutation(out).compose(map);
}

/// A map of the dims of `like` with simplified `coords`.
static AffineMap makeMap(AffineMap like, ArrayRef<AffineExpr> coords) {
  return simplifyAffineMap(
      AffineMap::get(like.getNumDims(), 0, coords, like.getContext()));
}

/// The operand that every element of `op`'s result copies.
static OpOperand *getCopiedOperand(linalg::LinalgOp op) {
  if (op->getNumResults() != 1)
    return nullptr;
  Value yielded = op.getMatchingYieldValue(op.getDpsInitOperand(0))->get();
  while (auto ext = yielded.getDefiningOp<arith::ExtFOp>()) {
    if (!ext.getType().isF32())
      return nullptr;
    yielded = ext.getIn();
  }
  auto arg = dyn_cast<BlockArgument>(yielded);
  if (!arg || arg.getOwner() != op.getBlock())
    return nullptr;
  OpOperand *operand = &op->getOpOperand(arg.getArgNumber());
  return op.isDpsInput(operand) &&
                 isa<RankedTensorType>(operand->get().getType())
             ? operand
             : nullptr;
}

static std::optional<Access> stepThroughSlice(tensor::ExtractSliceOp slice,
                                              AffineMap map) {
  if (ShapedType::isDynamicShape(slice.getStaticOffsets()) ||
      ShapedType::isDynamicShape(slice.getStaticStrides()))
    return std::nullopt;
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  SmallVector<AffineExpr> coords;
  unsigned next = 0;
  for (unsigned d = 0; d < dropped.size(); ++d) {
    AffineExpr coord = getAffineConstantExpr(0, map.getContext());
    if (!dropped.test(d))
      coord = map.getResult(next++);
    coords.push_back(coord * slice.getStaticStrides()[d] +
                     slice.getStaticOffsets()[d]);
  }
  return Access{slice.getSource(), makeMap(map, coords)};
}

static std::optional<Access> stepThroughExpand(tensor::ExpandShapeOp expand,
                                               AffineMap map) {
  RankedTensorType type = expand.getResultType();
  SmallVector<AffineExpr> coords;
  for (ReassociationIndices &group : expand.getReassociationIndices()) {
    AffineExpr coord = getAffineConstantExpr(0, map.getContext());
    for (auto [i, d] : llvm::enumerate(group)) {
      int64_t size = type.getDimSize(d);
      if (size == 1) // has one place only
        continue;
      if (i > 0 && ShapedType::isDynamic(size))
        return std::nullopt;
      coord = i == 0 ? map.getResult(d) : coord * size + map.getResult(d);
    }
    coords.push_back(coord);
  }
  return Access{expand.getSrc(), makeMap(map, coords)};
}

/// Coordinates of the dims `group` of `type` at the place `coord` of the dim
/// they collapse to.
static LogicalResult splitCoord(RankedTensorType type, ArrayRef<int64_t> group,
                                AffineExpr coord,
                                SmallVectorImpl<AffineExpr> &coords) {
  AffineExpr zero = getAffineConstantExpr(0, coord.getContext());
  SmallVector<AffineExpr> reversed;
  // A dim is taken apart only while others hold a part of the place.
  unsigned left =
      llvm::count_if(group, [&](int64_t d) { return type.getDimSize(d) != 1; });
  for (int64_t d : llvm::reverse(group)) {
    int64_t size = type.getDimSize(d);
    if (size == 1) {
      reversed.push_back(zero);
      continue;
    }
    if (--left == 0) {
      reversed.push_back(coord);
      continue;
    }
    if (ShapedType::isDynamic(size))
      return failure();
    reversed.push_back(coord % size);
    coord = coord.floorDiv(size);
  }
  llvm::append_range(coords, llvm::reverse(reversed));
  return success();
}

static std::optional<Access>
stepThroughCollapse(tensor::CollapseShapeOp collapse, AffineMap map) {
  SmallVector<AffineExpr> coords;
  for (auto [i, group] : llvm::enumerate(collapse.getReassociationIndices()))
    if (failed(
            splitCoord(collapse.getSrcType(), group, map.getResult(i), coords)))
      return std::nullopt;
  return Access{collapse.getSrc(), makeMap(map, coords)};
}

static std::optional<Access> step(Access access) {
  Operation *op = access.value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return stepThroughSlice(slice, access.map);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return stepThroughExpand(expand, access.map);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return stepThroughCollapse(collapse, access.map);
  if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    if (isa<RankedTensorType>(cast.getSource().getType()))
      return Access{cast.getSource(), access.map};
    return std::nullopt;
  }
  if (auto ext = dyn_cast<arith::ExtFOp>(op)) {
    if (getElementTypeOrSelf(ext.getType()).isF32())
      return Access{ext.getIn(), access.map};
    return std::nullopt;
  }
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp)
    return std::nullopt;
  OpOperand *operand = getCopiedOperand(linalgOp);
  std::optional<AffineMap> loops = getLoopsOf(linalgOp, 0, access.map);
  if (!operand || !loops)
    return std::nullopt;
  AffineMap map = linalgOp.getMatchingIndexingMap(operand).compose(*loops);
  return Access{operand->get(), simplifyAffineMap(map)};
}

Access mlir::moe::detail::lookThroughOnce(Access access) {
  return step(access).value_or(access);
}

Access mlir::moe::detail::lookThrough(Access access) {
  while (std::optional<Access> next = step(access))
    access = *next;
  return access;
}

Value mlir::moe::detail::lookThroughWidening(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Access access{value, AffineMap::getMultiDimIdentityMap(type.getRank(),
                                                         value.getContext())};
  Value result = value;
  while (std::optional<Access> next = step(access)) {
    access = *next;
    auto found = cast<RankedTensorType>(access.value.getType());
    if (access.map.isIdentity() && found.getShape() == type.getShape())
      result = access.value;
  }
  return result;
}
