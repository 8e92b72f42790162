// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "LinearSums.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// Follows the dimension that counts rows through a body. The only facts kept:
/// which dim of a tensor is the row dim, which index values are the number of
/// rows, and which tensors are sums over rows.
class RowTracker {
public:
  explicit RowTracker(Block &body, unsigned numRowArgs) {
    for (BlockArgument arg : body.getArguments().take_front(numRowArgs))
      rowDims[arg] = 0;
  }

  LogicalResult visit(Operation &op) {
    if (auto yield = dyn_cast<YieldOp>(op))
      return visitYield(yield);
    if (!isMemoryEffectFree(&op))
      return op.emitOpError("expected an op without side effects in an "
                            "expert's body");
    if (auto dim = dyn_cast<tensor::DimOp>(op))
      return visitDim(dim);
    if (auto empty = dyn_cast<tensor::EmptyOp>(op))
      return visitEmpty(empty);
    if (!touches(op, [&](Value value) { return isOfRows(value); }))
      return touches(op, [&](Value value) { return sums.contains(value); })
                 ? visitSum(op)
                 : success();
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
      return visitLinalg(linalgOp);
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
      return visitSlice(slice);
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
      return visitReshape(op, expand.getSrc(), expand.getReassociationIndices(),
                          /*expand=*/true);
    if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
      return visitReshape(op, collapse.getSrc(),
                          collapse.getReassociationIndices(),
                          /*expand=*/false);
    if (isa<tensor::CastOp>(op) || OpTrait::hasElementwiseMappableTraits(&op))
      return visitElementwise(op);
    return op.emitOpError(
        "expected an op that treats rows independently in an expert's body");
  }

private:
  bool isOfRows(Value value) {
    return rowDims.contains(value) || rowCounts.contains(value);
  }

  /// Whether `op` or an op inside it reads a value that `test` accepts.
  static bool touches(Operation &op, llvm::function_ref<bool(Value)> test) {
    return op
        .walk([&](Operation *inner) {
          return llvm::any_of(inner->getOperands(), test)
                     ? WalkResult::interrupt()
                     : WalkResult::advance();
        })
        .wasInterrupted();
  }

  LogicalResult visitYield(YieldOp yield) {
    for (auto [i, value] : llvm::enumerate(yield.getOperands())) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (type && type.hasStaticShape()) {
        if (!isSumOrZero(value))
          return yield.emitOpError("expected a sum over rows as operand #")
                 << i << " of an expert's yield, of static shape";
        continue;
      }
      auto it = rowDims.find(value);
      if (it == rowDims.end() || it->second != 0)
        return yield.emitOpError("expected one row per row as operand #")
               << i << " of an expert's yield";
    }
    return success();
  }

  LogicalResult visitDim(tensor::DimOp dim) {
    auto it = rowDims.find(dim.getSource());
    if (it == rowDims.end())
      return success();
    std::optional<int64_t> index = dim.getConstantIndex();
    if (!index)
      return dim.emitOpError("expected a constant dimension of rows");
    if (*index == it->second)
      rowCounts.insert(dim.getResult());
    return success();
  }

  LogicalResult visitEmpty(tensor::EmptyOp empty) {
    auto type = cast<RankedTensorType>(empty.getType());
    unsigned dynamic = 0;
    for (int64_t d = 0; d < type.getRank(); ++d) {
      if (!type.isDynamicDim(d))
        continue;
      if (!rowCounts.contains(empty.getDynamicSizes()[dynamic++]))
        continue;
      if (!rowDims.try_emplace(empty.getResult(), d).second)
        return empty.emitOpError("expected one dimension that counts rows");
    }
    return success();
  }

  LogicalResult visitLinalg(linalg::LinalgOp op) {
    // A body that reads rows by itself (tensor.extract) may read any row.
    for (Operation &inner : *op.getBlock())
      if (touches(inner, [&](Value value) {
            return isOfRows(value) || sums.contains(value);
          }))
        return op.emitOpError("expected rows as operands, not inside the body");
    for (OpOperand *input : op.getDpsInputOperands())
      if (sums.contains(input->get()))
        return op.emitOpError("expected no sum over rows beside rows, got "
                              "one as operand #")
               << input->getOperandNumber();
    std::optional<unsigned> loop;
    for (OpOperand &operand : op->getOpOperands()) {
      if (rowCounts.contains(operand.get()))
        return op.emitOpError(
            "expected the number of rows to size tensors only");
      auto it = rowDims.find(operand.get());
      if (it == rowDims.end())
        continue;
      AffineMap map = op.getMatchingIndexingMap(&operand);
      auto dim = dyn_cast<AffineDimExpr>(map.getResult(it->second));
      if (!dim || (loop && *loop != dim.getPosition()) ||
          map.dropResult(it->second).isFunctionOfDim(dim.getPosition()))
        return op.emitOpError("expected every operand to count rows in the "
                              "same loop, operand #")
               << operand.getOperandNumber() << " does not";
      loop = dim.getPosition();
    }
    bool reduces =
        op.getIteratorTypesArray()[*loop] != utils::IteratorType::parallel;
    for (OpOperand &operand : op->getOpOperands())
      if (!rowDims.contains(operand.get()) &&
          op.getMatchingIndexingMap(&operand).isFunctionOfDim(*loop))
        return op.emitOpError("expected the rows' loop to index rows only, it "
                              "indexes operand #")
               << operand.getOperandNumber();
    WalkResult indexes = op->walk([&](linalg::IndexOp index) {
      return index.getDim() == *loop ? WalkResult::interrupt()
                                     : WalkResult::advance();
    });
    if (indexes.wasInterrupted())
      return op.emitOpError("expected no linalg.index of the rows' loop");
    if (reduces)
      return visitReduction(op);
    for (auto [i, result] : llvm::enumerate(op->getResults())) {
      AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(i));
      std::optional<unsigned> position =
          map.getResultPosition(getAffineDimExpr(*loop, op->getContext()));
      if (!position)
        return op.emitOpError("expected result #") << i << " to keep the rows";
      rowDims[result] = *position;
    }
    return success();
  }

  /// A reduction over rows adds to zeros or to another sum.
  LogicalResult visitReduction(linalg::LinalgOp op) {
    for (auto [i, init] : llvm::enumerate(op.getDpsInitsMutable())) {
      if (!isSumOrZero(init.get()))
        return op.emitOpError("expected a reduction over rows to begin with "
                              "zeros or a sum over rows, operand #")
               << init.getOperandNumber() << " is neither";
      if (!addsToAccumulator(op, i))
        return op.emitOpError("expected a reduction over rows to add to its "
                              "accumulator, result #")
               << i << " does not";
    }
    return keepSums(*op.getOperation());
  }

  /// An op on sums and on what does not depend on rows.
  LogicalResult visitSum(Operation &op) {
    if (!isLinear(op, [&](Value value) { return isSumOrZero(value); }))
      return op.emitOpError("expected an op that is linear in sums over rows");
    return keepSums(op);
  }

  LogicalResult keepSums(Operation &op) {
    for (Value result : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type || !type.hasStaticShape())
        return op.emitOpError("expected sums over rows of static shape, got ")
               << result.getType();
      sums.insert(result);
    }
    return success();
  }

  bool isSumOrZero(Value value) {
    return sums.contains(value) || isZeroTensor(value);
  }

  LogicalResult visitSlice(tensor::ExtractSliceOp slice) {
    auto it = rowDims.find(slice.getSource());
    if (it == rowDims.end()) // sized by the number of rows
      return slice.emitOpError("expected the number of rows to size rows only");
    int64_t dim = it->second;
    auto size = dyn_cast<Value>(slice.getMixedSizes()[dim]);
    if (!isConstantIntValue(slice.getMixedOffsets()[dim], 0) ||
        !isConstantIntValue(slice.getMixedStrides()[dim], 1) || !size ||
        !rowCounts.contains(size))
      return slice.emitOpError("expected a slice that keeps all rows");
    if (slice.getType().getRank() != slice.getSourceType().getRank())
      return slice.emitOpError("expected a slice that keeps the rank of rows");
    rowDims[slice.getResult()] = dim;
    return success();
  }

  LogicalResult visitReshape(Operation &op, Value source,
                             ArrayRef<ReassociationIndices> groups,
                             bool expand) {
    auto it = rowDims.find(source);
    if (it == rowDims.end())
      return op.emitOpError("expected the number of rows to size rows only");
    for (auto [i, group] : llvm::enumerate(groups)) {
      int64_t sourceDim = expand ? static_cast<int64_t>(i) : group.front();
      if (sourceDim != it->second)
        continue;
      if (group.size() == 1) {
        rowDims[op.getResult(0)] = expand ? group.front() : i;
        return success();
      }
    }
    return op.emitOpError("expected a reshape that leaves rows alone");
  }

  LogicalResult visitElementwise(Operation &op) {
    std::optional<int64_t> dim;
    for (Value operand : op.getOperands()) {
      if (rowCounts.contains(operand))
        return op.emitOpError(
            "expected the number of rows to size tensors only");
      auto it = rowDims.find(operand);
      if (it == rowDims.end()) {
        if (isa<TensorType>(operand.getType()))
          return op.emitOpError("expected rows as every tensor operand");
        continue;
      }
      if (dim && *dim != it->second)
        return op.emitOpError("expected operands to count rows in the same "
                              "dimension");
      dim = it->second;
    }
    for (Value result : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type || !type.isDynamicDim(*dim))
        return op.emitOpError("expected any number of rows, got ")
               << result.getType();
      rowDims[result] = *dim;
    }
    return success();
  }

  /// Tensors that hold rows, with the dimension that counts them.
  llvm::DenseMap<Value, int64_t> rowDims;
  /// Index values that are the number of rows.
  llvm::DenseSet<Value> rowCounts;
  /// Tensors that hold sums over rows.
  llvm::DenseSet<Value> sums;
};

} // namespace

LogicalResult mlir::moe::verifyRowIndependence(Block &body,
                                               unsigned numRowArgs) {
  RowTracker tracker(body, numRowArgs);
  for (Operation &op : body)
    if (failed(tracker.visit(op)))
      return failure();
  return success();
}
