// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// ExpertOp
//===----------------------------------------------------------------------===//

static ShapedType shapedType(Value value) {
  return cast<ShapedType>(value.getType());
}

bool ExpertOp::isPadded() {
  return shapedType(getRows().front()).getRank() == 3;
}

int64_t ExpertOp::getNumExperts() {
  return shapedType(getSizes()).getDimSize(0);
}

MutableArrayRef<BlockArgument> ExpertOp::getRowArgs() {
  return getBody().getArguments().take_front(getRows().size());
}

MutableArrayRef<BlockArgument> ExpertOp::getPerExpertArgs() {
  return getBody().getArguments().slice(getRows().size(),
                                        getPerExpert().size());
}

MutableArrayRef<BlockArgument> ExpertOp::getSharedArgs() {
  return getBody().getArguments().take_back(getShared().size());
}

bool ExpertOp::isSum(unsigned i) {
  // The region is not verified yet when the op's own verifier asks.
  if (getBody().empty() || getBody().front().empty())
    return false;
  auto yield = dyn_cast<YieldOp>(getBody().front().back());
  if (!yield || i >= yield.getNumOperands())
    return false;
  auto type = dyn_cast<RankedTensorType>(yield.getOperand(i).getType());
  return type && type.hasStaticShape();
}

/// Leading dims that say which row: [R] or [E, P].
static ArrayRef<int64_t> rowShape(ShapedType type) {
  return type.getShape().drop_back();
}

/// The type of the rows of one group of `type`.
static RankedTensorType groupType(ShapedType type) {
  return RankedTensorType::get({ShapedType::kDynamic, type.getShape().back()},
                               type.getElementType());
}

LogicalResult ExpertOp::verify() {
  // expert_c1
  if (getRows().empty())
    return emitOpError("expected at least one row operand");
  ShapedType first = shapedType(getRows().front());
  for (Value rows : getRows()) {
    ShapedType type = shapedType(rows);
    if ((type.getRank() != 2 && type.getRank() != 3) ||
        type.getRank() != first.getRank())
      return emitOpError("expected all rows ragged [R, D] or all padded "
                         "[E, P, D], got ")
             << first << " and " << type;
  }
  // expert_c2
  int64_t experts = getNumExperts();
  if (ShapedType::isDynamic(experts))
    return emitOpError("expected static E, got sizes ") << getSizes().getType();
  for (Value operand : getPerExpert()) {
    ShapedType type = shapedType(operand);
    if (type.getRank() < 1)
      return emitOpError("expected per-expert operand of rank >= 1, got ")
             << type;
    if (failed(verifyDim(*this, "per-expert operand", type, 0, experts)))
      return failure();
  }
  if (isPadded())
    for (Value rows : getRows())
      if (failed(verifyDim(*this, "padded rows", shapedType(rows), 0, experts)))
        return failure();
  for (auto [i, type] : llvm::enumerate(getResultTypes())) {
    auto result = cast<ShapedType>(type);
    if (isSum(i)) // verifyRegions
      continue;
    if (result.getRank() != first.getRank())
      return emitOpError("expected a result of rank ")
             << first.getRank() << " like the rows, got " << result;
    for (auto [dim, size] : llvm::enumerate(rowShape(first)))
      if (failed(verifyDim(*this, "result", result, dim, size)))
        return failure();
    // expert_c4
    if (result.isDynamicDim(result.getRank() - 1))
      return emitOpError("expected a result with static features, got ")
             << result;
  }
  return success();
}

LogicalResult ExpertOp::verifyRegions() {
  // expert_c3
  SmallVector<Type> expected;
  for (Value rows : getRows())
    expected.push_back(groupType(shapedType(rows)));
  for (Value operand : getPerExpert())
    expected.push_back(
        RankedTensorType::get(shapedType(operand).getShape().drop_front(),
                              shapedType(operand).getElementType()));
  llvm::append_range(expected, getShared().getTypes());
  if (getBody().getArgumentTypes() != TypeRange(expected))
    return emitOpError("expected block arguments (")
           << expected << "), got (" << getBody().getArgumentTypes() << ")";
  // expert_c4
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  SmallVector<Type> yields;
  for (auto [i, type] : llvm::enumerate(getResultTypes())) {
    auto result = cast<ShapedType>(type);
    if (!isSum(i)) {
      yields.push_back(groupType(result));
      continue;
    }
    if (result.getRank() < 1 || !result.hasStaticShape() ||
        result.getDimSize(0) != getNumExperts())
      return emitOpError("expected sums of static [E, ...] with E = ")
             << getNumExperts() << ", got " << result;
    yields.push_back(RankedTensorType::get(result.getShape().drop_front(),
                                           result.getElementType()));
  }
  if (yield.getOperandTypes() != TypeRange(yields))
    return yield.emitOpError("expected to yield (")
           << yields << "), got (" << yield.getOperandTypes() << ")";
  // expert_c5
  if (failed(verifyRowIndependence(getBody().front(), getRows().size())))
    return failure();
  // expert_c6
  WalkResult narrow = getBody().walk([&](linalg::LinalgOp op) {
    if (!linalg::isaContractionOpInterface(op))
      return WalkResult::advance();
    Type element =
        getElementTypeOrSelf(op.getDpsInitOperand(0)->get().getType());
    if (!element.isF16() && !element.isBF16())
      return WalkResult::advance();
    op.emitOpError("expected f32 outs of a contraction in moe.expert, got ")
        << element << " (it would round at every k)";
    return WalkResult::interrupt();
  });
  return failure(narrow.wasInterrupted());
}

LogicalResult
ExpertOp::reifyResultShapes(OpBuilder &builder,
                            ReifiedRankedShapedTypeDims &reified) {
  Value rows = getRows().front();
  for (auto [i, type] : llvm::enumerate(getResultTypes())) {
    auto result = cast<RankedTensorType>(type);
    SmallVector<OpFoldResult> dims;
    if (isSum(i)) {
      for (int64_t size : result.getShape())
        dims.push_back(builder.getIndexAttr(size));
      reified.push_back(dims);
      continue;
    }
    for (int64_t d = 0; d + 1 < result.getRank(); ++d)
      dims.push_back(result.isDynamicDim(d)
                         ? getDim(builder, getLoc(), rows, d)
                         : builder.getIndexAttr(result.getDimSize(d)));
    if (result.isDynamicDim(result.getRank() - 1))
      return failure();
    dims.push_back(builder.getIndexAttr(result.getShape().back()));
    reified.push_back(dims);
  }
  return success();
}
