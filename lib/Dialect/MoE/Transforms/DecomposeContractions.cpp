// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Transforms/DecomposeExpert.h"

#include "DecomposeBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// The addition `acc + a * b` that a body yields, if acc is the f32 or f64
/// accumulator itself and the product is of that type.
static arith::AddFOp findMultiplyAdd(Block &body) {
  auto sum = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum || (!sum.getType().isF32() && !sum.getType().isF64()))
    return {};
  BlockArgument acc = body.getArguments().back();
  Value product = sum.getLhs() == acc   ? sum.getRhs()
                  : sum.getRhs() == acc ? sum.getLhs()
                                        : Value();
  return product && product.getDefiningOp<arith::MulFOp>() ? sum
                                                           : arith::AddFOp();
}

/// acc + a * b -> fma(a, b, acc).
static void fuseMultiplyAdd(RewriterBase &rewriter, arith::AddFOp sum) {
  auto product = sum.getLhs().getDefiningOp<arith::MulFOp>();
  Value acc = sum.getRhs();
  if (!product) {
    product = sum.getRhs().getDefiningOp<arith::MulFOp>();
    acc = sum.getLhs();
  }
  rewriter.setInsertionPoint(sum);
  rewriter.replaceOpWithNewOp<math::FmaOp>(sum, product.getLhs(),
                                           product.getRhs(), acc);
  if (product->use_empty())
    rewriter.eraseOp(product);
}

/// Brings the dims of input 1 into the order of the loops.
static void transposeRight(RewriterBase &rewriter, linalg::GenericOp op) {
  OpOperand *right = op.getDpsInputOperand(1);
  AffineMap map = op.getMatchingIndexingMap(right);
  SmallVector<int64_t> order =
      llvm::to_vector(llvm::seq<int64_t>(0, map.getNumResults()));
  llvm::sort(order, [&](int64_t a, int64_t b) {
    return map.getDimPosition(a) < map.getDimPosition(b);
  });
  if (isIdentityPermutation(order))
    return;
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(rewriter, loc, right->get());
  applyPermutationToVector(sizes, order);
  Value out = buildHoistedEmpty(rewriter, loc, sizes,
                                getElementTypeOrSelf(right->get().getType()));
  Value transposed =
      linalg::TransposeOp::create(rewriter, loc, right->get(), out, order)
          ->getResult(0);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<AffineExpr> exprs(map.getResults());
  applyPermutationToVector(exprs, order);
  maps[right->getOperandNumber()] =
      AffineMap::get(map.getNumDims(), 0, exprs, op.getContext());
  rewriter.modifyOpInPlace(op, [&] {
    right->set(transposed);
    op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
  });
}

static void orderContraction(RewriterBase &rewriter, linalg::LinalgOp op) {
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  if (failed(dims) || !findMultiplyAdd(*op.getBlock()))
    return;
  rewriter.setInsertionPoint(op);
  FailureOr<linalg::GenericOp> generic =
      isa<linalg::GenericOp>(op)
          ? FailureOr<linalg::GenericOp>(cast<linalg::GenericOp>(op))
          : linalg::generalizeNamedOp(rewriter, op);
  if (failed(generic))
    return;
  fuseMultiplyAdd(rewriter, findMultiplyAdd(*generic->getBody()));
  SmallVector<unsigned> order;
  for (ArrayRef<unsigned> loops : {ArrayRef(dims->batch), ArrayRef(dims->m),
                                   ArrayRef(dims->k), ArrayRef(dims->n)})
    llvm::append_range(order, loops);
  if (!llvm::equal(order, llvm::seq<unsigned>(0, order.size()))) {
    rewriter.setInsertionPoint(*generic);
    generic = linalg::interchangeGenericOp(rewriter, *generic, order);
  }
  if (succeeded(generic) && !dims->n.empty())
    transposeRight(rewriter, *generic);
}

void mlir::moe::orderContractions(RewriterBase &rewriter, Operation *root) {
  SmallVector<linalg::LinalgOp> contractions;
  root->walk([&](linalg::LinalgOp op) {
    if (op.hasPureTensorSemantics() && linalg::isaContractionOpInterface(op))
      contractions.push_back(op);
  });
  for (linalg::LinalgOp op : contractions)
    orderContraction(rewriter, op);
}
