// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that a dispatch copies only for products to read them: the products read
// the tokens' rows instead. A dispatch with weights computes something, and
// padded rows have no gather; both stay.

#include "FormKernels.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Whether `use` is that of the rows of a product that could gather them.
static bool isProductRows(OpOperand &use) {
  auto matmul = dyn_cast<GroupedMatmulOp>(use.getOwner());
  return matmul && !matmul.getContraction() && !matmul.getGather() &&
         use.getOperandNumber() ==
             matmul.getRowsMutable().begin()->getOperandNumber();
}

static bool canGather(DispatchOp dispatch) {
  if (hasBufferForm(dispatch) || dispatch.getWeights() ||
      dispatch.getRowsType().getRank() != 2)
    return false;
  bool feedsProducts = false;
  for (OpOperand &use : dispatch->getResult(0).getUses()) {
    if (isProductRows(use))
      feedsProducts = true;
    else if (auto dim = dyn_cast<tensor::DimOp>(use.getOwner());
             !dim || !dim.getConstantIndex())
      return false;
  }
  return feedsProducts;
}

static void fuseGather(RewriterBase &rewriter, DispatchOp dispatch) {
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(dispatch);
  Value rows = dispatch->getResult(0);
  auto type = RankedTensorType::get({dispatch.getRowsType().getDimSize(0)},
                                    rewriter.getI32Type());
  Value sources =
      SourcesOp::create(rewriter, dispatch.getLoc(), TypeRange(type),
                        dispatch.getSlots(), dispatch.getBound(), ValueRange())
          ->getResult(0);
  for (OpOperand &use : llvm::make_early_inc_range(rows.getUses())) {
    Operation *owner = use.getOwner();
    if (auto matmul = dyn_cast<GroupedMatmulOp>(owner)) {
      rewriter.modifyOpInPlace(matmul, [&] {
        matmul.getRowsMutable().assign(dispatch.getX());
        matmul.getGatherMutable().assign(sources);
      });
      continue;
    }
    // The number of rows is that of the map, features are the tokens' own.
    auto dim = cast<tensor::DimOp>(owner);
    Value source = *dim.getConstantIndex() == 0 ? sources : dispatch.getX();
    rewriter.modifyOpInPlace(dim,
                             [&] { dim.getSourceMutable().assign(source); });
  }
  rewriter.eraseOp(dispatch);
}

unsigned mlir::moe::detail::fuseGathers(RewriterBase &rewriter, Block &block) {
  unsigned fused = 0;
  for (DispatchOp dispatch :
       llvm::make_early_inc_range(block.getOps<DispatchOp>()))
    if (canGather(dispatch)) {
      fuseGather(rewriter, dispatch);
      ++fused;
    }
  return fused;
}
